"""What stories of several failures share: whom a harm hits, when it hits, and how it is over.

A story is one application that meets harms in turn, with one check of all rows at its end. Each
harm is a function that asserts its own events, and leaves all nodes up.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import readings
from application import Application, Event

Harm = Callable[[Application], None]


def meet(application: Application, *harms: Harm, spread: bool = True) -> None:
    """Let an application that runs meet these harms, one after the other, each when all is well.

    `spread`: then every node has partitions. Where none can move that need not be so.
    """
    nodes = set(all_nodes(application))
    for harm in harms:
        print(f"--- {harm.__name__}", flush=True)
        application.await_condition("all is well", lambda: is_well(application))
        if spread:
            application.await_condition(
                "every node has partitions",
                lambda: set(application.placement().values()) == nodes and is_well(application),
            )
        harm(application)


def all_nodes(application: Application) -> list[str]:
    """Names of all nodes."""
    return [node.name for node in application.cluster.nodes]


def neighbours(application: Application, *victims: str) -> list[str]:
    """All nodes but these."""
    return [node for node in all_nodes(application) if node not in victims]


def node_of(application: Application, operator: str) -> str:
    """One of the nodes that run partitions of an operator."""
    return min(application.nodes_of(operator))


def in_the_middle_of_an_epoch(application: Application) -> None:
    """Returns while the step `graded` is at work."""
    (application.traps / readings.REACHED).unlink(missing_ok=True)
    (application.traps / readings.SLOW).touch()
    application.await_condition(
        "an epoch is at work", (application.traps / readings.REACHED).exists
    )


@contextmanager
def a_step_that_crawls(application: Application) -> Iterator[None]:
    """Epochs take longer than they are apart, as do those that catch up. A call that has begun is
    not cut short."""
    trap = application.traps / readings.CRAWLS
    trap.touch()
    yield
    trap.unlink()


def start_workers(application: Application, *nodes: str, after: int) -> None:
    """Start the workers of nodes, and wait until their executors have joined, since `after`."""
    for node in nodes:
        application.cluster.start_worker(node)
    for node in nodes:
        application.await_event("joined", after=after, node=node)


def lose(application: Application, nodes: Collection[str]) -> int:
    """Kill nodes, and wait until their loss is known; how many events there were before."""
    begin = application.seen
    application.cluster.kill(list(nodes))
    for node in nodes:
        application.await_event("confirmed", after=begin, node=node)
    return begin


def is_well(application: Application) -> bool:
    """Whether no incident is open, no move is under way, and each node has an executor and its
    host."""
    return (
        kind_of_newest(application, "incident-opened", "incident-closed") != "incident-opened"
        and not moves(application)
        and all(len(pids) == 2 for pids in application.executors().values())
    )


def moves(application: Application) -> bool:
    """Whether moves are ordered that are not made or dropped, or what has moved runs epochs again,
    which it does in the epoch after that."""
    newest = newest_of(application, "moving", "moved", "confirmed", "state-lost", "plan")
    if newest is None or newest["kind"] not in ("moving", "moved"):
        return False
    return bool(newest.get("waiting", 1)) or kind_of_newest(application, "moved", "ran") == "moved"


def newest_of(application: Application, *kinds: str) -> Event | None:
    """The newest event of these kinds that this driver has written; None without one.

    What the driver before had under way ended with it.
    """
    generation = application.events[-1].get("generation") if application.events else None
    return next(
        (
            event
            for event in reversed(application.events)
            if event["kind"] in kinds and event.get("generation") == generation
        ),
        None,
    )


def kind_of_newest(application: Application, *kinds: str) -> str | None:
    """Of which of these kinds the newest event is; None without one."""
    newest = newest_of(application, *kinds)
    return None if newest is None else str(newest["kind"])


def open_checkpoint(application: Application) -> Path:
    """The folder of a checkpoint of which some states are written and which is not global."""
    found: list[Path] = []

    def look() -> bool:
        found[:] = [
            folder
            for folder in (application.store / "checkpoints").iterdir()
            if folder.is_dir()
            and any(folder.glob("*.state"))
            and not folder.with_suffix(".json").exists()
        ]
        return bool(found)

    application.await_condition("a checkpoint is being taken", look)
    return found[0]
