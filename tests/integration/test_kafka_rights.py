"""A broker that looks at rights: who lacks one is refused at once, with its name."""

from collections.abc import Iterator
from typing import Any

import broker
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stub has them private
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from secured_broker import USER, AuthorizingBroker

from rekindle.model.errors import RunError
from rekindle_local import process_sets
from rekindle_spark.connectors.hidden_values import FromEnvironment
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.connectors.kafka_sink import KafkaSink, SinkRecords
from rekindle_spark.connectors.kafka_transactions import EpochMarker, TransactionalWriter

PASSWORD, VARIABLE = "swordfish-12", "REKINDLE_TEST_PASSWORD"
LIMIT_SECONDS = 120.0
MANY = 300_000  # records: the broker answers before the client has all of them
Right = tuple[ResourceType, str, ResourcePatternType, AclOperation]
EXACT, PREFIX = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingBroker]:
    """One broker for all tests; each has topics of its own."""
    folder = tmp_path_factory.mktemp("broker")
    started = AuthorizingBroker(folder=folder, jars=broker.jars(), password=PASSWORD)
    try:
        started.start()
        yield started
    finally:
        started.close()


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Those of a client that says who it is."""
    monkeypatch.setenv(VARIABLE, PASSWORD)
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": FromEnvironment(VARIABLE),
    }


def allow(kafka: AuthorizingBroker, *rights: Right) -> None:
    """Give the user rights, and wait until the broker knows them."""
    admin, who, anywhere, allowed = kafka.admin, f"User:{USER}", "*", AclPermissionType.ALLOW
    bindings = [
        AclBinding(kind, name, pattern, who, anywhere, operation, allowed)
        for kind, name, pattern, operation in rights
    ]
    for asked in admin.create_acls(bindings).values():
        asked.result()
    any_of_his = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, who, None),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )

    def are_known() -> bool:
        known = admin.describe_acls(any_of_his).result()
        return all(one in known for one in bindings)

    assert process_sets.await_condition(are_known, limit_seconds=LIMIT_SECONDS)


def test_a_sink_that_may_not_write_its_topic_is_refused_at_once(
    kafka: AuthorizingBroker, options: dict[str, Any]
) -> None:
    kafka.make_topic("described")
    allow(
        kafka,
        (ResourceType.TOPIC, "described", EXACT, AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, "reader-", PREFIX, AclOperation.WRITE),
        (ResourceType.GROUP, "reader-", PREFIX, AclOperation.READ),
    )
    sink = KafkaSink(kafka.secured, "described", options=options)
    one = TransactionalWriter(sink, "topic described", "reader-0", 0)
    for count in (1, MANY):
        assert one.open() is None
        with pytest.raises(RunError, match=r"refuses the records .*opic.*authoriz") as refused:
            one.write([SinkRecords([b"a"] * count)], EpochMarker(1, 5))
        assert type(refused.value) is RunError


@pytest.mark.parametrize(
    ("lacking", "remedy"),
    [
        ("topic", "the rights to the topic"),
        ("id", "the rights to transactional ids"),
        ("group", "the right to read the consumer group"),
    ],
)
def test_a_sink_that_lacks_one_of_its_rights_is_refused_with_the_name_of_that(
    kafka: AuthorizingBroker, options: dict[str, Any], lacking: str, remedy: str
) -> None:
    topic = f"lacks-{lacking}"
    kafka.make_topic(topic)
    rights: dict[str, list[Right]] = {
        "topic": [
            (ResourceType.TOPIC, topic, EXACT, AclOperation.WRITE),
            (ResourceType.TOPIC, topic, EXACT, AclOperation.READ),
        ],
        "id": [(ResourceType.TRANSACTIONAL_ID, f"{topic}-", PREFIX, AclOperation.WRITE)],
        "group": [(ResourceType.GROUP, f"{topic}-", PREFIX, AclOperation.READ)],
    }
    allow(kafka, *(right for name in rights.keys() - {lacking} for right in rights[name]))
    one = TransactionalWriter(
        KafkaSink(kafka.secured, topic, options=options), f"topic {topic}", f"{topic}-0", 0
    )
    with pytest.raises(RunError, match=r"refuses the records .*authoriz") as refused:
        one.open()
    assert type(refused.value) is RunError
    assert remedy in refused.value.remedy
    allow(kafka, *rights[lacking])
    assert one.open() is None
    one.write([SinkRecords([b"a"])], EpochMarker(1, 5))
    one.close()


def test_a_source_that_lacks_a_right_says_which(
    kafka: AuthorizingBroker, options: dict[str, Any]
) -> None:
    kafka.make_topic("read")
    source = Kafka(kafka.secured, topics=["read"], options=options, group="watchers")
    with pytest.raises(RunError, match=r"refuses it .*opic authoriz") as refused:
        source.latest_offsets()
    assert "the rights to the topic" in refused.value.remedy
    allow(kafka, (ResourceType.TOPIC, "read", EXACT, AclOperation.READ))
    assert source.latest_offsets()["read/0"].latest == 0
    with pytest.raises(RunError, match=r"refuses it .*roup authoriz") as refused:
        source.commit({"read/0": 0})
    assert "the right to read the consumer group" in refused.value.remedy
    allow(kafka, (ResourceType.GROUP, "watchers", EXACT, AclOperation.READ))
    source.commit({"read/0": 0})
