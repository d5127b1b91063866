"""A broker of Kafka on this machine, controller and broker in one process: killed, started again.

Jars and configuration are those of the demo (`rekindle_local.kafka_broker`). What was acknowledged
is on disk, so a killed broker has it when it is started again.
"""

import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import loud_skips
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stub has them private
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from killable_server import HOST, KillableServer

from rekindle.model.errors import InputError
from rekindle_local import kafka_broker, port_reservation, process_sets

LOUD = "NO BROKER OF KAFKA WAS TESTED"
START_SECONDS_MAX = 180.0
# The first transaction has the broker make the partitions of its log of transactions.
ASK_SECONDS_MAX = 60.0
# Topics take less, unless a test says otherwise.
MESSAGE_BYTES_MAX = 20_000_000


def jars() -> Path:
    """The folder of the broker's jars; skips, or fails in CI, where they cannot be had."""
    try:
        return kafka_broker.find_jars()
    except InputError as error:
        loud_skips.skip(str(error), LOUD)


@dataclass(slots=True, kw_only=True)
class Broker(KillableServer):
    """The jars, and a folder for what it keeps."""

    jars: Path
    controller: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        KillableServer.__post_init__(self)
        self.controller = port_reservation.hold_port(HOST)
        self.folder.mkdir(parents=True, exist_ok=True)
        controller = int(self.controller.getsockname()[1])
        ports = kafka_broker.BrokerPorts(self.port, controller)
        kafka_broker.format_storage(self.folder, self.jars, [ports])

    @property
    def servers(self) -> str:
        """As clients want it, the same for every start."""
        return f"{HOST}:{self.port}"

    @property
    def admin(self) -> AdminClient:
        """A client of its own: one that has seen a broker die asks again later than a fresh one."""
        return kafka_broker.admin(self.servers)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = kafka_broker.start_command(self.jars)
        self.launch(command, lambda: kafka_broker.answers(self.servers), START_SECONDS_MAX)

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

    def await_settled(self) -> None:
        """Wait until no committed transaction lacks its markers; call it before `kill`.

        A broker that is alone and dies there may forget them: when it starts again it takes
        partitions whose leader is not elected yet for deleted ones (seen with Kafka 4.4.0). What
        waits for the transaction's end then waits without end.
        """
        admin = self.admin

        def is_settled() -> bool:
            try:
                listed = admin.list_consumer_groups(request_timeout=ASK_SECONDS_MAX).result()
                for group in listed.valid:
                    wanted = [ConsumerGroupTopicPartitions(group.group_id)]
                    asked = admin.list_consumer_group_offsets(
                        wanted, require_stable=True, request_timeout=ASK_SECONDS_MAX
                    )
                    asked[group.group_id].result()
            except KafkaException:
                return False
            return True

        assert process_sets.await_condition(is_settled, limit_seconds=START_SECONDS_MAX)

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

    def await_forgotten(self, group: str) -> None:
        """Wait until a group has no offsets: those in a topic that was deleted go after it."""
        admin = self.admin

        def is_forgotten() -> bool:
            wanted = [ConsumerGroupTopicPartitions(group)]
            asked = admin.list_consumer_group_offsets(wanted, request_timeout=ASK_SECONDS_MAX)
            return not asked[group].result().topic_partitions

        assert process_sets.await_condition(is_forgotten, limit_seconds=ASK_SECONDS_MAX), group

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
        settings = {"log_level": 2, "message.max.bytes": MESSAGE_BYTES_MAX}
        producer = Producer({"bootstrap.servers": self.servers, **settings})
        for value in values:
            producer.produce(topic, value, partition=partition, **options)
            producer.poll(0)
        assert producer.flush(ASK_SECONDS_MAX) == 0, "the broker does not take records"

    def produce_transaction(
        self, topic: str, partition: int, values: Sequence[bytes], *, commits: bool = True
    ) -> None:
        """Write records in a transaction of their own, which is committed or aborted, and wait
        until those who read committed records see its end."""
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
        self.await_markers(topic, partition)

    def await_markers(self, topic: str, partition: int) -> None:
        """Wait until no transaction is open in a partition: one has ended once its coordinator
        knows of that, and the partition records it later."""
        admin, place = self.admin, TopicPartition(topic, partition)

        def end(level: IsolationLevel) -> int:
            asked = admin.list_offsets(
                {place: OffsetSpec.latest()},
                isolation_level=level,
                request_timeout=ASK_SECONDS_MAX,
            )
            return int(asked[place].result().offset)

        def has_ended() -> bool:
            return end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED)

        assert process_sets.await_condition(has_ended, limit_seconds=ASK_SECONDS_MAX), topic
