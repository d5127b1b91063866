"""From Kafka to Kafka: the topics have each committed row once, whoever dies on the way."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import broker
import polars as pl
import pytest
import relayed
import streamed
from application import Application, compare
from broker import Broker
from harms import lose, meet, node_of

Prepare = Callable[..., Application]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Broker]:
    """A broker with the topics."""
    started = Broker(folder=tmp_path / "broker", jars=broker.jars())
    try:
        started.start()
        started.make_topic(streamed.TOPIC, streamed.PARTITIONS)
        for topic, partitions in relayed.TOPICS.items():
            started.make_topic(topic, partitions)
        yield started
    finally:
        started.close()


def test_topics_have_what_is_committed_exactly_once_whatever_dies(
    prepare: Prepare, kafka: Broker, tmp_path: Path
) -> None:
    inputs = tmp_path / "topic"
    inputs.mkdir()
    (inputs / relayed.SERVERS).write_text(kafka.servers)
    streamed.produce(kafka, range(60))
    application = prepare(pipeline=relayed)
    application.inputs = inputs
    application.start_and_recover()

    def a_node_is_lost(application: Application) -> None:
        begin = lose(application, [victim := node_of(application, "by-minute")])
        streamed.produce(kafka, range(60, 130))
        application.await_event("recovered", after=begin)
        application.cluster.start_worker(victim)
        await_all(application, kafka)

    def the_driver_dies_twice(application: Application) -> None:
        for seconds in (range(130, 190), range(190, 250)):
            streamed.produce(kafka, seconds)
            application.driver.kill()
            application.start_and_recover()
        await_all(application, kafka)

    def the_broker_dies_and_comes_back(application: Application) -> None:
        begin = application.seen
        kafka.await_settled()
        kafka.kill()
        application.await_event("source-away", after=begin, source="orders")
        kafka.start()
        streamed.produce(kafka, range(250, 310))
        application.await_event("source-back", after=begin, source="orders")
        await_all(application, kafka)
        assert not application.happened("incident-opened", after=begin)

    # a pipeline with uncertain steps moves nothing, so a node that is back may have no partition
    meet(
        application,
        a_node_is_lost,
        the_driver_dies_twice,
        the_broker_dies_and_comes_back,
        spread=False,
    )
    streamed.produce(kafka, range(310, 330))
    application.drain()
    application.driver.request_finish()
    assert application.await_end() == 0, application.tail()
    wanted, committed = streamed.expected(kafka), application.outputs()
    found = {topic: in_topic(kafka, topic) for topic in relayed.TOPICS}
    compare("rows", found["rows"], wanted["rows"])
    compare("windows", found["windows"], wanted["windows"])
    compare("drawn", found["drawn"], committed["drawn"])
    compare("drawn", found["drawn"].drop("drawn"), wanted["rows"])
    assert_in_order(relayed.read(kafka, "rows"))
    places = {(key, at) for at, key, _ in relayed.read(kafka, "windows")}
    assert len(places) == len({key for key, _ in places}), "a key is in one partition"


def in_topic(kafka: Broker, topic: str) -> pl.DataFrame:
    """The records of a topic as rows, with times as times."""
    rows = pl.DataFrame([value for _, _, value in relayed.read(kafka, topic)])
    times = [name for name in ("at", "window_start", "window_end") if name in rows.columns]
    return rows.with_columns(pl.col(name).str.to_datetime(time_unit="us") for name in times)


def await_all(application: Application, kafka: Broker) -> None:
    """Wait until all records that are in the topic now have come out of the other end."""
    wanted = sum(value.startswith(b"{") for _, _, value in streamed.records(kafka))
    application.await_condition(
        f"{wanted} records of each",
        lambda: all(len(relayed.read(kafka, topic)) == wanted for topic in ("rows", "drawn")),
    )


def assert_in_order(records: list[tuple[int, bytes | None, dict[str, Any]]]) -> None:
    """Records of one partition that came from one partition of the source are in its order."""
    last: dict[tuple[int, int], int] = {}
    for at, _, value in records:
        place = (at, value["kafka_partition"])
        assert value["kafka_offset"] > last.get(place, -1)
        last[place] = value["kafka_offset"]
