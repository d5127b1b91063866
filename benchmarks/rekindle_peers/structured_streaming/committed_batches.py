"""What a run has committed: the batches of each query, read from Spark's own files.

A batch counts from the moment at which its sink names its output files, whatever the driver says or
does afterwards; of a stream that queries share, from the moment at which Spark calls it committed.
Reads a store, also while its application runs; writes nothing. Called by `streaming_driver`, to
tell of batches, and by `streaming_evidence`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.model.errors import InputError

COMPACT = ".compact"
# Between the names of the queries that share a stream.
AND = "+"


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a query, which reflects the first `rows` rows of the run.

    `planned_at` is when its offsets were fixed, `committed_at` when its output counted, in seconds
    since 1970. `fresh` says that it took input, and is not there for completed windows alone;
    `last`, that it reflects all input of the run.
    """

    query: str
    number: int
    rows: int
    fresh: bool
    last: bool
    planned_at: float
    committed_at: float


def stream_name(queries: Iterable[str]) -> str:
    """The name of the stream, and of its checkpoint, that some queries share."""
    return AND.join(queries)


def check_streams(store: Path, names: Iterable[str]) -> None:
    """Raise InputError where a query of these streams is in another stream of the store: a store
    goes on with the streams that it has begun with."""
    wanted = {query: name for name in names for query in name.split(AND)}
    for there in _streams(store):
        for query in there.split(AND):
            if wanted.get(query, there) != there:
                raise InputError(
                    where=str(store),
                    what=f"has {query} in the stream {there}, not in {wanted[query]}",
                    remedy="give --queries and --shared as before, or another --store",
                )


def batch_folder(store: Path, query: str, number: int) -> Path:
    """Where a query that shares its stream puts the rows of a batch."""
    return store / "outputs" / query / str(number)


def committed(store: Path, query: str, first: int) -> Iterator[Batch]:
    """The batches of a query from number `first` on, as far as they are there."""
    folder = _checkpoint(store, query)
    while (folder / "commits" / str(first)).exists():
        yield _batch(store, query, folder, first)
        first += 1


def output_files(store: Path, query: str) -> Iterator[tuple[int, Path]]:
    """Each output file that counts, with the number of its batch, in order."""
    folder = store / "outputs" / query
    if not (folder / "_spark_metadata").exists():
        for batch in committed(store, query, 0):
            found = batch_folder(store, query, batch.number).glob("*.parquet")
            yield from ((batch.number, path) for path in sorted(found))
        return
    logs = {_number(path): path for path in (folder / "_spark_metadata").iterdir() if _is_log(path)}
    seen: set[str] = set()
    for number in sorted(logs):
        # A compact log names the files of all batches before it as well.
        for line in logs[number].read_text().splitlines()[1:]:
            name = Path(json.loads(line)["path"]).name
            if name not in seen:
                seen.add(name)
                yield number, folder / name


def _checkpoint(store: Path, query: str) -> Path:
    """That of the query's stream, which may be one of several queries."""
    there = (name for name in _streams(store) if query in name.split(AND))
    return store / "checkpoints" / next(there, query)


def _streams(store: Path) -> list[str]:
    """The names of those that have begun."""
    folder = store / "checkpoints"
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def _batch(store: Path, query: str, checkpoint: Path, number: int) -> Batch:
    offsets = checkpoint / "offsets"
    positions = _positions(offsets / str(number))
    sink = store / "outputs" / query / "_spark_metadata"
    logs = (sink / str(number), sink / f"{number}{COMPACT}", checkpoint / "commits" / str(number))
    log = next(path for path in logs if path.exists())
    # Such a file is written elsewhere and moved into place, which does not touch st_mtime.
    return Batch(
        query=query,
        number=number,
        rows=min(position["rows"] for position in positions),
        fresh=number == 0 or positions != _positions(offsets / str(number - 1)),
        last=all(position["last"] for position in positions),
        planned_at=(offsets / str(number)).stat().st_ctime,
        committed_at=log.stat().st_ctime,
    )


def _positions(offsets: Path) -> list[dict[str, Any]]:
    """After a version and a line on the batch comes a line for each source."""
    return [json.loads(line) for line in offsets.read_text().splitlines()[2:]]


def _is_log(path: Path) -> bool:
    return path.name.removesuffix(COMPACT).isdigit()


def _number(path: Path) -> int:
    return int(path.name.removesuffix(COMPACT))
