"""A store that takes and gives a state for far longer than nothing may be done for a job.

Bytes that move are what counts: the state is written, and loaded once, however often the job is
issued again. Where nothing comes, the run ends with who waits for what.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import bulky
import loud_skips
import pytest
from application import Application, Event
from harms import all_nodes, lose, neighbours, node_of, start_workers
from object_server import BUCKET, LOUD, ObjectServer, SlowWay, set_environment

from testbed.test_programs import VERSITYGW

Prepare = Callable[..., Application]

NUMBERS = itertools.count(1)
# A file is on its way over four connections, of which each carries so much. So the state takes
# 30 s, far longer than nothing may be done, and a piece of it 10 s.
BYTES_PER_SECOND, CONNECTIONS = 500_000, 4
IDLE_SECONDS = 18
RUNTIME = {
    "rows_per_second": 20,
    "epoch_seconds": 5.0,  # each writes all of the state anew, in memory
    "idle_seconds_max": IDLE_SECONDS,
    "host_memory_mib_max": 2_048,
}
POLICY = {"uneven_seconds": 3_600}
SAID = "has neither loaded, written nor finished anything for "


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectServer]:
    server = ObjectServer(
        program=loud_skips.programs(request, LOUD)[VERSITYGW], folder=tmp_path / "server"
    )
    server.start()
    yield server
    server.close()


@pytest.fixture
def way(server: ObjectServer) -> SlowWay:
    return SlowWay(server.port)


@pytest.fixture
def application(
    prepare: Prepare, server: ObjectServer, way: SlowWay, monkeypatch: pytest.MonkeyPatch
) -> Application:
    """It runs, and its state has come to its full size, on a store that is not slow yet."""
    place = f"s3://{BUCKET}/slow-{next(NUMBERS)}"
    kept = server.objects / place.removeprefix("s3://")
    kept.mkdir()
    told = server.environment(way.port)
    set_environment(monkeypatch, told)
    spark = {f"spark.executorEnv.{name}": text for name, text in told.items()}
    made = prepare(pipeline=bulky, spark=spark, store_of=kept, runtime=RUNTIME, policy=POLICY)
    made.driver.place = place
    made.start_and_recover()
    made.await_condition("the whole state", lambda: largest_file(made) >= bulky.STATE_BYTES)
    return made


def largest_file(application: Application) -> int:
    """Bytes of the largest state that lies in the store."""
    sizes = [0]
    for path in application.store.glob("checkpoints/*/bulk-0.state"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # another checkpoint has taken its place
            continue
    return max(sizes)


def assert_nothing_was_given_up(application: Application, begin: int) -> None:
    assert not application.happened("checkpoint-failed", after=begin)
    assert not given_up(application, begin)


def given_up(application: Application, begin: int) -> list[Event]:
    """Jobs for which nothing had been done."""
    failed = application.happened("job-failed", after=begin)
    return [event for event in failed if SAID in event["text"]]


def test_a_large_state_is_written_to_a_slow_store_and_loaded_from_it_once(
    application: Application, way: SlowWay
) -> None:
    assert bulky.STATE_BYTES / (CONNECTIONS * BYTES_PER_SECOND) >= 1.5 * IDLE_SECONDS
    begin = application.seen
    way.bytes_per_second = BYTES_PER_SECOND
    application.await_condition(
        "two checkpoints", lambda: len(application.happened("checkpoint", after=begin)) >= 2
    )
    assert_nothing_was_given_up(application, begin)

    first = node_of(application, "bulk")
    way.state_bytes = 0
    begin = lose(application, [first])
    application.await_condition("the state is coming", lambda: way.state_bytes > 1 << 20)
    # its job is given up at another loss, and the one that is issued again finds it on its way
    loading = node_of(application, "bulk")
    (second,) = set(all_nodes(application)) - {first, loading}
    lose(application, [second])
    assert way.state_bytes < bulky.STATE_BYTES
    start_workers(application, first, second, after=begin)
    application.await_event("recovered", after=begin)
    assert node_of(application, "bulk") == loading
    assert bulky.STATE_BYTES <= way.state_bytes < 1.8 * bulky.STATE_BYTES
    assert_nothing_was_given_up(application, begin)
    way.bytes_per_second = None
    application.finish()


def test_a_load_that_does_nothing_ends_the_run_with_who_waits_for_what(
    application: Application, way: SlowWay
) -> None:
    victim = node_of(application, "bulk")
    way.holds_states = True
    begin = lose(application, [victim])
    assert application.await_end() == 1
    words = application.last_words()
    assert SAID in words, application.tail()
    assert any(f" on {node} " in words for node in neighbours(application, victim))
    assert "; last: loading checkpoints/" in words
    assert "bulk-0.state" in words
    assert len(given_up(application, begin)) == 2
    way.holds_states = False
    application.cluster.start_worker(victim)
    application.start_and_recover()
    application.finish()
