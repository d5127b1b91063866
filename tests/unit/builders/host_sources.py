"""Sources and stores of hosts, as actions: replays, files, and stores of each kind."""
# Arguments are those that callers pass.
# ruff: noqa: ARG002

import contextlib
import csv
import gzip
import io
import json
import os
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import s3_server
from host_story import Action, Story
from log_source import Log
from pyspark import cloudpickle

from rekindle.model import record_format
from rekindle_spark.connectors import decoding, file_rows
from rekindle_spark.connectors.file_listing import ListingLog
from rekindle_spark.connectors.file_source import FileSource
from rekindle_spark.operators import FINAL_WATERMARK
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_store import hdfs_files, local_files, object_files, store_files

SECOND = 1_000_000
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(sys.modules["log_source"])
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us")),
        ("key", pa.string()),
        ("value", pa.int64()),
        ("seen", pa.timestamp("us")),
    ]
)


# Of all source partitions that have one.
IDENTITY = "id"


def of_source(source: Any, **given: Any) -> Pipeline:
    pipeline = Pipeline("story")
    stream = pipeline.source("rows", source, **given)
    stream.sink("out")
    stream.window("counts", keys=[], size_seconds=9, aggregates={"n": count()}).sink("counted")
    return pipeline


def spans(*pieces: tuple[str, int, int]) -> list[dict[str, list[Any]]]:
    return [{"rows": [[[*piece, IDENTITY] for piece in pieces], FINAL_WATERMARK]}]


def with_action(context: Any, actions: Iterator[Action]) -> Iterator[Action]:
    """Actions that are done inside of a context that each of them enters again."""
    return (action.within(context) for action in actions)


def of_replays(folder: Path) -> Iterator[Action]:
    folder.mkdir(parents=True)
    path = folder / "rows.parquet"
    times = pa.array([n * SECOND for n in range(20)], pa.timestamp("us"))
    pq.write_table(
        pa.table(
            {
                "at": times.cast(pa.timestamp("ms")),
                "key": pa.array([f"k{n % 3}" for n in range(20)]).dictionary_encode(),
                "large": pa.array(["x"] * 20, pa.large_string()),
            }
        ),
        path,
        row_group_size=6,
    )
    for name, given in (("once", {}), ("repeats", {"repeat_every_seconds": 30.0})):
        source = Replay(path, "at", **given)
        offsets = [{"rows": [0, 17, 3 * SECOND]}, {"rows": [17, 24, FINAL_WATERMARK]}]
        yield from (
            Story(f"replay {name}", folder / name, of_source(source), offsets).begin().actions()
        )
    wrong = folder / "wrong.parquet"
    pq.write_table(pa.table({"at": times, "n": pa.array([1] * 20)}), wrong, row_group_size=5)
    story = Story(
        "replay changed", folder / "changed", of_source(Replay(wrong, "at")), [{"rows": [0, 9, 9]}]
    )
    wrong.write_bytes(wrong.read_bytes()[:-9])
    yield from story.begin().actions()
    odd = folder / "odd.parquet"
    pq.write_table(pa.table({"at": times.cast(pa.timestamp("ns")), "n": pa.array([1] * 20)}), odd)
    source = Replay(odd, "at")
    pipeline = of_source(source)
    late = times.cast(pa.timestamp("ns")).view(pa.int64()).to_numpy() + 1
    pq.write_table(
        pa.table({"at": pa.array(late).view(pa.timestamp("ns")), "n": pa.array([1] * 20)}), odd
    )
    source._file.identity = Replay(odd, "at")._file.identity
    yield from (
        Story("replay cut", folder / "cut", pipeline, [{"rows": [0, 9, 9]}]).begin().actions()
    )


def _lines(numbers: Sequence[int]) -> str:
    return "".join(
        json.dumps({"at": n * 1_000, "key": "k", "value": n, "seen": "2024-01-01T00:00:00Z"}) + "\n"
        for n in numbers
    )


def _of_csv(numbers: Sequence[int]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["at", "key", "value", "seen"])
    writer.writerows([n * 1_000, "k", n, "2024-01-01T00:00:00"] for n in numbers)
    return text.getvalue()


def _of_parquet(numbers: Sequence[int]) -> bytes:
    times = pa.array([None if n == 4 else n * SECOND for n in numbers], pa.timestamp("us"))
    values = pa.array(numbers, pa.int32())
    table = pa.table({"at": times, "key": ["k"] * len(numbers), "value": values, "seen": times})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=7)
    return sink.getvalue()


def _deep(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([("visits", pa.map_(pa.string(), kind))]))


def _of_old_parquet() -> bytes:
    """Times of 96 bits, one with nanoseconds, and others inside of lists, structs and maps."""
    times = pa.array([n * 1_000 + (n == 2) for n in range(6)], pa.timestamp("ns"))
    deep = pa.array([[{"visits": [("a", n)]}] for n in range(6)], _deep(pa.int64()))
    sink = io.BytesIO()
    table = pa.table({"at": times, "key": ["k"] * 6, "value": range(6), "seen": times})
    table = table.append_column("deep", deep.cast(_deep(times.type)))
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    return sink.getvalue()


BAD = {"json": "{\n{}\n[1]\n", "csv": '"x\n\n1,k,x,2024\n', "parquet": ""}


def of_files(folder: Path) -> Iterator[Action]:
    """Files of each form, packed and not, with lines that are none."""
    contents = {
        "json": (_lines(range(20)) + BAD["json"]).encode(),
        "json.gz": gzip.compress(_lines(range(20)).encode()),
        "csv": (_of_csv(range(20)) + BAD["csv"]).encode(),
        "parquet": _of_parquet(range(20)),
    }
    for ending, content in contents.items():
        story = _files(folder / ending, ending, content)
        yield from story.begin().actions()
        # rejected again though it can be read
        yield story.again(1, 0, item={"choices": {"1": {"rows": [[0, 1], []]}}})
    # a row group that cannot be read, a file that is gone, and values that do not fit
    for name, spoil in (("gone", Path.unlink), ("replaced", _replace)):
        story = _files(folder / name, "parquet", contents["parquet"], spoil)
        yield from story.begin().actions()
    spoilt = _files(folder / "spoilt", "parquet", _spoilt(contents["parquet"])).begin()
    yield from spoilt.actions()
    yield spoilt.again(1, 0, item={"choices": {"1": {"rows": [[], []]}}})
    deep = SCHEMA.append(pa.field("deep", _deep(pa.timestamp("us"))))
    old = _files(folder / "old", "parquet", _of_old_parquet(), schema=deep)
    yield from old.begin().actions()
    yield from _unfit(folder / "unfit").begin().actions()
    strict = _files(folder / "strict", "json", contents["json"], dead_letters=False)
    yield from strict.begin().actions()
    for letters in (True, False):
        none = _files(folder / f"none-{letters}", "parquet", b"no Parquet", dead_letters=letters)
        yield from none.begin().actions()
    lost = _files(folder / "lost", "json", contents["json"])
    records = folder / "lost" / "store" / "listings" / "rows"
    (record,) = records.iterdir()
    content = record.read_bytes()
    record.unlink()
    yield from lost.begin().actions()
    known = record_format.decode("listing", content, "listing")
    with mock.patch.dict(record_format.VERSIONS, {"listing": 9}):
        newer = record_format.encode("listing", known)
    wrong = [content.replace(b"listing", b"another"), newer]
    (records / "2.json").write_bytes(content)
    yield from lost.actions()
    (records / "2.json").unlink()
    for other in wrong:
        record.write_bytes(other)
        yield from lost.actions()
    inputs = str(folder / "lost" / "in")
    listing = ListingLog(store_files.at(folder / "lost" / "store"), "listings/rows", inputs)
    record.write_bytes(content)
    whole = listing.catch_up().whole({}, {"gone.json": 1.0}, set())
    whole["unreadable"] = {"bad.json": "1-2"}
    record.write_bytes(record_format.encode("listing", whole))
    closed = lambda: mock.patch.object(file_rows, "IDLE_SECONDS", -1.0)  # noqa: E731
    chunks = lambda: mock.patch.object(decoding, "CHUNK_BYTES_MAX", 9)  # noqa: E731
    stored = lambda: mock.patch.object(local_files, "PIECE_BYTES", 64)  # noqa: E731
    for action in lost.actions():
        yield action.within(closed, chunks, stored)


def _unfit(folder: Path) -> Story:
    """Files with values that their column's type cannot hold."""
    big = pa.schema([("at", pa.timestamp("us")), ("value", pa.timestamp("ms"))])
    times = pa.array([n * SECOND for n in range(9)], pa.timestamp("us"))
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"at": times, "value": pa.array(range(9)).view(pa.timestamp("us"))}), sink
    )
    return _files(folder, "parquet", sink.getvalue(), schema=big)


def _spoilt(parquet: bytes) -> bytes:
    """The same with rows that cannot be read, and the footer as it was."""
    return parquet[:4] + b"\xff" * 200 + parquet[204:]


def _replace(path: Path) -> None:
    """By a file of the same size and time."""
    status = path.stat()
    path.write_bytes(_spoilt(path.read_bytes()))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _files(
    folder: Path,
    ending: str,
    content: bytes,
    spoil: Any = None,
    dead_letters: bool = True,
    **given: Any,
) -> Story:
    inputs = folder / "in"
    inputs.mkdir(parents=True)
    path = inputs / f"a.{ending}"
    path.write_bytes(content)
    form = ending.partition(".")[0]
    if form != "parquet":
        given["units"] = {"at": "ms"}
    columns = ("file_path", "file_row", "file_modified")
    arguments = {"schema": SCHEMA, "event_time": "at", "columns": columns, "list_seconds": 0.05}
    source = FileSource(inputs, form, **{**arguments, **given})
    (folder / "store").mkdir()
    source.keep_in(store_files.at(folder / "store"), "rows", dead_letters=dead_letters)
    (ends,) = source.latest_offsets().values()
    if spoil:
        spoil(path)
    pipeline = of_source(source, dead_letters=dead_letters)
    pieces = spans(("0", ends.oldest, ends.latest // 2), ("0", ends.latest // 2, ends.latest))
    return Story(f"files {folder.name}", folder / "host", pipeline, pieces)


def of_logs(folder: Path) -> Iterator[Action]:
    """A source with partitions; two readers share three, and one that is away."""
    story = Story(
        "log",
        folder / "log",
        of_source(Log({"a": 9, "b": 9}), parallelism=3),
        spans(("a", 0, 9), ("b", 0, 5), ("c", 2, 2)),
    )
    yield from story.begin().actions()
    yield from (
        Story(
            "log twice",
            folder / "twice",
            of_source(Log({"a": 9})),
            [*spans(("a", 0, 4)), *spans(("a", 4, 9))],
        )
        .begin()
        .actions()
    )
    both = Story(
        "log both",
        folder / "both",
        of_source(Log({"a": 9})),
        [*spans(("a", 0, 4)), *spans(("a", 4, 9))],
    )
    given = {str(epoch): both.offsets[epoch - 1] for epoch in (1, 2)}
    yield both.again(1, 0, item={"to": 2}, offsets=given)
    away = Story(
        "log away", folder / "away", of_source(Log({"a": 9}, is_away=True)), spans(("a", 0, 4))
    )
    yield from away.begin().actions()


@dataclass
class Hdfs:
    """HDFS's client, in memory."""

    files: dict[str, bytes] = field(default_factory=dict)

    def mkdirs(self, path: str, create_parent: bool) -> None: ...

    @contextlib.contextmanager
    def create(self, path: str, options: Any) -> Iterator[Any]:
        parts: list[bytes] = []
        yield types.SimpleNamespace(write=parts.append, hsync=lambda: None)
        self.files[path] = b"".join(parts)

    def rename(self, old: str, new: str, overwrite: bool) -> None:
        if not overwrite and new in self.files:
            raise FileExistsError(new)
        self.files[new] = self.files.pop(old)

    @contextlib.contextmanager
    def read(self, path: str) -> Iterator[Any]:
        if path not in self.files:
            raise FileNotFoundError(path)
        yield io.BytesIO(self.files[path])

    def delete(self, path: str) -> None:
        self.files.pop(path, None)

    def get_file_info(self, path: str) -> Any:
        return types.SimpleNamespace(length=len(self.files[path]))

    def list_status(self, top: str, recursive: bool = False) -> Iterator[Any]:
        del recursive
        for path in [path for path in self.files if path.startswith(f"{top}/")]:
            yield types.SimpleNamespace(isdir=False, path=path)


class Away(Hdfs):
    """One that cannot be reached."""

    def create(self, path: str, options: Any) -> Any:
        raise OSError("away")


def _stored(name: str, folder: Path, place: str) -> Story:
    path = folder / "in"
    path.mkdir(parents=True, exist_ok=True)
    (path / "a.json").write_text(_lines(range(6)))
    source = FileSource(path, "json", SCHEMA, "at", units={"at": "ms"}, list_seconds=0.05)
    source.keep_in(store_files.at(place), "rows")
    (ends,) = source.latest_offsets().values()
    return Story(
        name, folder / "host", of_source(source), spans(("0", 0, ends.latest)), place=place
    )


def of_stores(folder: Path) -> Iterator[Action]:
    """Stores on HDFS and S3, with a source whose list of files lies there."""
    client = Hdfs()

    def on_hdfs(of: Hdfs = client) -> Any:
        store_files._at.cache_clear()
        return mock.patch.object(hdfs_files, "Client", return_value=of)

    with on_hdfs():
        story = _stored("hdfs", folder / "hdfs", "hdfs://name:1/store").begin()
    yield from with_action(on_hdfs, story.actions())
    away = Away(client.files)
    yield from with_action(lambda: on_hdfs(away), story.actions())
    with s3_server.serving() as server:
        yield from _of_s3(folder, server)


def _of_s3(folder: Path, server: s3_server.S3Server) -> Iterator[Action]:
    """A bucket as the store, with files in another folder of it; whole, and in pieces."""
    access = {"AWS_ACCESS_KEY_ID": "k ", "AWS_SECRET_ACCESS_KEY": "s\n", "AWS_REGION": "r"}
    authorities = folder / "ca.pem"
    authorities.write_text("-----BEGIN CERTIFICATE-----\n")
    places = {"AWS_ENDPOINT_URL": server.address, **access}

    def on_s3(**more: str) -> Any:
        store_files._at.cache_clear()
        return mock.patch.dict(os.environ, {**places, **more})

    def in_pieces() -> Any:
        return mock.patch.object(object_files, "PIECE_BYTES", 64)

    with on_s3():
        story = _stored("s3", folder / "s3", "s3://bucket/store").begin()
        store_files.at("s3://bucket/in").put({"a.json": _lines(range(6)).encode()})
        source = FileSource("s3://bucket/in", "json", SCHEMA, "at", units={"at": "ms"})
        source.keep_in(store_files.at("s3://bucket/store"), "others")
        (ends,) = source.latest_offsets().values()
        pieces = spans(("0", 0, ends.latest))
        files = Story("s3 files", folder / "in", of_source(source), pieces, place="s3://bucket/a")
        files.begin()
    for action in story.actions():
        yield action.within(on_s3)
        yield action.within(on_s3, in_pieces)
        yield action.within(on_s3, in_pieces, _cut_off)
        yield action.within(lambda: on_s3(AWS_CA_BUNDLE=str(authorities)))
        yield action.within(lambda: on_s3(AWS_ENDPOINT_URL="http://127.0.0.1:1"))
    for action in files.actions():
        yield action.within(on_s3)
        yield action.within(on_s3, _shut)


def _cut_off() -> Any:
    """Where pieces do not come."""
    return mock.patch.object(object_files, "CHUNK_BYTES", -1)


def _shut() -> Any:
    """Where a bucket cannot be reached any more once its records were read."""
    return mock.patch.object(
        object_files.ObjectFiles, "size", side_effect=OSError(5, "cannot be reached")
    )
