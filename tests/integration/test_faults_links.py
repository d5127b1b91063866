"""A cut link between executors, while all of them reach the driver: one goes, the rest go on.

Packets to the port at which one executor serves its blocks are dropped, which takes root.
"""

import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import loud_skips
from application import Application, Before

Prepare = Callable[..., Application]
LISTENS = "0A"


def serving_port(pids: Collection[int]) -> int:
    """The TCP port at which an executor serves its blocks: the only one at which it listens."""
    for pid in pids:
        sockets = {
            link.readlink().name
            for link in Path(f"/proc/{pid}/fd").iterdir()
            if str(link.readlink()).startswith("socket:")
        }
        ports = {
            int(fields[1].rpartition(":")[2], 16)
            for table in ("tcp", "tcp6")
            for fields in map(
                str.split, Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
            )
            if fields[3] == LISTENS and f"socket:[{fields[9]}]" in sockets
        }
        if ports:
            (port,) = ports
            return port
    raise AssertionError(f"none of the processes {pids} listens")


@contextmanager
def cut(port: int) -> Iterator[None]:
    """Nobody reaches this port of this machine."""
    if shutil.which("iptables") is None:
        loud_skips.skip("a cut link takes iptables")
    rule = ["OUTPUT", "-p", "tcp", "--dport", str(port), "-j", "DROP"]
    made = subprocess.run(["iptables", "-I", *rule], capture_output=True, text=True, check=False)
    if made.returncode:
        loud_skips.skip(f"a cut link takes root: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["iptables", "-D", *rule], check=True)


def test_an_executor_that_no_other_can_read_is_dropped_and_the_application_goes_on(
    prepare: Prepare,
) -> None:
    application = prepare(policy={"silent_seconds": 8})
    application.start_and_recover()
    before = Before.of(application)
    node = application.cluster.nodes[0].name
    with cut(serving_port(application.executors()[node])):
        found = application.await_event("unreachable", after=before.events, node=node)
        assert found["reason"] == "unreachable-by-peers"
        assert found["peers"]
        assert node not in found["peers"]
        application.await_event("confirmed", after=before.events, node=node, silent=False)
    application.await_event("recovered", after=before.events)
    joined = application.await_event("joined", after=before.events, node=node)
    assert joined["at"] - found["at"] >= found["seconds"] > 0
    before.assert_untouched([each.name for each in application.cluster.nodes[1:]])
    application.finish()
