"""From Kafka through a window to Parquet: exactly the topic's committed records, whatever dies."""

from collections.abc import Callable, Iterator
from pathlib import Path

import broker
import pytest
import streamed
from application import Application, compare
from broker import Broker
from harms import lose, meet, node_of

Prepare = Callable[..., Application]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Broker]:
    """A broker with the topic."""
    started = Broker(folder=tmp_path / "broker", jars=broker.jars())
    try:
        started.start()
        started.make_topic(streamed.TOPIC, streamed.PARTITIONS)
        yield started
    finally:
        started.close()


def test_a_topics_records_come_out_exactly_once_through_losses_and_a_dead_broker(
    prepare: Prepare, kafka: Broker, tmp_path: Path
) -> None:
    inputs = tmp_path / "topic"
    inputs.mkdir()
    (inputs / streamed.SERVERS).write_text(kafka.servers)
    streamed.produce(kafka, range(60))
    application = prepare(pipeline=streamed)
    application.inputs = inputs
    application.start_and_recover()

    def a_node_is_lost(application: Application) -> None:
        begin = lose(application, [victim := node_of(application, "orders")])
        streamed.produce(kafka, range(60, 130))
        application.await_event("recovered", after=begin)
        application.cluster.start_worker(victim)
        await_all(application, kafka)

    def the_broker_dies_and_comes_back(application: Application) -> None:
        begin = application.seen
        kafka.kill()
        application.await_event("source-away", after=begin, source="orders")
        kafka.start()
        streamed.produce(kafka, range(130, 200))
        application.await_event("source-back", after=begin, source="orders")
        await_all(application, kafka)
        assert not application.happened("incident-opened", after=begin)

    def partitions_are_added_while_a_node_is_lost(application: Application) -> None:
        begin = lose(application, [victim := node_of(application, "by-minute")])
        kafka.add_partitions(streamed.TOPIC, streamed.PARTITIONS + 1)
        streamed.produce(kafka, range(200, 260), streamed.PARTITIONS + 1)
        application.await_event("recovered", after=begin)
        application.cluster.start_worker(victim)
        await_all(application, kafka)

    def partitions_are_added_while_no_driver_runs(application: Application) -> None:
        streamed.produce(kafka, range(260, 290), streamed.PARTITIONS + 1)
        application.driver.kill()
        kafka.add_partitions(streamed.TOPIC, streamed.PARTITIONS + 2)
        streamed.produce(kafka, range(290, 320), streamed.PARTITIONS + 2)
        application.start_and_recover()
        await_all(application, kafka)

    meet(
        application,
        a_node_is_lost,
        the_broker_dies_and_comes_back,
        partitions_are_added_while_a_node_is_lost,
        partitions_are_added_while_no_driver_runs,
    )
    streamed.produce(kafka, range(320, 330), streamed.PARTITIONS + 2)
    application.drain()
    application.driver.request_finish()
    assert application.await_end() == 0, application.tail()
    assert_exactly_right(application, kafka)


def assert_exactly_right(application: Application, kafka: Broker) -> None:
    """All committed rows are those of the topic's records, and what is no JSON is kept beside."""
    wanted, committed = streamed.expected(kafka), application.outputs()
    letters = committed["orders.dead-letters"]
    committed["orders.dead-letters"] = letters.select(
        "kafka_partition", "kafka_offset", "kafka_value"
    )
    assert set(committed) == set(wanted)
    for query, rows in wanted.items():
        compare(query, committed[query], rows)
    assert set(letters["dead_letter_error"]) == {"is no JSON object"}


def await_all(application: Application, kafka: Broker) -> None:
    """Wait until all records that are in the topic now are committed output."""
    wanted = sum(value.startswith(b"{") for _, _, value in streamed.records(kafka))
    application.await_condition(
        f"{wanted} rows",
        lambda: "rows" in (found := application.outputs()) and found["rows"].height == wanted,
    )
