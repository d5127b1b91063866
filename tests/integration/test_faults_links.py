"""A cut link between executors, while all of them reach the driver: one goes, the rest go on.

Packets to the port at which one executor serves its blocks are dropped, which takes root.
"""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from application import LASTING, Application, Before
from harms import all_nodes, meet, neighbours
from link_relay import cut

Prepare = Callable[..., Application]
LISTENS = "0A"


def serving_ports(pids: Collection[int]) -> set[int]:
    """The TCP ports at which an executor listens: that of its blocks, and that of its links."""
    found = {port for pid in pids for port in listening_ports(pid)}
    assert found, f"none of the processes {pids} listens"
    return found


def listening_ports(pid: int) -> set[int]:
    """The TCP ports at which a process listens."""
    sockets = open_sockets(pid)
    return {
        int(fields[1].rpartition(":")[2], 16)
        for table in ("tcp", "tcp6")
        for fields in map(str.split, Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:])
        if fields[3] == LISTENS and f"socket:[{fields[9]}]" in sockets
    }


def open_sockets(pid: int) -> set[str]:
    """The names of a process's sockets; files that it closes meanwhile are none."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(link.readlink().name)
    return {name for name in found if name.startswith("socket:")}


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
    before, ports = (
        Before.of(application),
        serving_ports_of(application, read_by_others(application)),
    )
    with cut(ports):
        time.sleep(3.0)
    epochs_go_on(application)
    before.assert_untouched(all_nodes(application))
    assert not application.happened("unreachable", after=before.events)


def a_link_that_flaps_drops_nobody(application: Application) -> None:
    before, ports = (
        Before.of(application),
        serving_ports_of(application, read_by_others(application)),
    )
    for _ in range(4):
        with cut(ports):
            time.sleep(2.0)
        time.sleep(4.0)
    epochs_go_on(application)
    before.assert_untouched(all_nodes(application))
    assert not application.happened("unreachable", after=before.events)


def one_that_no_other_can_read_is_dropped_once_and_the_others_go_on(
    application: Application,
) -> None:
    node = read_by_others(application)
    before, ports = Before.of(application), serving_ports_of(application, node)
    with cut(ports):
        found = application.await_event("unreachable", after=before.events)
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


def serving_ports_of(application: Application, node: str) -> set[int]:
    return serving_ports(application.executors()[node])


def epochs_go_on(application: Application) -> None:
    """Three more epochs run."""
    begin = application.seen
    application.await_condition(
        "epochs run", lambda: len(application.happened("ran", after=begin)) >= 3
    )
