"""Records that are too large for one message: pieces first, then the head that names them.

    write   pieces ──► one transaction: every piece is there, and the head takes its place
    read    head ──► pieces; when they have gone meanwhile, the head again

So a head never names a piece that is not there, whoever else writes or removes pieces of the same
content. Pure; `zookeeper_connection` carries it out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rekindle.model.errors import RunError
from rekindle.protocol import store_paths

HEAD_BYTES_MAX = 200
# of the data in a transaction; the servers take messages of 1 MiB
TRANSACTION_BYTES_MAX = 800_000
# /rekindle/v1/NAMESPACE/APPLICATION
APPLICATION_DEPTH = 2


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """What stands at the record's own place, and its pieces by path."""

    data: bytes
    pieces: Mapping[str, bytes]


def prepare(writes: Mapping[str, bytes]) -> dict[str, WrittenRecord]:
    """What to write for each record of one transaction, so that all of it fits."""
    whole = sum(map(len, writes.values()))
    prepared = {}
    for path, data in sorted(writes.items(), key=lambda item: (-len(item[1]), item[0])):
        crowded = whole > TRANSACTION_BYTES_MAX and len(data) > HEAD_BYTES_MAX
        if len(data) > store_paths.PIECE_BYTES or crowded:
            prepared[path] = _split(path, data)
            whole -= len(data)
        else:
            prepared[path] = WrittenRecord(data, {})
    return prepared


def folder(path: str) -> str:
    """Where the pieces of a record lie: with those of its application."""
    names = path.removeprefix(f"{store_paths.APPLICATIONS}/").split("/")
    if not path.startswith(f"{store_paths.APPLICATIONS}/") or len(names) <= APPLICATION_DEPTH:
        raise RunError(
            where=f"coordination store: {path}",
            what="is too large, and belongs to no application",
            remedy=f"keep it below {store_paths.PIECE_BYTES} bytes",
        )
    return "/".join((store_paths.APPLICATIONS, *names[:APPLICATION_DEPTH], store_paths.PIECES))


def named(path: str, found: bytes) -> tuple[str, ...]:
    """Paths of the pieces that the record `found` at `path` names; none when it is whole."""
    try:
        names = store_paths.pieces(found) if len(found) <= HEAD_BYTES_MAX else ()
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            where=f"coordination store: {path}",
            what="names its pieces in a way that nobody reads",
            remedy="remove it",
        ) from error
    return tuple(f"{folder(path)}/{name}" for name in names)


def _split(path: str, data: bytes) -> WrittenRecord:
    head = store_paths.head(data)
    return WrittenRecord(head, dict(zip(named(path, head), store_paths.split(data), strict=True)))
