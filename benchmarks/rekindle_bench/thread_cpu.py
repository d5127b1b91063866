"""CPU time of processes by what their threads are for, as /proc tells it.

Java names its threads, and Linux keeps the first 15 signs of the name. What threads have used that
have ended counts for their process alone, as `ended threads`. `cpu_profile` and `scale_benchmark`
call it.
"""

import os
from collections.abc import Iterable
from pathlib import Path

PYTHON = "Python"
ENDED = "ended threads"
# How the names of a JVM's threads begin, and what these do.
JAVA_KINDS = (
    ("Executor task", "tasks"),
    ("stdout writer", "tasks"),
    ("GC Thread", "garbage collection"),
    ("G1 ", "garbage collection"),
    ("VM Thread", "garbage collection"),
    ("C1 Compiler", "compiling"),
    ("C2 Compiler", "compiling"),
    ("shuffle-", "network"),
    ("rpc-", "network"),
    ("netty", "network"),
    ("dispatcher-", "scheduling"),
    ("dag-scheduler", "scheduling"),
    ("task-result-get", "scheduling"),
    ("map-output", "scheduling"),
    ("spark-listener", "scheduling"),
    ("driver-heartbea", "scheduling"),
    ("block-manager", "scheduling"),
    ("rekindle-reader", "reading blocks"),
    ("Thread-", "calls from Python"),
)
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_by_kind(pids: Iterable[int]) -> dict[tuple[str, ...], float]:
    """CPU seconds so far by process (`driver`, `executor`, `host`, `worker`) and kind of thread."""
    found: dict[tuple[str, ...], float] = {}
    for pid in pids:
        try:
            _add(pid, found)
        except OSError:
            continue
    return found


def _add(pid: int, found: dict[tuple[str, ...], float]) -> None:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    process, java = _process(command)
    total, spent = _seconds(Path(f"/proc/{pid}/stat")), dict[str, float]()
    for thread in Path(f"/proc/{pid}/task").iterdir() if java else ():
        try:
            name, seconds = (thread / "comm").read_text(), _seconds(thread / "stat")
        except OSError:
            continue
        spent[_kind(name)] = spent.get(_kind(name), 0.0) + seconds
    spent[ENDED if java else PYTHON] = max(0.0, total - sum(spent.values()))
    for kind, seconds in spent.items():
        found[process, kind] = found.get((process, kind), 0.0) + seconds


def _process(command: bytes) -> tuple[str, bool]:
    """What a process is, and whether it is a JVM."""
    arguments = command.split(b"\0")
    if b"rekindle_spark.executor.host" in arguments:
        return "host", False
    if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in arguments:
        return "executor", True
    if b"org.apache.spark.deploy.worker.Worker" in arguments:
        return "worker", True
    return "driver", arguments[0].rpartition(b"/")[2] == b"java"


def _kind(name: str) -> str:
    """What a thread is for; of one that is not known its name, without what numbers it."""
    own = name.strip().rstrip("0123456789-#")
    return next((kind for begin, kind in JAVA_KINDS if name.startswith(begin)), f"thread {own}")


def _seconds(path: Path) -> float:
    """User and system time of proc_pid_stat(5)."""
    fields = path.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
