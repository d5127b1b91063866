"""A web server's log: failures, the busiest pages, and visits.

The log is replayed as if its requests came now. Each sink is a query. After a failure the queries
with the highest priorities come back first.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline import Pipeline, count, largest
from rekindle_spark.pipeline.replay import Replay

LOG = Path(__file__).parent / "data" / "requests.parquet"
VISIT = pa.schema([("client", pa.string()), ("time", pa.timestamp("us")), ("number", pa.int64())])
VISIT_ENDS_SECONDS = 30 * 60


class Visits(StatefulOperator):
    """Emits a row when a client comes back after half an hour, or comes for the first time."""

    # The value that is kept for each client: when it was last seen, and how often it has come.
    value_schema = pa.schema([("last", pa.timestamp("us")), ("number", pa.int64())])

    def handle(self, key, rows, value):
        """Take a client's next requests, in the order of their times."""
        last, number = value.get() or (None, 0)
        for row in rows:
            if last is None or (row["time"] - last).total_seconds() > VISIT_ENDS_SECONDS:
                number += 1
                yield {"client": key[0], "time": row["time"], "number": number}
            last = row["time"]
        value.update((last, number))


def failed(requests: pa.Table) -> pa.Array:
    """Say which requests failed. Functions take and return whole tables, as Arrow has them."""
    return pc.greater_equal(requests["status"], 500)


def in_seconds(pages: pa.Table) -> pa.Table:
    """Give the slowest request in seconds, in the place of milliseconds."""
    place = pages.column_names.index("slowest")
    return pages.set_column(place, "slowest", pc.divide(pages["slowest"], 1000.0))


def pipeline() -> Pipeline:
    """Make the pipeline: sources, steps with names, sinks."""
    built = Pipeline("web-log")
    requests = built.source("requests", Replay(LOG, event_time="time"), parallelism=2)

    failures = requests.filter("failed", failed).window(
        "failures-by-page",
        keys=["path"],
        size_seconds=60,
        aggregates={"failures": count(), "slowest": largest("milliseconds")},
        parallelism=2,
    )
    failures.map("in-seconds", in_seconds, schema=failures.schema).sink("failures", priority=10)

    pages = requests.window(
        "pages", keys=["path"], size_seconds=600, aggregates={"requests": count()}, parallelism=2
    )
    pages.top("busiest", by="requests", count=3, ties=["path"]).sink("busiest-pages", priority=5)

    requests.stateful(
        "visits-by-client", Visits(), keys=["client"], schema=VISIT, parallelism=2
    ).sink("visits", priority=2)
    return built
