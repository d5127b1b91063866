"""The operations of histories: which commute (Definition 9)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rekindle.history import operations
from rekindle.history.operations import Operation, Value


@given(st.data())
def test_an_operation_is_commutative_when_no_two_elements_leave_another_state_swapped(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(sorted(operations.COMMUTATIVE)))
    operation = Operation("o", kind, ("x", "y"), keyed=data.draw(st.booleans()), keep=(1,))
    values: Any = st.integers(0, 3)
    if operation.keyed:
        values = st.tuples(st.sampled_from("ab"), values)
    elements = data.draw(st.lists(st.tuples(values, st.integers(0, 1)), min_size=2, max_size=5))
    shuffled = data.draw(st.permutations(elements))
    assert state_after(operation, elements) == state_after(operation, shuffled)


def test_the_others_have_two_elements_that_do() -> None:
    for kind in set(operations.KINDS) - operations.COMMUTATIVE:
        operation = Operation("o", kind, ("x",))
        assert state_after(operation, [(1, 0), (2, 0)]) != state_after(operation, [(2, 0), (1, 0)])


def state_after(operation: Operation, elements: list[tuple[Value, int]]) -> Value:
    state = operations.initial(operation)
    for value, port in elements:
        state, _ = operations.take(operation, state, value, port)
    return state
