"""The input of the demo: a replay of which the driver knows all, or topics of Kafka.

    KafkaStreams: broker ──► topics ──► producer writes ──► ended ──► all of it is in an epoch

Topics are read and written by the driver and its executors; the producer is a process of its own.
Called by `demo_run` and `demo_scenario`.
"""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from rekindle.model.errors import RunError
from rekindle_local import kafka_broker, process_sets, stored_records
from rekindle_local.daemons import Daemon, DaemonGroup, end_daemons
from rekindle_local.demo.topic_producer import STOP, WRITTEN
from rekindle_local.kafka_broker import KafkaBroker
from rekindle_local.process_reaper import ProcessReaper

REPLAY, KAFKA = "replay", "kafka"
END_SECONDS_MAX = 90.0


class DemoInput(Protocol):
    """What a scenario asks of its input."""

    def begin(self) -> None:
        """Rows come from now on."""

    def end(self) -> None:
        """No more rows come."""

    def is_read(self, store: Path) -> bool:
        """Whether all rows are in an epoch, after `end`."""


class ReplayedInput:
    """Files that the driver replays until it is asked to finish."""

    def begin(self) -> None:
        """The driver begins by itself."""

    def end(self) -> None:
        """The driver ends the replay with its last epoch."""

    def is_read(self, store: Path) -> bool:
        """It is by definition."""
        del store
        return True


class KafkaStreams(DaemonGroup):
    """A context manager: inside, a broker serves with the topics of the demo.

    `directory` takes its data and logs, `inputs` has the flights. `written` are the rows of each
    source, once the input has ended.
    """

    def __init__(
        self, directory: Path, inputs: Path, topics: Mapping[str, int], rows_per_second: float
    ) -> None:
        self.written: dict[str, int] = {}
        self._folder = directory / "producer"
        self._topics = topics
        self._broker = KafkaBroker(directory=directory / "broker", jars=kafka_broker.find_jars())
        self._inputs, self._rows_per_second = inputs.absolute(), rows_per_second
        self._producer = Daemon("producer", self._folder, None)
        self._watcher: ProcessReaper | None = None
        self._stack = ExitStack()

    @property
    def servers(self) -> str:
        """HOST:PORT of the broker."""
        return self._broker.servers

    def start(self) -> None:
        """Start the broker and make the topics. Raises as KafkaBroker does."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(self._broker)
        try:
            self._broker.make_topics(self._topics)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End producer and broker."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            end_daemons([self._producer], watcher)
            watcher.close()
        self._stack.close()

    def begin(self) -> None:
        """Start the producer."""
        self._watcher = ProcessReaper((), self._folder / "watcher.log")
        module = "rekindle_local.demo.topic_producer"
        folders = (str(self._folder.absolute()), str(self._inputs))
        rate = str(self._rows_per_second)
        command = [sys.executable, "-m", module, *folders, self.servers, rate]
        self._producer.launch(command, os.environ, self._watcher)

    def end(self) -> None:
        """Have the producer end, and wait until the broker has all its rows.

        Raises RunError where it has failed.
        """
        leader = self._producer.leader
        assert leader is not None
        (self._folder / STOP).touch()
        process_sets.await_condition(
            lambda: leader.poll() is not None, limit_seconds=END_SECONDS_MAX
        )
        if leader.poll() != 0:
            raise RunError(
                where="the producer of the flights",
                what=f"ended with exit code {leader.poll()}",
                remedy=f"read {self._producer.log}",
            )
        self.written = json.loads((self._folder / WRITTEN).read_text())

    def is_read(self, store: Path) -> bool:
        """Whether the newest epoch that was cut has the last of the rows."""
        cut = stored_records.newest_cut(store)
        if cut is None:
            return False
        ends = {
            name: sum(one["end"] for one in stream["partitions"])
            for name, stream in cut["streams"].items()
        }
        return ends == self.written
