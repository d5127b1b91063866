"""Directives that a driver may still want, as the store has them.

They are handed on byte for byte: one of a kind that only a newer driver knows reaches it, and one
that a driver does not know it refuses itself. Only numbers and generation are looked at.
"""

from collections.abc import Iterable, Mapping

import msgspec

from rekindle.protocol import MESSAGE_BYTES_MAX, store_paths
from rekindle_sidecar.json_log import tell
from rekindle_zookeeper import Connection


class Envelope(msgspec.Struct, frozen=True):
    """What is looked at of a directive, and the whole of it."""

    sequence: int
    generation: int
    after: int = 0
    data: msgspec.Raw = msgspec.Raw()


# by name; None for what is no directive
Inbox = Mapping[str, Envelope | None]


def fetch(
    connection: Connection, place: store_paths.Place, known: Inbox
) -> dict[str, Envelope | None]:
    """What is in the store now; what is known is not read again. Asks the store."""
    inbox: dict[str, Envelope | None] = {}
    for name in connection.children(place.path(store_paths.DIRECTIVES)):
        if name == store_paths.GUARD:
            continue
        if name in known:
            inbox[name] = known[name]
            continue
        found = connection.get(place.path(store_paths.DIRECTIVES, name))
        if found is not None:
            inbox[name] = read(name, found[0])
    return inbox


def read(name: str, data: bytes) -> Envelope | None:
    """The directive `name`; None, and a line in the log, for what is none."""
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        tell("directive-unreadable", name=name, text=str(error)[:200])
        return None
    if store_paths.numbered(envelope.sequence) != name:
        tell("directive-unreadable", name=name, text=f"it says that it is {envelope.sequence}")
        return None
    return msgspec.structs.replace(envelope, data=msgspec.Raw(data))


def choose(envelopes: Iterable[Envelope | None], after: int, generation: int) -> list[Envelope]:
    """All directives to a generation behind number `after`, in order; as many as fit into one
    message, the first at any rate. One whose predecessor is missing is kept back: the driver could
    only ask again at once."""
    wanted = [
        envelope
        for envelope in envelopes
        if envelope is not None and envelope.generation == generation and envelope.sequence > after
    ]
    chosen: list[Envelope] = []
    room = MESSAGE_BYTES_MAX * 9 // 10  # the rest is for what is around them
    for envelope in sorted(wanted, key=lambda envelope: envelope.sequence):
        room -= len(bytes(envelope.data))
        if envelope.after > after or (room < 0 and chosen):
            break
        chosen.append(envelope)
        after = envelope.sequence
    return chosen
