"""What is known of a pipeline before it runs: each kind of finding, and none where all is well."""

import datetime as datetime_module
import functools
import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from random import choice
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rekindle.model import settings as settings_module
from rekindle.model.settings import Policy, RuntimeSettings, Settings
from rekindle_spark.checks import CheckFinding, CheckSeverity, beforehand, first_rows
from rekindle_spark.connectors.file_source import FileSource
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, Stream, count
from rekindle_spark.testing import TableSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("size", pa.int64())])
ROWS = pa.table(
    {
        "at": pa.array([second * 1_000_000 for second in range(20)], pa.timestamp("us")),
        "key": [f"key-{number % 3}" for number in range(20)],
        "size": list(range(20)),
    },
    schema=SCHEMA,
)
DEFAULT = Settings()
COUNTER = 0


def started(table: pa.Table = ROWS, **options: Any) -> tuple[Pipeline, Stream]:
    pipeline = Pipeline("sizes")
    return pipeline, pipeline.source("rows", TableSource(table, "at"), **options)


def mapped(function: Callable[..., Any], **options: Any) -> Pipeline:
    pipeline, rows = started()
    rows.map("changed", function, schema=SCHEMA, **options).sink("out")
    return pipeline


def static(pipeline: Pipeline, settings: Settings = DEFAULT) -> list[CheckFinding]:
    return beforehand(pipeline, settings)


def called(pipeline: Pipeline) -> list[CheckFinding]:
    return first_rows(pipeline, DEFAULT.runtime)


def summed(table: pa.Table) -> pa.Table:
    return table.set_column(2, "size", pc.add(table["size"], 1))


def test_a_sound_pipeline_has_no_findings() -> None:
    pipeline, rows = started()
    wide = rows.map("summed", summed, schema=SCHEMA)
    wide.window("w", keys=["key"], size_seconds=5, aggregates={"n": count()}).sink("out")
    assert static(pipeline) == []
    assert called(pipeline) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pipeline: pipeline.steps.pop("out"), "pipeline sizes: has no sink"),
        (
            lambda pipeline: pipeline.source("unread", TableSource(ROWS, "at")),
            "step unread: leads to no sink",
        ),
    ],
)
def test_a_wrong_structure_is_an_error(change: Any, message: str) -> None:
    pipeline = mapped(summed)
    change(pipeline)
    (finding,) = static(pipeline)
    assert finding.severity is CheckSeverity.ERROR
    assert str(finding).startswith(message)


def test_a_priority_for_a_query_that_is_not_there_is_an_error() -> None:
    settings = Settings(policy=Policy(priorities={"ouz": 3}))
    (finding,) = static(mapped(summed), settings)
    assert str(finding) == "policy.priorities.ouz: there is no such query; name one of: out"
    settings = settings_module.parse(b"policy: {priorities: {ouz: 3}}", "mine.yaml")
    (finding,) = static(mapped(summed), settings)
    assert finding.where == "mine.yaml: policy.priorities.ouz"


def test_what_cannot_be_sent_is_an_error() -> None:
    lock = threading.Lock()
    (finding,) = static(mapped(lambda table: lock and table))
    assert finding.severity is CheckSeverity.ERROR
    assert finding.what.startswith("uses the variable 'lock', which cannot be sent to executors")


def helper() -> float:
    return time.monotonic()


def by_local_import(table: pa.Table) -> Any:
    from time import time as now

    return now() and table


def counted(table: pa.Table) -> Any:
    global COUNTER
    COUNTER += 1
    return table


@pytest.mark.parametrize(
    ("function", "use"),
    [
        (lambda table: time.time() and table, "uses time.time"),
        (lambda table: time.time_ns() and table, "uses time.time_ns"),
        (lambda table: helper() and table, "uses time.monotonic"),
        (functools.partial(lambda table, _: helper() and table, 3), "uses time.monotonic"),
        (by_local_import, "uses time.time"),
        (lambda table: datetime.now() and table, "uses datetime.datetime.now"),
        (lambda table: datetime_module.date.today() and table, "uses datetime.date.today"),
        (lambda table: [random.random() for _ in table] and table, "uses random.random"),
        (lambda table: choice([table]), "uses random.choice"),
        (lambda table: random.Random() and table, "calls random.Random() without a seed"),
        (lambda table: np.random.rand(3).any() and table, "uses numpy.random.rand"),
        (lambda table: np.random.default_rng() and table, "calls numpy.random.default_rng() with"),
        (lambda table: uuid.uuid4() and table, "uses uuid.uuid4"),
        (lambda table: hash("text") and table, "uses hash, so"),
        (lambda table: os.urandom(3) and table, "uses os.urandom"),
        (counted, "changes the global 'COUNTER'"),
        (
            lambda table: polars.from_arrow(table).group_by("key").len().to_arrow(),  # type: ignore[union-attr]
            "uses group_by, whose groups have no fixed order",
        ),
    ],
)
def test_functions_that_look_unrepeatable_are_warnings_with_their_line(
    function: Any, use: str
) -> None:
    (finding,) = static(mapped(function))
    assert finding.severity is CheckSeverity.WARNING
    assert Path(__file__).name in finding.where
    assert finding.where.endswith(": step changed")
    assert finding.what.startswith(use)
    assert "deterministic=False" in finding.remedy
    assert "uncertain" in finding.remedy
    assert static(mapped(function, deterministic=False)) == []


def fine(table: pa.Table) -> Any:
    id, hash = 3, 4
    time.sleep(0)
    datetime(2024, 1, 1).isoformat()
    rng, other = np.random.default_rng(7), random.Random(7)
    ordered = polars.from_arrow(table).group_by("key", maintain_order=True)  # type: ignore[union-attr]
    return (lambda: id + hash)() and rng and other and ordered and uuid.uuid5 and table


def test_what_is_the_same_in_a_repeat_is_no_finding() -> None:
    assert static(mapped(fine)) == []


class Counting(StatefulOperator):
    value_schema = pa.schema([("n", pa.int64())])

    def __init__(self) -> None:
        self.started = True

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        self.rows = len(rows)
        for row in rows:
            yield {"at": row["at"], "key": str(uuid.uuid1()), "size": self.rows}
        value.update((len(key),))


def test_an_operator_that_keeps_something_in_itself_is_a_warning() -> None:
    pipeline, rows = started()
    rows.stateful("counting", Counting(), keys=["key"], schema=SCHEMA).sink("out")
    said = [finding.what.partition(",")[0] for finding in static(pipeline)]
    assert said == ["keeps 'rows' in the operator itself", "uses uuid.uuid1"]


def test_a_relative_source_file_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    pipeline = Pipeline("p")
    pipeline.source("rows", Replay("rows.parquet", "at")).sink("out")
    (finding,) = static(pipeline)
    assert str(finding).startswith(
        "step rows: source file rows.parquet: is relative, and executors"
    )


def test_a_pipeline_too_large_for_a_driver_is_a_warning() -> None:
    pipeline, rows = started(parallelism=200)
    for number in range(3):
        rows.window(
            f"w{number}",
            keys=["key"],
            size_seconds=5,
            aggregates={"n": count()},
            parallelism=300,
        ).sink(f"q{number}")
    said = [str(finding) for finding in static(pipeline)]
    assert said[0].startswith(
        "pipeline sizes: has 1,100 partitions, more than one driver can carry"
    )
    assert said[1].startswith("pipeline sizes: exchanges 60,000 frames in each epoch, most behind")
    longer = Settings(runtime=RuntimeSettings(epoch_seconds=10.0))
    assert static(pipeline, longer) == []


def test_more_partitions_than_nodes_can_use_are_a_warning() -> None:
    pipeline, rows = started()
    rows.window("w", keys=["key"], size_seconds=5, aggregates={"n": count()}, parallelism=40).sink(
        "q"
    )
    (finding,) = static(pipeline, Settings(runtime=RuntimeSettings(nodes_expected=4)))
    assert str(finding).startswith("step w: parallelism: is 40 for 4 nodes (nodes_expected); take")


def test_a_function_with_a_large_table_in_it_is_a_warning() -> None:
    table = pa.table({"x": np.zeros(4_000_000)})
    (finding,) = static(mapped(lambda rows: rows.slice(table.num_rows)))
    assert finding.what == "is 31 MiB with what its functions hold"


def test_row_groups_and_joins_over_the_memory_of_hosts_are_warnings(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 2**60, 600_000)
    times = pa.array(np.arange(600_000) * 1_000, pa.timestamp("us"))
    table = pa.table({"at": times, "key": pa.array(noise).cast(pa.string()), "size": noise})
    pq.write_table(table, tmp_path / "rows.parquet")
    pipeline = Pipeline("p")
    rows = pipeline.source("rows", Replay(tmp_path / "rows.parquet", "at"))
    rows.join("near", rows, keys=["key"], within_seconds=600).sink("out")
    settings = Settings(runtime=RuntimeSettings(host_memory_mib_max=16))
    said = [str(finding) for finding in static(pipeline, settings)]
    assert "MiB of its file's row groups on a node; write the file with smaller" in said[0]
    assert "MiB of rows on a node, those of 600 s of both sides" in said[1]
    assert static(pipeline) == []


def test_each_step_that_fails_on_no_rows_or_the_first_ones_is_an_error_of_its_own() -> None:
    pipeline, rows = started()
    schema = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64())])
    rows.map(
        "inferred",
        lambda table: pa.table({"at": table["at"], "n": [1 for _ in range(len(table))]}),
        schema=schema,
    ).sink("a")
    rows.map("raising", lambda table: 1 // len(table) and table, schema=SCHEMA).sink("b")
    rows.filter("strange", lambda table: pc.greater(table["sice"], 3)).sink("c")
    rows.map("sound", summed, schema=SCHEMA).sink("d")
    found = called(pipeline)
    assert {finding.severity for finding in found} == {CheckSeverity.ERROR}
    named = {finding.where: finding.what for finding in found}
    assert named.keys() == {"step inferred", "step raising", "step strange"}
    assert named["step inferred"].startswith("returned at: timestamp[us] n: null where at:")
    assert named["step raising"].startswith("raised ZeroDivisionError")
    assert f"{Path(__file__).name}:" in named["step strange"]


class Broken(Counting):
    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        return [key, rows, value][3]


def test_an_operator_that_fails_on_the_first_rows_is_an_error() -> None:
    pipeline, rows = started()
    rows.stateful("broken", Broken(), keys=["key"], schema=SCHEMA).map(
        "behind", lambda table: table.drop_columns(["key"]), schema=SCHEMA
    ).sink("out")
    said = [(finding.where, finding.what.partition(":")[0]) for finding in called(pipeline)]
    assert said == [("step behind", "returned at"), ("step broken", "raised IndexError")]


def test_a_repeat_that_differs_on_the_first_rows_is_an_error() -> None:
    def noisy(table: pa.Table) -> pa.Table:
        noise = np.frombuffer(os.urandom(8 * len(table)), np.int64)
        return table.set_column(2, "size", pa.array(noise))

    (finding,) = called(mapped(noisy))
    assert finding.where == "step changed, epoch 1"
    assert finding.what == "gave another output when it ran again on the same input"
    assert called(mapped(noisy, deterministic=False)) == []


def test_dead_letters_among_the_first_rows_are_a_warning() -> None:
    def refuse(table: pa.Table) -> pa.Table:
        if 7 in table["size"].to_pylist():
            raise ValueError("seven")
        return table

    (finding,) = called(mapped(refuse, dead_letters=True))
    assert finding.severity is CheckSeverity.WARNING
    assert str(finding).startswith(
        "step changed: makes dead letters of 1 of the first rows (raised ValueError: seven)"
    )


class Unreadable(TableSource):
    def read(self, begin: int, end: int) -> pa.Table:
        raise OSError(f"no {begin} to {end}")


class Other(TableSource):
    def read(self, begin: int, end: int) -> pa.Table:
        return pa.table({"x": [begin, end]})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Unreadable(ROWS, "at"), "step rows: its source cannot be read: raised OSError: no 0 to"),
        (Other(ROWS, "at"), "step rows: its source gave x: int64 instead of its schema"),
    ],
)
def test_a_source_that_cannot_be_read_is_an_error(source: TableSource, message: str) -> None:
    pipeline = Pipeline("p")
    pipeline.source("rows", source).sink("out")
    (finding,) = called(pipeline)
    assert str(finding).startswith(message)


def test_the_first_rows_of_files_are_looked_at_and_a_bucket_that_is_away_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64())])

    def findings(place: Path | str, *, dead_letters: bool = False) -> list[CheckFinding]:
        built = Pipeline("p")
        source = FileSource(place, "csv", schema, "at")
        rows = built.source("rows", source, dead_letters=dead_letters)
        rows.filter("positive", lambda table: pc.greater(table["absent"], 0)).sink("found")
        return first_rows(built, DEFAULT.runtime)

    (tmp_path / "a.csv").write_text("at,n\n2026-01-01,x\n")
    [first, *_] = findings(tmp_path)
    assert first.severity is CheckSeverity.ERROR
    assert str(first).startswith(
        "step rows: its source: cannot decode 1 of its first rows, first "
        f"file_path={tmp_path}/a.csv, file_row=1, file_line=b'2026-01-01,x': "
    )
    assert "raised ArrowInvalid: column 'n': CSV conversion error" in first.what
    [first, *_] = findings(tmp_path, dead_letters=True)
    assert first.severity is CheckSeverity.WARNING
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    [away, *_] = findings("s3://bucket/below")
    assert away.severity is CheckSeverity.WARNING
    assert away.where == "step rows: files at s3://bucket/below"
