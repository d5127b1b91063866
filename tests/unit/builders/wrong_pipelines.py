"""Pipeline files over three rows, most of them wrong, for the tests of bad input."""

import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

NOBODY = "spark://127.0.0.1:9"
HEAD = """
import pyarrow as pa, pyarrow.compute as pc
from rekindle_spark.pipeline.steps import Pipeline, Step, Stream, count, total
from rekindle_spark.pipeline.replay import Replay

def pipeline():
    built = Pipeline("readings")
    readings = built.source("readings", Replay("{file}", "event_time"))
"""
GOOD = 'readings.filter("all", lambda table: pc.is_valid(table["value"])).sink("every-row")'


def write(path: Path, times: list[int | None], kind: pa.DataType | None = None) -> None:
    kind = kind or pa.timestamp("us")
    columns = {"event_time": pa.array(times, kind), "value": pa.array(range(len(times)))}
    pq.write_table(pa.table(columns), path)


def write_pipeline(file: Path, body: str, head: str = HEAD) -> Path:
    path = file.parent / "wrong.py"
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    path.write_text(head.format(file=file) + lines + "\n    return built\n")
    return path
