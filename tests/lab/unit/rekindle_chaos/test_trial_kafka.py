"""A trial whose brokers do not answer, or have ended: nobody waits for them longer than needed."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from rekindle.model.errors import RunError
from rekindle_chaos import trial_topics
from rekindle_chaos.trial_brokers import TrialBrokers
from rekindle_chaos.trials import TrialSource
from rekindle_local import kafka_broker
from rekindle_local.daemons import Daemon

NOWHERE = "127.0.0.1:1"


@pytest.mark.timeout(30)
def test_a_producer_whose_queue_is_full_ends_when_it_is_to_end() -> None:
    settings = {"bootstrap.servers": NOWHERE, "log_level": 2, "queue.buffering.max.messages": 1}
    rows = trial_topics._Rows(TrialSource("s", 9, 5, 1, topic=3), iter([b"{}"] * 9))
    ended = threading.Event()
    ended.set()
    rows.write(Producer(settings), 1.0, ended)
    assert not rows.is_written


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrialBrokers]:
    """Three, of which the second has ended with exit code 0."""
    monkeypatch.setattr(kafka_broker, "find_jars", lambda: tmp_path)
    found = TrialBrokers(tmp_path)
    leaders = [
        subprocess.Popen(command, stdin=subprocess.PIPE) for command in ("cat", "true", "cat")
    ]
    leaders[1].wait()
    found._daemons = [Daemon(f"b{at}", tmp_path, None, one) for at, one in enumerate(leaders)]
    yield found
    for leader in leaders:
        leader.communicate()


@pytest.mark.timeout(30)
def test_a_broker_that_ends_by_itself_is_not_waited_for(brokers: TrialBrokers) -> None:
    with pytest.raises(RunError, match="do not come up") as raised:
        brokers._await(lambda: False, "do not come up")
    assert raised.value.remedy.endswith("b1-0.log")


def test_a_broker_that_was_killed_meanwhile_is_waited_for(brokers: TrialBrokers) -> None:
    brokers._killed.add(1)
    answers = iter([False, True])
    brokers._await(lambda: next(answers), "do not come up")
