"""Which plans a storyteller finds in the store, of those that nobody has told."""

from types import SimpleNamespace
from typing import Any

from store_in_memory import ConnectionInMemory, SharedStore

from rekindle import protocol
from rekindle.protocol import Directive, PlanOrder, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_operator.recovery.recovery_writer import RecoveryWriter

PLACE = Place("flights", "departures")


def put_plan(connection: ConnectionInMemory, number: int) -> None:
    order = PlanOrder(
        query_partitions=("q/0",), placement={"q/0": "n1"}, builds_on=number - 1, incident=1
    )
    directive = Directive(
        sequence=number,
        after=number - 1,
        generation=1,
        plan_epoch=number,
        reason="started",
        text="",
        order=order,
    )
    path = PLACE.path(store_paths.DIRECTIVES, store_paths.numbered(number))
    connection.put(path, protocol.encode(directive))


def storyteller(connection: Any) -> RecoveryWriter:
    unused: Any = None
    return RecoveryWriter(unused, connection, unused, "a", OperatorMetrics(), settled=print)


def numbers(teller: RecoveryWriter) -> list[int]:
    return [plan.plan_epoch for plan in teller._stored(PLACE)[0]]


def look(before: int, after: int) -> Any:
    decision = SimpleNamespace(case=SimpleNamespace(plan_sequence=after))
    return SimpleNamespace(case=SimpleNamespace(plan_sequence=before), decision=decision)


def test_plans_are_read_once_as_long_as_each_is_told() -> None:
    connection = SharedStore().connect()
    teller = storyteller(connection)
    put_plan(connection, 1)
    assert numbers(teller) == [1]
    put_plan(connection, 2)
    assert numbers(teller) == [1]


def test_what_guards_a_namespaces_directives_is_none_of_them() -> None:
    connection = SharedStore().connect()
    put_plan(connection, 1)
    connection.put(PLACE.path(store_paths.DIRECTIVES, store_paths.GUARD), b"")
    assert numbers(storyteller(connection)) == [1]


def test_a_plan_that_was_passed_over_is_found_in_the_store() -> None:
    connection = SharedStore().connect()
    teller = storyteller(connection)
    put_plan(connection, 1)
    assert numbers(teller) == [1]
    put_plan(connection, 2)
    teller.pass_over(look(2, 2), PLACE)
    assert numbers(teller) == [1]
    teller.pass_over(look(1, 2), PLACE)
    assert numbers(teller) == [1, 2]
