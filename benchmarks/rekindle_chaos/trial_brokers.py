"""Three brokers of Kafka for one trial, each of which is killed, or stands still, and is back.

A topic's records are on all three, and what is acknowledged on two at least, so one of them may be
lost at any moment. A second one is harmed once the first has caught up (`is_whole`).
"""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rekindle.model.errors import RunError
from rekindle_local import kafka_broker, process_sets
from rekindle_local.daemons import Daemon, DaemonGroup, end_daemons
from rekindle_local.kafka_broker import HOST, BrokerPorts
from rekindle_local.port_reservation import hold_port
from rekindle_local.process_reaper import ProcessReaper
from rekindle_spark.connectors import kafka_options

BROKERS = 3
START_SECONDS_MAX = 300.0
ASK_SECONDS_MAX, RETRY_SECONDS = 5.0, 0.2


class TrialBrokers(DaemonGroup):
    """A context manager: inside, the brokers serve; `directory` takes their data and logs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._jars = kafka_broker.find_jars()
        self._held = ExitStack()
        self._ports: list[BrokerPorts] = []
        self._daemons: list[Daemon] = []
        self._stopped: set[int] = set()
        self._killed: set[int] = set()
        self._watcher: ProcessReaper | None = None

    @property
    def servers(self) -> str:
        """As clients want it."""
        return ",".join(f"{HOST}:{one.clients}" for one in self._ports)

    def start(self) -> None:
        """Start all, and wait until they answer. Raises as KafkaBroker does."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._watcher = ProcessReaper((), self._directory / "watcher.log")
        self._ports = [BrokerPorts(self._hold(), self._hold()) for _ in range(BROKERS)]
        try:
            for index in range(BROKERS):
                folder = self._folder(index)
                folder.mkdir()
                kafka_broker.format_storage(folder, self._jars, self._ports, index)
                self._daemons.append(Daemon("broker", folder, None))
            for daemon in self._daemons:
                kafka_broker.launch(daemon, daemon.logs, self._jars, self._watcher)
            self._await(self.is_whole, "the brokers are not all there")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all brokers. Safe to repeat."""
        watcher, self._watcher = self._watcher, None
        try:
            if watcher is not None:
                end_daemons(self._daemons, watcher)
                watcher.close()
        finally:
            self._held.close()

    def kill(self, index: int) -> None:
        """SIGKILL one."""
        assert self._watcher is not None
        self._killed.add(index)
        end_daemons([self._daemons[index]], self._watcher)

    def start_again(self, index: int) -> None:
        """Start one that was killed, and wait until it has what the others have.

        Raises RunError where it does not come up.
        """
        assert self._watcher is not None
        kafka_broker.launch(self._daemons[index], self._folder(index), self._jars, self._watcher)
        self._killed.discard(index)
        self._await(self.is_whole, f"broker {index + 1} does not catch up")

    def stop(self, index: int) -> None:
        """Have one stand still, with its connections open."""
        self._stopped.add(index)
        process_sets.signal_all(self._daemons[index].processes(), signal.SIGSTOP)

    def proceed(self, index: int) -> None:
        """Have it go on."""
        self._stopped.discard(index)
        process_sets.signal_all(self._daemons[index].processes(), signal.SIGCONT)

    def is_whole(self) -> bool:
        """Whether all brokers run and have all records of all partitions."""
        if self._stopped or self._killed:
            return False
        try:
            there = kafka_broker.admin(self.servers).list_topics(timeout=ASK_SECONDS_MAX)
        except kafka_options.library().KafkaException:
            return False
        parts = [one for topic in there.topics.values() for one in topic.partitions.values()]
        return len(there.brokers) == BROKERS and all(len(one.isrs) == BROKERS for one in parts)

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + START_SECONDS_MAX
        while not condition():
            dead = [one for at, one in enumerate(self._daemons) if self._has_ended(at, one)]
            if dead or time.monotonic() > end:
                log = (dead or self._daemons)[0].log
                raise RunError(where=str(self._directory), what=what, remedy=f"read {log}")
            time.sleep(RETRY_SECONDS)

    def _has_ended(self, index: int, daemon: Daemon) -> bool:
        """Whether a broker has ended that nobody has killed."""
        if index in self._killed:
            return False
        return daemon.has_ended

    def _folder(self, index: int) -> Path:
        return self._directory / f"broker-{index + 1}"

    def _hold(self) -> int:
        holder = hold_port(HOST)
        self._held.callback(holder.close)
        return int(holder.getsockname()[1])
