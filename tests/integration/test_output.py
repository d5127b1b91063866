"""Output of a real run: followed while nodes are lost, and read as the check has it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from application import Application, compare
from surroundings import PLACE, Surroundings

import rekindle
from rekindle.protocol import tree
from rekindle_local import processes, stored

Prepare = Callable[..., Application]
QUERY = "rises"
MOMENT = "%Y-%m-%dT%H:%M:%S%.f"


@contextmanager
def followed(application: Application, query: str, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`rekindle output --follow` writes a query's rows to a file, until it is interrupted."""
    command = [sys.executable, "-m", "rekindle_cli", "output", str(application.store), query]
    errors = file.with_suffix(".errors")
    with file.open("wb") as output, errors.open("wb") as trouble:
        running = subprocess.Popen(
            [*command, "--follow", "--format", "json"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=output,
            stderr=trouble,
        )
    try:
        yield running
        assert running.poll() is None, errors.read_text()
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130
        assert errors.read_text() == ""
    finally:
        running.kill()
        running.wait()


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def test_output_is_followed_while_nodes_are_lost_and_is_what_the_check_has(
    prepare: Prepare, tmp_path: Path
) -> None:
    application, file = prepare(), tmp_path / "rows.json"
    application.start_and_recover()
    with followed(application, QUERY, file):
        application.await_condition("rows", lambda: lines(file) > 100)
        begin = application.seen
        victim = application.cluster.nodes[0].name
        application.cluster.kill([victim])
        application.await_event("confirmed", after=begin, node=victim)
        application.cluster.start_worker(victim)
        application.await_event("recovered", after=begin)
        application.finish()
        wanted = application.outputs()
        rows = wanted[QUERY].height
        assert processes.await_condition(lambda: lines(file) >= rows, limit_seconds=60.0)
    found = pl.read_ndjson(file).with_columns(
        pl.col("event_time").str.to_datetime(MOMENT, time_unit="us")
    )
    compare(QUERY, found, wanted[QUERY])
    for query, rows_of_query in wanted.items():
        output = rekindle.read(application.store, query)
        compare(query, output.polars(), rows_of_query)
        assert sum(file.rows for file in output.files()) == rows_of_query.height
    counted = [Path(file.path) for file in rekindle.committed_files(application.store)]
    records = stored.commits(application.store)
    assert len(counted) == len(set(counted)) == sum(len(record["outputs"]) for record in records)
    assert all(path.is_file() for path in counted)


def test_a_fresh_store_under_an_old_name_is_refused_until_the_name_is_reset(
    surroundings: Surroundings,
) -> None:
    older = surroundings.make()
    older.start_and_recover()
    older.come_to_an_end()
    assert processes.await_condition(
        lambda: surroundings.record(tree.HEARTBEAT) is None, limit_seconds=60.0
    )
    fresh = surroundings.begin_anew()
    fresh.start()
    assert fresh.await_end() == 1
    assert fresh.last_words() == (
        "application test/readings: has another checkpoint store, with a history up to "
        "generation 1; name that store, give another name, or start over with `rekindle reset "
        "test/readings`, which forgets that history"
    )
    assert not fresh.happened("cut")
    assert fresh.control is not None
    command = [sys.executable, "-m", "rekindle_cli", "reset", str(PLACE), "--yes"]
    hosts = ("--zookeeper", fresh.control.zookeeper.connect_string)
    subprocess.run([*command, *hosts], check=True, timeout=120)
    fresh.start_and_recover()
    fresh.finish()
    assert surroundings.standing().generation == 2
