"""Whether every row of a soak is right: what counts in its store beside the answers of DuckDB.

The input is a file that is replayed lap after lap, and the newest record of the offset log says how
far. Nothing of the runtime is imported here.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rekindle.model.errors import RunError
from rekindle.verification import batch_check
from rekindle.verification.batch_check import BatchEngine, literal, quoted, scan
from rekindle_local import stored_records

DAY = 86_400_000_000
ANSWERS = {
    "late-by-day": "FROM days",
    "latest-carriers": "SELECT *, row_number() OVER "
    "(PARTITION BY window_end ORDER BY minutes DESC, carrier) AS rank FROM days QUALIFY rank <= 3",
}


def count_bad(store: Path, source: Path, lap_seconds: float) -> Mapping[str, int]:
    """The numbers of rows that are expected, missing, duplicated and wrong, of all queries of a
    soak that has come to its end. Raises RunError where no input was read."""
    newest = stored_records.newest_cut(store)
    if newest is None:
        raise RunError(where=str(store), what="has no epoch", remedy="see the driver's log")
    ((_, end),) = newest["offsets"].values()
    found = dict.fromkeys(("expected", *batch_check.KINDS), 0)
    with BatchEngine() as engine:
        _create_days(engine, source, lap_seconds, end)
        for query, answer in ANSWERS.items():
            engine.ask(f"CREATE OR REPLACE TEMP VIEW expected AS {answer}", query)
            columns = engine.columns("expected", query)
            _read_output(engine, store, query, list(columns))
            judged = batch_check.compare_rows(engine, query, columns, ())
            found["expected"] += judged.expected
            for kind, number in judged.counts.items():
                found[kind] += number
    return found


def _create_days(engine: BatchEngine, source: Path, lap_seconds: float, end: int) -> None:
    """Make the table of delays by carrier and day, of the first rows of all laps."""
    read = f"read_parquet({literal(str(source))}, file_row_number = true)"
    lap = int(lap_seconds * 1e6)
    number = engine.number(f"SELECT count(*) FROM {read}", "input")
    time = f"(epoch_us(event_time) + lap * {lap})"
    engine.ask(
        "CREATE TABLE days AS SELECT carrier, "
        f"make_timestamp({time} - {time} % {DAY}) AS window_start, "
        f"make_timestamp({time} - {time} % {DAY} + {DAY}) AS window_end, "
        "count(*) AS flights, sum(dep_delay)::BIGINT AS minutes "
        f"FROM {read}, (SELECT unnest(range({end // number + 1})) AS lap) "
        f"WHERE lap * {number} + file_row_number < {end} AND dep_delay > 15 "
        f"GROUP BY carrier, {time} - {time} % {DAY}",
        "input",
    )


def _read_output(engine: BatchEngine, store: Path, query: str, columns: list[str]) -> None:
    """Make the table `output` of what commit records name, as often as they do."""
    names = ", ".join(map(quoted, columns))
    engine.ask(
        f"CREATE OR REPLACE TEMP TABLE output AS SELECT {names}, "
        f"0 AS {quoted(batch_check.EPOCH)}, "
        f"'' AS {quoted(batch_check.PARTITION)} FROM expected LIMIT 0",
        query,
    )
    for name, first, rows_of_it in _parts(store, query):
        source = scan(str(store / name), first, rows_of_it)
        engine.ask(f"INSERT INTO output SELECT {names}, 0, '' FROM {source}", name)


def _parts(store: Path, query: str) -> Iterator[tuple[str, int | None, int]]:
    """Files with output, and from which row on how many. Parts of a file that follow each other are
    one: each look at a large file takes time."""
    part: tuple[str, int | None, int] | None = None
    for output in stored_records.outputs(store):
        if output.query != query:
            continue
        if part is not None:
            name, first, number = part
            if first is not None and (output.name, output.first_row) == (name, first + number):
                part = (name, first, number + output.rows)
                continue
            yield part
        part = (output.name, output.first_row, output.rows)
    if part is not None:
        yield part
