"""The rows of examples/kubernetes/machines.py against a batch computation of its input.

DuckDB computes them, which shares no code with the runtime. `quickstart_scenario` calls
`check_rows`.
"""

from pathlib import Path

from rekindle.model import record_format
from rekindle.model.errors import RunError
from rekindle.verification import batch_check
from rekindle.verification.batch_check import BatchEngine, RowDifferences, literal, quoted, scan
from rekindle_store import output_rows, store_files

KEYS = {"minutes": ("machine", "window_end"), "hottest-machines": ("window_end", "rank")}
READINGS = """
CREATE TEMP TABLE minutes AS
SELECT machine,
       time_bucket(INTERVAL 1 MINUTE, event_time, TIMESTAMP '1970-01-01') AS window_start,
       window_start + INTERVAL 1 MINUTE AS window_end,
       count(*) AS readings, avg(celsius) AS mean, max(celsius) AS peak
FROM read_parquet({file}, file_row_number = true)
WHERE file_row_number < {rows}
GROUP BY machine, window_start
"""
EXPECTED = {
    "minutes": "FROM minutes",
    "hottest-machines": """
SELECT *, row_number() OVER (PARTITION BY window_end ORDER BY peak DESC, machine) AS rank
FROM minutes QUALIFY rank <= 3
""",
}


def check_rows(shared: Path) -> int:
    """How many rows came out, all of them right; `shared` is the volume of a run that has finished.

    Raises `RunError` for a row that is missing, doubled or wrong.
    """
    store, file = shared / "store", shared / "input" / "readings.parquet"
    with BatchEngine() as engine:
        text = READINGS.format(file=literal(str(file)), rows=_rows_read(store))
        engine.ask(text, str(file))
        compared = [_compare(engine, query, store) for query in EXPECTED]
    for found in compared:
        if found.samples or not found.expected:
            raise RunError(
                where=f"the output of {found.query}",
                what=f"has {dict(found.counts)} of {found.expected} rows, such as {found.samples}",
                remedy=f"see commits and outputs in {store}",
            )
    return sum(found.expected for found in compared)


def _rows_read(store: Path) -> int:
    """How many of the readings went into the last epoch and those before."""
    last = max((store / "offsets").glob("*.json"), key=lambda path: int(path.stem))
    offsets = record_format.decode("offsets", last.read_bytes(), str(last))["offsets"]
    return int(offsets["readings"][1])


def _compare(engine: BatchEngine, query: str, store: Path) -> RowDifferences:
    engine.ask(f"CREATE OR REPLACE TEMP TABLE expected AS {EXPECTED[query]}", query)
    stamped = f"*, 0 AS {quoted(batch_check.EPOCH)}, 'any' AS {quoted(batch_check.PARTITION)}"
    engine.ask(
        f"CREATE OR REPLACE TEMP TABLE output AS SELECT {stamped} FROM expected LIMIT 0",
        f"outputs/{query}",
    )
    for source in _committed(store, query):
        engine.ask(f"INSERT INTO output BY NAME SELECT {stamped} FROM {source}", source)
    return batch_check.compare_rows(engine, query, engine.columns("expected", query), KEYS[query])


def _committed(store: Path, query: str) -> list[str]:
    """What commits name, in SQL: what else is there does not count."""
    return [
        scan(str(store / output.name), output.first_row, output.rows)
        for output in output_rows.outputs(store_files.at(store))
        if output.query == query
    ]
