"""A checkpoint store on S3: a real server of its protocol, which is killed now and then."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from application import LASTING, Application, compare
from file_stories import (
    STORIES,
    Story,
    a_checkpoint_that_comes_after_a_newer_driver_has_started_does_not_count,
    a_newer_driver_fences_an_older_one,
    late_removals_of_a_fenced_driver_remove_nothing_that_counts,
    output_is_read_as_it_was_committed,
)
from object_server import BUCKET, LosesFirstAnswer, ObjectServer, set_environment

import rekindle
from rekindle.model.errors import InputError
from rekindle_spark.store.store_retry import StoreRetry
from rekindle_store import store_files
from rekindle_store.object_files import ObjectFiles
from rekindle_store.store_files import Files

Prepare = Callable[..., Application]

NUMBERS = itertools.count(1)


def fresh() -> str:
    """The place of a store that nobody has used: what is known of one is kept for a process."""
    return f"s3://{BUCKET}/store-{next(NUMBERS)}"


@pytest.fixture
def store(server: ObjectServer) -> Files:  # noqa: ARG001
    return ObjectFiles(fresh())


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_on_a_server(story: Story, store: Files) -> None:
    story(store)


def test_a_record_whose_answer_got_lost_is_made_once_and_counts(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, way = fresh(), LosesFirstAnswer(server.port)
    straight = ObjectFiles(place)
    set_environment(monkeypatch, server.environment(way.port))
    store = ObjectFiles(place)
    StoreRetry(60.0).through(lambda: store.create("commits/1.json", b"mine"))
    assert way.lost == 1
    assert straight.read("commits/1.json") == b"mine"
    with pytest.raises(FileExistsError):
        straight.create("commits/1.json", b"yours")


def test_a_newer_driver_fences_an_older_one(server: ObjectServer) -> None:  # noqa: ARG001
    a_newer_driver_fences_an_older_one(fresh())


@pytest.mark.usefixtures("server")
def test_a_late_checkpoint_of_an_older_driver_does_not_count() -> None:
    a_checkpoint_that_comes_after_a_newer_driver_has_started_does_not_count(fresh())


@pytest.mark.usefixtures("server")
def test_late_removals_of_a_fenced_driver_remove_nothing_that_counts() -> None:
    late_removals_of_a_fenced_driver_remove_nothing_that_counts(fresh())


@pytest.mark.usefixtures("server")
def test_output_on_a_server_is_read_as_it_was_committed() -> None:
    output_is_read_as_it_was_committed(fresh())


@pytest.mark.usefixtures("server")
def test_a_reader_is_told_of_a_bucket_that_is_not_there_and_of_wrong_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InputError, match=r"cannot be read \(The specified bucket does not exist"):
        rekindle.read("s3://nobody/reader", "hourly")  # a place is one server's in a process
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(InputError, match=r"cannot be read .*; see that it is there, and AWS_A"):
        rekindle.read(fresh(), "hourly")


def test_a_server_that_is_away_is_neither_an_absent_file_nor_an_empty_store(
    server: ObjectServer, store: Files
) -> None:
    server.kill()
    attempts = (
        lambda: store.create("commits/1.json", b"one"),
        lambda: store.put({"commits/1.json": b"one"}),
        lambda: store.read("commits/1.json"),
        lambda: store.names("commits"),
        lambda: store.remove(["commits/1.json"]),
    )
    for attempt in attempts:
        with pytest.raises(OSError, match="error sending request") as error:
            attempt()
        assert not isinstance(error.value, FileNotFoundError | FileExistsError)


def test_a_bucket_that_is_not_there_is_not_taken_for_an_empty_store(
    server: ObjectServer,  # noqa: ARG001
) -> None:
    store = ObjectFiles("s3://nobody/store")
    attempts = (
        lambda: store.read("commits/1.json"),
        lambda: store.names("commits"),
        lambda: store.create("commits/1.json", b"one"),
    )
    for attempt in attempts:
        with pytest.raises(OSError, match="bucket does not exist") as error:
            attempt()
        assert not isinstance(error.value, FileNotFoundError)


def refused(tmp_path: Path, place: str) -> str:
    """What `rekindle run` says of a place that will not do. Not in this process, which has used
    clients with threads and cannot fork any more."""
    pipeline = tmp_path / "pipeline.py"
    pipeline.write_text(
        "from rekindle_spark.pipeline.steps import Pipeline\ndef pipeline(): return Pipeline('p')"
    )
    line = ["run", str(pipeline), "--store", place, "--master", "spark://127.0.0.1:9"]
    command = [sys.executable, "-m", "rekindle_cli", *line]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    return ended.stderr


@pytest.mark.usefixtures("server")
def test_a_bucket_that_is_not_there_is_refused_at_the_start(
    tmp_path: Path,
) -> None:
    said = refused(tmp_path, "s3://nobody/store")
    assert said.startswith("checkpoint store s3://nobody/store: cannot be written (The specified")
    assert "see that the bucket is there" in said


@pytest.mark.usefixtures("server")
def test_refused_credentials_are_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    said = refused(tmp_path, fresh())
    assert "cannot be written (The request signature we calculated does not match" in said
    assert "AWS_ACCESS_KEY_ID" in said


def test_a_server_without_conditional_writes_is_refused(server: ObjectServer) -> None:
    server.kill()
    server.start("--nometa")  # this one forgets the condition when it keeps no attributes
    place = fresh()
    with pytest.raises(InputError, match="overwrites what it was told to create only where"):
        store_files.check(place)
    assert list((server.objects / BUCKET).rglob("probe-*")) == []


def test_a_sound_place_is_accepted_and_nothing_is_left_there(server: ObjectServer) -> None:
    store_files.check(fresh())
    assert list((server.objects / BUCKET).rglob("probe-*")) == []


def test_losses_a_killed_driver_and_an_outage_of_the_server_change_no_row(
    prepare: Prepare, server: ObjectServer
) -> None:
    place = fresh()
    kept = server.objects / place.removeprefix("s3://")
    kept.mkdir()
    told = {f"spark.executorEnv.{name}": text for name, text in server.environment().items()}
    application = prepare(spark=told, store_of=kept, runtime=LASTING)
    application.driver.place = place
    application.start_and_recover()

    begin = application.seen
    victims = [node.name for node in application.cluster.nodes][:2]
    application.cluster.kill(victims)
    for victim in victims:
        application.await_event("confirmed", after=begin, node=victim)
    for victim in victims:
        application.cluster.start_worker(victim)
    application.await_event("recovered", after=begin)

    begin = application.seen
    server.kill()
    application.await_event("store-away", after=begin)
    committed = len(application.commits())
    server.start()
    application.await_event("store-back", after=begin)
    application.await_condition("commits", lambda: len(application.commits()) > committed + 2)

    application.await_event("checkpoint", after=begin)
    application.driver.kill()
    begin = application.seen
    application.start()
    application.await_event("recovered", after=begin)
    application.finish()
    assert list(kept.glob("checkpoints/*/*.state"))
    for query, rows in application.outputs().items():
        compare(query, rekindle.read(place, query).polars(), rows)
