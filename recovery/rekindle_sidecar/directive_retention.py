"""Which directives and acknowledgements may go: the store must not grow with every plan.

Kept are what the driver has not acknowledged and the newest `ACKS_KEPT` that it has, for people who
ask what happened. Numbers grow through all generations of an application, so what was for earlier
ones has the lower numbers. `choose` is pure; `tidy` carries it out, and asks the store.
"""

from collections.abc import Iterable, Mapping

from rekindle.protocol import store_paths
from rekindle_sidecar.directive_inbox import Inbox
from rekindle_zookeeper import Connection

__all__ = ["ACKS_KEPT", "choose", "tidy"]

ACKS_KEPT = 200


def choose(
    directives: Mapping[int, int], acks: Iterable[int], generation: int
) -> tuple[set[int], set[int]]:
    """Numbers of the directives (number -> generation) and of the acknowledgements that may go
    while a driver of `generation` is there."""
    earlier = {number for number, of in directives.items() if of < generation}
    ours = [number for number, of in directives.items() if of >= generation]
    last = min(ours) - 1 if ours else max(earlier, default=0)
    known = sorted(acks)
    old = {number for number in known if number <= last}
    kept = [number for number in known if number > last]
    old |= set(kept[:-ACKS_KEPT])
    return earlier | (old & set(directives)), old


def tidy(connection: Connection, place: store_paths.Place, inbox: Inbox, generation: int) -> int:
    """Remove what may go; the number of records that went."""
    directives = {held.sequence: held.generation for held in inbox.values() if held is not None}
    acks = store_paths.numbers(connection.children(place.path(store_paths.ACKS)))
    old_directives, old_acks = choose(directives, acks, generation)
    for folder, numbers in ((store_paths.DIRECTIVES, old_directives), (store_paths.ACKS, old_acks)):
        for number in sorted(numbers):
            connection.remove(place.path(folder, store_paths.numbered(number)))
    return len(old_directives) + len(old_acks)
