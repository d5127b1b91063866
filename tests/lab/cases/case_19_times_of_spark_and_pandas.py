"""Case 19: event times as duckdb, pandas and Spark (INT96) write them; each file is a source."""

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import verdicts

from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline

FILES = ("duckdb", "pandas", "utc", "int96", "ms")


def write() -> None:
    times = pd.date_range("2024-01-01", periods=10, freq="s")
    frame = pd.DataFrame({"v": range(10), "t": times})
    frame.to_parquet("pandas.parquet")
    utc = frame.t.dt.tz_localize("UTC").astype("datetime64[us, UTC]")
    frame.assign(t=utc).to_parquet("utc.parquet")
    table = pa.table({"t": verdicts.times(10)})
    pq.write_table(table, "int96.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"t": verdicts.times(10, unit="ms")}), "ms.parquet")
    duckdb.sql("copy (select t::timestamp as t from 'pandas.parquet') to 'duckdb.parquet'")


def accept(file: str) -> None:
    Pipeline("p").source("rows", Replay(f"{file}.parquet", event_time="t"))


def main() -> None:
    write()
    refused = []
    for file in FILES:
        _, error = verdicts.attempt(lambda file=file: accept(file))
        kind = pq.ParquetFile(f"{file}.parquet").schema_arrow.field("t").type
        print(f"{file} ({kind}): {verdicts.worded(error) if error else 'accepted'}")
        if error:
            refused.append(file)
    verdicts.end(not refused, "microseconds are made of them on reading")


if __name__ == "__main__":
    main()
