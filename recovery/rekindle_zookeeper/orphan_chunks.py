"""Pieces that no record names: a writer died, or gave up, before its head took its place.

Nobody can tell at once whether a piece is a leftover, or its head about to come. So a piece goes
only when it was without a record twice, minutes apart, and has not been written in between; and a
head takes its place only when its pieces are there. `zookeeper_connection` calls it.
"""

from collections.abc import Iterator, Mapping

from rekindle.protocol import store_paths
from rekindle_zookeeper import transactions
from rekindle_zookeeper.chunked_records import ChunkedRecords

__all__ = ["sweep"]


def sweep(records: ChunkedRecords, folder: str, seen: Mapping[str, int]) -> dict[str, int]:
    """Remove the pieces below an application's `folder` that no record names and that are as in
    `seen`, an earlier answer; the answer is the versions of those that no record names now."""
    versions = {}
    for name in records.children(f"{folder}/{store_paths.PIECES}"):
        path = f"{folder}/{store_paths.PIECES}/{name}"
        found = records.stat(path)
        if found is not None:
            versions[path] = found.version
    if not versions:
        return {}
    wanted = {piece for path in _paths(records, folder) for piece in _pieces(records, path)}
    left = {path: version for path, version in versions.items() if path not in wanted}
    for path, version in left.items():
        if seen.get(path) == version:
            records.commit([transactions.delete(path, version)], path)
    return {path: version for path, version in left.items() if seen.get(path) != version}


def _paths(records: ChunkedRecords, folder: str) -> Iterator[str]:
    """All records of an application."""
    for name in records.children(folder):
        if name == store_paths.PIECES:
            continue
        path = f"{folder}/{name}"
        yield path
        if name in (store_paths.DIRECTIVES, store_paths.ACKS):
            yield from (f"{path}/{below}" for below in records.children(path))


def _pieces(records: ChunkedRecords, path: str) -> tuple[str, ...]:
    return records.pieces(path, records.stat(path))
