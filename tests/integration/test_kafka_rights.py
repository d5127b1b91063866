"""A broker that looks at rights: a sink without the right to write its topic says so."""

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
