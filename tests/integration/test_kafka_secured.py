"""A broker that asks for a password, clocks that are ahead, odd sizes, and a topic that goes."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import broker
import pytest
import secured
from application import LIMIT_SECONDS, Application
from secured_broker import SecuredBroker

from rekindle_local import process_sets
from rekindle_local.demo import topic_witness

Prepare = Callable[..., Application]

PASSWORD, WRONG = "kept-between-us-81264", "said-aloud-39175"
YEAR_2100 = 4_102_444_800
MINUTE = 60
SMALL, LARGE = b"1", b"x" * 10_000_000


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[SecuredBroker]:
    """A broker with the topics."""
    folder = tmp_path / "broker"
    started = SecuredBroker(folder=folder, jars=broker.jars(), password=PASSWORD)
    try:
        started.start()
        make_source(started)
        started.make_topic(secured.VALUES, max_message_bytes=str(secured.LARGE))
        started.make_topic(secured.WINDOWS)
        yield started
    finally:
        started.close()


def make_source(kafka: SecuredBroker) -> None:
    """One that takes records of any time and size."""
    kafka.make_topic(
        secured.TOPIC,
        max_message_bytes=str(secured.LARGE),
        message_timestamp_after_max_ms=str(2**62),
    )


def test_secrets_stay_where_they_are_and_no_clock_makes_others_late(
    prepare: Prepare, kafka: SecuredBroker, tmp_path: Path
) -> None:
    inputs = tmp_path / "topic"
    inputs.mkdir()
    (inputs / secured.SERVERS).write_text(kafka.secured)
    application = prepare(pipeline=secured)
    application.inputs = inputs
    begin = int(time.time()) // MINUTE * MINUTE - 60 * MINUTE

    (inputs / secured.PASSWORD).write_text(WRONG)
    application.start()
    assert application.await_end() == 1, application.tail()
    assert "Kafka refuses" in application.last_words()
    assert "Authentication failed" in application.last_words()

    (inputs / secured.PASSWORD).write_text(f"{PASSWORD}\n")
    produce(kafka, begin, [SMALL, b"", LARGE])
    application.start_and_recover()
    produce(kafka, YEAR_2100, [b"ahead"])
    ahead = application.await_event("rows-ahead", source="orders")
    assert (ahead["source_partition"], ahead["rows"]) == (f"{secured.TOPIC}/0", 1)
    for minute in range(1, 5):
        produce(kafka, begin + minute * MINUTE, [b"on time"] * minute)
        # the epoch before has said what the watermark is: with that of 2100 these would be late
        await_values(application, kafka, 4 + minute * (minute + 1) // 2)

    kafka.delete_topic(secured.TOPIC)
    assert application.await_end() == 1, application.tail()
    said = application.last_words()
    assert f"source partition {secured.TOPIC}/0" in said
    assert "not there any more" in said
    assert 'on_data_loss="skip"' in said

    make_source(kafka)
    (inputs / secured.ON_DATA_LOSS).write_text("skip")
    seen = application.seen
    application.start_and_recover()
    lost = application.await_event("data-lost", after=seen, source="orders")
    assert (lost["partition"], lost["why"]) == (f"{secured.TOPIC}/0", "it was recreated")
    produce(kafka, begin + 5 * MINUTE, [b"again", SMALL])
    await_values(application, kafka, 16)
    application.driver.request_finish()
    assert application.await_end() == 0, application.tail()

    wanted = [SMALL, b"", LARGE, b"ahead", *[b"on time"] * 10, b"again", SMALL]
    assert topic_witness.read(kafka.servers, secured.VALUES, 0) == wanted
    read = topic_witness.read(kafka.servers, secured.WINDOWS, 0)
    windows = sorted(map(json.loads, read), key=lambda one: one["window_start"])
    assert [one["rows"] for one in windows] == [3, 1, 2, 3, 4, 2, 1]
    assert windows[-1]["window_start"].startswith("2100-01-01")
    assert application.happened("finish")[-1]["late_rows"] == {}
    # executors remove files of theirs as they end
    assert process_sets.await_condition(
        lambda: not any(application.executors().values()), limit_seconds=LIMIT_SECONDS
    )
    assert_nowhere(PASSWORD, application)
    assert_nowhere(WRONG, application)


def produce(kafka: SecuredBroker, seconds: int, values: list[bytes]) -> None:
    """Write records whose producers' clock says so many seconds since 1970."""
    kafka.produce(secured.TOPIC, 0, values, timestamp=seconds * 1_000)


def await_values(application: Application, kafka: SecuredBroker, number: int) -> None:
    """Wait until so many values are in the topic of values."""
    application.await_condition(
        f"{number} values",
        lambda: len(topic_witness.read(kafka.servers, secured.VALUES, 0)) == number,
    )


def assert_nowhere(secret: str, application: Application) -> None:
    """No file of the application, and none of the cluster, has it."""
    roots = (application.directory, application.cluster.directory)
    files = [path for root in roots for path in root.rglob("*") if path.is_file()]
    assert application.driver.log in files
    assert application.driver.events in files
    assert any(application.store in path.parents for path in files)
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
