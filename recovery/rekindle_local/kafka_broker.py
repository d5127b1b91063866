"""A broker of Kafka on this machine, controller and broker in one process.

    find_jars ──Maven, once──► jars in the user's cache ──► KafkaBroker: a daemon on loopback

Everything that was acknowledged is on disk, so a broker that was killed has it when it is started
again. The demo on Kafka starts one, and the integration tests start theirs with the same jars and
configuration.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.model.errors import InputError, RekindleError, RunError
from rekindle_local import cached_files, process_sets
from rekindle_local.daemons import Daemon, DaemonGroup, end_daemons
from rekindle_local.maven_jars import JarSet
from rekindle_local.port_reservation import hold_port
from rekindle_local.process_reaper import ProcessReaper
from rekindle_spark.connectors import kafka_options
from rekindle_spark.spark import spark_installation

HOST = "127.0.0.1"
VERSION = "4.4.0"
LOGGER_VERSION = "2.25.5"
START_SECONDS_MAX = 120.0
ASK_SECONDS_MAX = 60.0
RETRY_SECONDS = 0.1
CLUSTER = "rekindleTestClusterId0"
MAIN, FORMATTER = "kafka.Kafka", "kafka.tools.StorageTool"
SETTINGS, LOGGING = "server.properties", "log4j2.properties"
JAVA_OPTIONS = (
    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    f"-Dlog4j2.configurationFile={LOGGING}",
)
JARS = JarSet(
    f"Kafka {VERSION}",
    f"kafka-{VERSION}",
    43,
    f"""
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOGGER_VERSION}</version>
    </dependency>
    """,
)
_LOGGING = """
rootLogger.level = WARN
rootLogger.appenderRef.c.ref = C
appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = [%d] %p %m (%c)%n
"""
# With a longer session a broker that was killed waits nine seconds for its own registration.
_OF_ONE = """
broker.session.timeout.ms=1500
"""
# Several elect who leads, and a machine that is short of CPU must not have them do so without end.
_OF_SEVERAL = """
broker.session.timeout.ms=6000
controller.quorum.fetch.timeout.ms=8000
controller.quorum.election.timeout.ms=4000
"""
_SETTINGS = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync_min}
transaction.state.log.num.partitions=4
min.insync.replicas={in_sync_min}
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={in_sync_min}
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=300
log.index.size.max.bytes=1048576
log.cleaner.dedupe.buffer.size=4194304
"""


def find_jars(
    environment: Mapping[str, str] = os.environ,
    progress: Callable[[str], None] = cached_files.say,
) -> Path:
    """The folder of the broker's jars, which Maven fetches once into the user's cache: 43 MB.

    Raises InputError where they cannot be fetched.
    """
    return JARS.find(environment, progress)


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Where one broker serves clients, and its controller the other ones."""

    clients: int
    controller: int


def format_storage(
    folder: Path, jars: Path, brokers: Sequence[BrokerPorts], index: int = 0
) -> None:
    """Write the configuration of one of some brokers into a folder, and format its storage. Of
    several, each has a copy of everything, and what is acknowledged is on all but one at least.

    Raises InputError without a Java, RunError where the formatter fails.
    """
    own, count = brokers[index], len(brokers)
    settings = _SETTINGS.format(
        host=HOST,
        folder=folder,
        node=index + 1,
        port=own.clients,
        controller=own.controller,
        voters=",".join(f"{n}@{HOST}:{one.controller}" for n, one in enumerate(brokers, 1)),
        replicas=count,
        in_sync_min=max(1, count - 1),
    )
    (folder / SETTINGS).write_text(settings + (_OF_ONE if count == 1 else _OF_SEVERAL))
    (folder / LOGGING).write_text(_LOGGING)
    command = [*_java(jars), FORMATTER, "format", "-t", CLUSTER, "-c", SETTINGS]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RunError(
            where=f"the broker of Kafka in {folder}",
            what=f"could not be formatted ({(done.stdout + done.stderr).strip()[-300:]})",
            remedy="see whether the disk is full",
        )


def start_command(jars: Path) -> list[str]:
    """The command that runs a broker whose folder is the working directory."""
    return [*_java(jars, *JAVA_OPTIONS), MAIN, SETTINGS]


def _java(jars: Path, *options: str) -> list[str]:
    return [str(spark_installation.find_java()), *options, "-cp", f"{jars}/*"]


def answers(servers: str) -> bool:
    """Whether a broker is there and lists its topics."""
    try:
        return bool(admin(servers).list_topics(timeout=1.0).brokers)
    except kafka_options.library().KafkaException:
        return False


def admin(servers: str) -> Any:
    """A client of its own: one that has seen a broker die asks again later than a fresh one."""
    library = kafka_options.admin_library()
    return library.AdminClient({"bootstrap.servers": servers, "log_level": 2})


def launch(daemon: Daemon, folder: Path, jars: Path, watcher: ProcessReaper) -> None:
    """Start the broker of a folder."""
    # it is launched in the working directory of its owner, so paths are absolute
    command = ["/bin/sh", "-c", 'cd "$1" && shift && exec "$@"', "broker"]
    daemon.launch([*command, str(folder), *start_command(jars)], os.environ, watcher)


def make_topics(servers: str, partitions: Mapping[str, int], replicas: int) -> None:
    """Make topics with so many partitions each, and wait until clients see them.

    Raises RunError where the brokers do not make them.
    """
    client, library = admin(servers), kafka_options.admin_library()
    where, remedy = f"Kafka at {servers}", "read the logs of its brokers"
    wanted = [library.NewTopic(name, count, replicas) for name, count in partitions.items()]
    try:
        for asked in client.create_topics(wanted).values():
            asked.result(ASK_SECONDS_MAX)
    except kafka_options.library().KafkaException as error:
        what = f"does not make topics ({error})"
        raise RunError(where=where, what=what, remedy=remedy) from error

    def are_there() -> bool:
        there = client.list_topics(timeout=ASK_SECONDS_MAX).topics
        return all(
            name in there and len(there[name].partitions) == count
            for name, count in partitions.items()
        )

    if not process_sets.await_condition(are_there, limit_seconds=ASK_SECONDS_MAX):
        what = f"does not list new topics within {ASK_SECONDS_MAX:.0f} s"
        raise RunError(where=where, what=what, remedy=remedy)


class KafkaBroker(DaemonGroup):
    """A context manager: inside, the broker serves; after it, no process is left.

    `directory` takes its log, configuration and data.
    """

    def __init__(self, *, directory: Path, jars: Path) -> None:
        self.directory = directory.absolute()
        self.jars = jars
        self._held = ExitStack()
        self._watcher: ProcessReaper | None = None
        self._daemon = Daemon("broker", self.directory, None)
        self.port = 0

    @property
    def servers(self) -> str:
        """HOST:PORT, as clients want it."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises InputError without a Java, RunError where it does not come up.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        holders = [hold_port(HOST) for _ in range(2)]
        for holder in holders:
            self._held.callback(holder.close)
        try:
            self.port, controller = (int(one.getsockname()[1]) for one in holders)
            format_storage(self.directory, self.jars, [BrokerPorts(self.port, controller)])
            self._watcher = ProcessReaper((), self.directory / "watcher.log")
            launch(self._daemon, self.directory, self.jars, self._watcher)
            self._await_answer()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the broker; its data stays. Safe to repeat."""
        watcher, self._watcher = self._watcher, None
        try:
            if watcher is not None:
                end_daemons([self._daemon], watcher)
                watcher.close()
        finally:
            self._held.close()

    def make_topics(self, partitions: Mapping[str, int]) -> None:
        """Make topics as `make_topics`."""
        make_topics(self.servers, partitions, 1)

    def _await_answer(self) -> None:
        leader, end = self._daemon.leader, time.monotonic() + START_SECONDS_MAX
        assert leader is not None
        while not answers(self.servers):
            if (code := leader.poll()) is not None:
                raise self._failed(f"ended with exit code {code}")
            if time.monotonic() > end:
                raise self._failed(f"does not answer within {START_SECONDS_MAX:.0f} s")
            time.sleep(RETRY_SECONDS)

    def _failed(self, what: str) -> RunError:
        where = f"the broker of Kafka in {self.directory}"
        return RunError(where=where, what=what, remedy=f"read {self._daemon.log}")


def main(arguments: Sequence[str]) -> int:
    """Run a broker with its data in a folder until it is interrupted; print where it serves."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m rekindle_local.kafka_broker FOLDER", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        folder = Path(arguments[0])
        if (folder / SETTINGS).exists():
            remedy = "name a new folder"
            raise InputError(where=str(folder), what="has the data of a broker", remedy=remedy)
        with KafkaBroker(directory=folder, jars=find_jars()) as broker:
            print(f"export KAFKA={broker.servers}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except RekindleError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
