"""A cut link between executors, while all of them reach the driver: one goes, the rest go on.

Packets to the port at which one executor serves its blocks are dropped, which takes root.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import loud_skips
from application import LASTING, Application, Before
from harms import all_nodes, meet, neighbours

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


def test_a_short_cut_and_a_link_that_flaps_drop_nobody_and_a_long_cut_drops_one_once(
    prepare: Prepare,
) -> None:
    application = prepare(policy={"silent_seconds": 15}, runtime=LASTING)
    application.start_and_recover()
    meet(
        application,
        a_link_that_is_cut_for_three_seconds_drops_nobody,
        a_link_that_flaps_drops_nobody,
        one_that_no_other_can_read_is_dropped_once_and_the_others_go_on,
    )
    application.finish()


def a_link_that_is_cut_for_three_seconds_drops_nobody(application: Application) -> None:
    before, port = Before.of(application), serving_port_of(application, read_by_others(application))
    with cut(port):
        time.sleep(3.0)
    epochs_go_on(application)
    before.assert_untouched(all_nodes(application))
    assert not application.happened("unreachable", after=before.events)


def a_link_that_flaps_drops_nobody(application: Application) -> None:
    before, port = Before.of(application), serving_port_of(application, read_by_others(application))
    for _ in range(4):
        with cut(port):
            time.sleep(2.0)
        time.sleep(4.0)
    epochs_go_on(application)
    before.assert_untouched(all_nodes(application))
    assert not application.happened("unreachable", after=before.events)


def one_that_no_other_can_read_is_dropped_once_and_the_others_go_on(
    application: Application,
) -> None:
    node = read_by_others(application)
    before, port = Before.of(application), serving_port_of(application, node)
    with cut(port):
        began = time.monotonic()
        found = application.await_event("unreachable", after=before.events)
        assert time.monotonic() - began < 30.0, "20 s, and more on a slow machine"
        assert found["node"] == node
        assert found["reason"] == "unreachable-by-peers"
        assert found["peers"]
        assert set(found["peers"]) <= set(neighbours(application, node))
        application.await_event("confirmed", after=before.events, node=node, silent=False)
        application.await_event("recovered", after=before.events)
        epochs_go_on(application)
    joined = application.await_event("joined", after=before.events, node=node)
    assert joined["at"] - found["at"] >= found["seconds"] > 0
    before.assert_untouched(neighbours(application, node))
    assert len(application.happened("unreachable", after=before.events)) == 1


def read_by_others(application: Application) -> str:
    """A node with sources: all others read what they give."""
    return min(application.nodes_of("readings"))


def serving_port_of(application: Application, node: str) -> int:
    return serving_port(application.executors()[node])


def epochs_go_on(application: Application) -> None:
    """Three more epochs run."""
    begin = application.seen
    application.await_condition(
        "epochs run", lambda: len(application.happened("ran", after=begin)) >= 3
    )
