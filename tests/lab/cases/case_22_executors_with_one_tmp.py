"""Case 22: two executors of a node have one /tmp, and JVMs of the same process id.

Rewritten: a host listens for its parent alone, so each host gets a parent of its own, which asks as
an executor's task does. Both have one path here; tests/integration/test_host_folder.py shows that
the JVM makes a folder of its own for it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import verdicts

SOCKET = "rekindle-15.sock"
# An executor: it starts its host, and then asks at the socket once for each line of its input.
EXECUTOR = """
import json, os, socket, struct, subprocess, sys, time

path, name = sys.argv[1:]
if os.path.exists(path):
    os.unlink(path)
command = [sys.executable, "-m", "rekindle_spark.executor.host", path, str(os.getpid())]
host = subprocess.Popen([*command, path + name + ".note", ""], stdout=2)


def connected():
    while host.poll() is None:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(path)
            return client
        except OSError:
            time.sleep(0.05)
    raise SystemExit("no host")


connected().close()
print(json.dumps({"host": host.pid}), flush=True)
for _ in sys.stdin:
    client = connected()
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    request = {"version": 1, "program": ["0", "program", "0"], "generation": 1, "plan_epoch": 1,
               "store": os.getcwd(), "urgency": 0, "dead_letters": [3, 100], "checkpoint": None,
               "attempt": 1, "executor": name, "held": [], "finished": {}, "work": [],
               "offsets": {}}
    header = json.dumps(request).encode()
    client.sendall(struct.pack(">i", len(header)) + header + struct.pack(">q", 0))
    with client.makefile("rb") as reader:
        report = json.loads(reader.read(struct.unpack(">i", reader.read(4))[0]))
    peer = struct.unpack("3i", credentials)[0]
    print(json.dumps({"peer": peer, "status": report.get("status")}), flush=True)
host.kill()
"""


def start(name: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", EXECUTOR, str(Path(SOCKET).absolute()), name]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def said(executor: "subprocess.Popen[str]") -> dict[str, Any]:
    output: IO[str] | None = executor.stdout
    assert output is not None
    found: dict[str, Any] = json.loads(output.readline())
    return found


def ask(executor: "subprocess.Popen[str]") -> dict[str, Any]:
    assert executor.stdin is not None
    executor.stdin.write("ask\n")
    executor.stdin.flush()
    return said(executor)


def main() -> None:
    first = start("1")
    own = said(first)["host"]
    alone = ask(first)
    print("first executor alone: its own host answers:", alone["peer"] == own, alone)
    second = start("2")
    other = said(second)["host"]
    both = ask(first)
    print(f"the second host is {other}; the first executor gets", both)
    for executor in (first, second):
        executor.communicate(timeout=60)  # the end of its input ends it, and its host
    verdicts.end(
        alone["peer"] == own
        and alone["status"] != "refused"
        and (both["peer"] == own or both["status"] == "refused"),
        "each executor talks with its own host, or a host refuses other processes",
    )


if __name__ == "__main__":
    main()
