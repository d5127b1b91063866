"""Topics of a trial on real brokers, without Spark: what is written is read once, whoever dies."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rekindle_chaos import trial_generator, trial_inputs, trial_topics, trials
from rekindle_chaos.trial_brokers import BROKERS, START_SECONDS_MAX, TrialBrokers
from rekindle_chaos.trial_topics import TopicProducer
from rekindle_local import kafka_broker, process_sets
from rekindle_local.demo import topic_witness

LIMIT_SECONDS = 240.0
ROWS, SECONDS = 4_000, 20.0


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[TrialBrokers]:
    with TrialBrokers(tmp_path / "brokers") as found:
        yield found


# Brokers start twice, and two things are waited for.
@pytest.mark.timeout(2 * (START_SECONDS_MAX + LIMIT_SECONDS))
def test_rows_are_in_their_topic_once_though_one_broker_dies_and_another_stands_still(
    brokers: TrialBrokers, tmp_path: Path
) -> None:
    source = trials.TrialSource("s", ROWS, 5, 1, topic=3)
    trial = msgspec.structs.replace(
        trial_generator.draw(1), seconds=SECONDS, steps=(source,), faults=()
    )
    trial_inputs.write(trial, tmp_path / "input")
    kafka_broker.make_topics(brokers.servers, {"s": 3}, BROKERS)
    assert process_sets.await_condition(brokers.is_whole, limit_seconds=LIMIT_SECONDS)
    producer = TopicProducer(trial, tmp_path / "input", brokers.servers)
    producer.start()
    try:
        brokers.kill(0)
        assert not brokers.is_whole()
        brokers.start_again(0)
        brokers.stop(1)
        assert not brokers.is_whole()
        brokers.proceed(1)
        assert process_sets.await_condition(lambda: producer.is_done, limit_seconds=LIMIT_SECONDS)
        producer.check()
    finally:
        producer.close()
    wanted = [*trial_topics._values(tmp_path / "input", source)]
    for number in range(3):
        assert topic_witness.read(brokers.servers, "s", number) == wanted[number::3]
