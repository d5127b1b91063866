"""A broker of Kafka on this machine, controller and broker in one process: killed, started again.

Maven fetches its jars once, into the cache that all clones share (`testbed.test_programs`). What
was acknowledged is on disk, so a killed broker has it when it is started again.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import loud_skips
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from killable_server import HOST, KillableServer

from rekindle_local import cached_files, port_reservation, process_sets
from testbed import test_programs

LOUD = "NO BROKER OF KAFKA WAS TESTED"
VERSION = "4.4.0"
LOGGER_VERSION = "2.25.5"
START_SECONDS_MAX = 60.0
FETCH_SECONDS_MAX = 600.0
ASK_SECONDS_MAX = 10.0
LIST = "jars"
CLUSTER = "rekindleTestClusterId0"
POM = f"""
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>broker</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
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
  </dependencies>
</project>
"""
LOGGING = """
rootLogger.level = WARN
rootLogger.appenderRef.c.ref = C
appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = [%d] %p %m (%c)%n
"""
# With a longer session a broker that was killed waits nine seconds for its own registration.
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
log.index.size.max.bytes=1048576
log.cleaner.dedupe.buffer.size=4194304
"""


def jars() -> Path:
    """The folder of the broker's jars; skips, or fails in CI, where they cannot be had."""
    folder = (
        test_programs.cache_folder(os.environ) / test_programs.PROGRAMS_FOLDER / f"kafka-{VERSION}"
    )
    with cached_files.locked(folder, test_programs.say):
        if not _are_intact(folder):
            _fetch(folder)
    if not _are_intact(folder):
        loud_skips.skip(f"Maven could not fetch the broker of Kafka {VERSION}", LOUD)
    cached_files.mark_used(folder)
    return folder


def _are_intact(folder: Path) -> bool:
    if not cached_files.is_intact(folder / LIST):
        return False
    return all(cached_files.is_intact(folder / name) for name in _names(folder))


def _names(folder: Path) -> list[str]:
    return (folder / LIST).read_text().split()


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        return
    with cached_files.workshop(folder) as workshop:
        (workshop / "pom.xml").write_text(POM)
        options = (f"-DoutputDirectory={workshop}/found", "-DincludeScope=runtime")
        command = [maven, "-q", "-B", "dependency:copy-dependencies", *options]
        done = subprocess.run(command, cwd=workshop, timeout=FETCH_SECONDS_MAX, check=False)
        made = sorted((workshop / "found").glob("*.jar"))
        if done.returncode or not made:
            return
        for jar in made:
            cached_files.put(jar, folder / jar.name)
        (workshop / LIST).write_text("\n".join(jar.name for jar in made))
        cached_files.put(workshop / LIST, folder / LIST)


@dataclass(slots=True, kw_only=True)
class Broker(KillableServer):
    """The jars, and a folder for what it keeps."""

    jars: Path
    controller: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        KillableServer.__post_init__(self)
        self.controller = port_reservation.hold_port(HOST)
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = {"port": self.port, "controller": int(self.controller.getsockname()[1])}
        properties = PROPERTIES.format(host=HOST, folder=self.folder, **ports)
        (self.folder / "server.properties").write_text(properties)
        (self.folder / "log4j2.properties").write_text(LOGGING)
        self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", "server.properties")

    @property
    def servers(self) -> str:
        """As clients want it, the same for every start."""
        return f"{HOST}:{self.port}"

    @property
    def admin(self) -> AdminClient:
        """A client of its own: one that has seen a broker die asks again later than a fresh one."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 2})

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        logging = "-Dlog4j2.configurationFile=log4j2.properties"
        class_path = ("-cp", f"{self.jars}/*")
        command = ["java", *options, logging, *class_path, "kafka.Kafka", "server.properties"]
        self.launch(command, self._answers, START_SECONDS_MAX)

    def stop(self) -> None:
        """Have it stand still, with its connections open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def proceed(self) -> None:
        """Have it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it for good."""
        KillableServer.close(self)
        self.controller.close()

    def make_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic, once one of that name has gone; settings with `_` for `.`."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        topic, admin = NewTopic(name, partitions, 1, config=config), self.admin
        end = time.monotonic() + ASK_SECONDS_MAX
        while True:
            try:
                admin.create_topics([topic])[name].result()
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS" or time.monotonic() > end:
                    raise
                time.sleep(0.1)
            else:
                self._await_partitions(name, partitions)
                return

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        admin = self.admin
        admin.delete_topics([name])[name].result()
        self._await_partitions(name, 0)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Have a topic have so many partitions."""
        admin = self.admin
        admin.create_partitions([NewPartitions(name, partitions)])[name].result()
        self._await_partitions(name, partitions)

    def _await_partitions(self, name: str, partitions: int) -> None:
        """Wait until the broker tells clients what its controller has been asked for."""
        admin = self.admin

        def are_told() -> bool:
            there = admin.list_topics(timeout=ASK_SECONDS_MAX).topics
            return (len(there[name].partitions) if name in there else 0) == partitions

        assert process_sets.await_condition(are_told, limit_seconds=ASK_SECONDS_MAX), name

    def produce(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        **options: object,
    ) -> None:
        """Write records, and wait until the broker has them; `options` are those of `produce`."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 2})
        for value in values:
            producer.produce(topic, value, partition=partition, **options)
            producer.poll(0)
        assert producer.flush(ASK_SECONDS_MAX) == 0, "the broker does not take records"

    def produce_transaction(
        self, topic: str, partition: int, values: Sequence[bytes], *, commits: bool = True
    ) -> None:
        """Write records in a transaction of their own, which is committed or aborted."""
        settings: Mapping[str, str] = {"transactional.id": f"test-{topic}-{partition}"}
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 2, **settings})
        producer.init_transactions(ASK_SECONDS_MAX)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        if commits:
            producer.commit_transaction(ASK_SECONDS_MAX)
        else:
            producer.flush(ASK_SECONDS_MAX)
            producer.abort_transaction(ASK_SECONDS_MAX)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, self.port)):
                return False
        try:
            return bool(self.admin.list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def _run(self, main: str, *arguments: str) -> None:
        command = ["java", "-cp", f"{self.jars}/*", main, *arguments]
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
