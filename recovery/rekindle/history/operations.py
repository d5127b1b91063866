"""The closed list of operations: the effect of each on an element, and whether order matters.

    value in a history    string, whole number, null, or a list of them (inside: a tuple)

An operation takes one element, has a new state and emits elements. `COMMUTATIVE` answers Definition
9: an operation is commutative when any two elements, taken in either order, leave the same state.
`keyed` forms take `[key, value]`, hold a state per key and emit `[key, result]`. `ideal_execution`
calls `take`, `history_file` calls `state_from`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rekindle.model.errors import InputError

Value = str | int | None | tuple["Value", ...]

# In which order an operation takes what waits for it: as the inputs entered; each channel in its
# order, channels racing; or anything that waits.
FIXED, CHANNELS, ANY = "fixed", "channels", "any"
ORDERS = (FIXED, CHANNELS, ANY)
RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Operation:
    """A task of the physical graph. `sources` are input channels or operations, in order.

    `window` is for concatenate (null: everything), `keep` for filter.
    """

    name: str
    kind: str
    sources: tuple[str, ...]
    order: str = FIXED
    keyed: bool = False
    window: int | None = None
    keep: tuple[Value, ...] = ()


_Taken = tuple[Value, tuple[Value, ...]]
_Take = Callable[[Operation, Value, Value, int], _Taken]


def initial(operation: Operation) -> Value:
    """The state before the first element."""
    return () if operation.keyed else _INITIAL.get(operation.kind)


def take(operation: Operation, state: Value, value: Value, port: int) -> _Taken:
    """The state after `value` came from source number `port`, and what is emitted.

    Raises InputError for a value that the operation cannot take.
    """
    if not operation.keyed:
        return KINDS[operation.kind](operation, state, value, port)
    if not isinstance(value, tuple) or len(value) != 2:
        raise _unfit(operation, value, "takes [key, value]")
    key, part = value
    states = dict(_pairs(state))
    before = states.get(key, _INITIAL.get(operation.kind))
    states[key], emitted = KINDS[operation.kind](operation, before, part, port)
    return _in_order(states.items()), tuple((key, result) for result in emitted)


def state_from(operation: Operation, recorded: Value) -> Value:
    """A state as a snapshot records it, in the order in which states are kept here."""
    if not operation.keyed:
        return _canonical(operation, recorded)
    if not isinstance(recorded, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in recorded
    ):
        raise _unfit(operation, recorded, "is keyed: its state is a list of [key, state]")
    return _in_order((key, _canonical(operation, part)) for key, part in _pairs(recorded))


def _canonical(operation: Operation, state: Value) -> Value:
    shape = _INITIAL.get(operation.kind)
    if shape is not None and type(shape) is not type(state):
        raise _unfit(operation, state, f"has states like {_LIKE[operation.kind]}")
    if operation.kind == "distinct" and isinstance(state, tuple):
        return _in_order(state)
    if operation.kind == "join":
        if not isinstance(state, tuple) or [type(side) for side in state] != [tuple, tuple]:
            raise _unfit(operation, state, f"has states like {_LIKE['join']}")
        return tuple(_in_order(side) for side in state if isinstance(side, tuple))
    return state


def _identity(_: Operation, state: Value, value: Value, __: int) -> _Taken:
    return state, (value,)


def _filter(operation: Operation, state: Value, value: Value, _: int) -> _Taken:
    return state, (value,) if value in operation.keep else ()


def _distinct(_: Operation, state: Value, value: Value, __: int) -> _Taken:
    seen = _parts(state)
    return (state, ()) if value in seen else (_in_order((*seen, value)), (value,))


def _count(_: Operation, state: Value, __: Value, ___: int) -> _Taken:
    assert isinstance(state, int)
    return state + 1, (state + 1,)


def _sum(operation: Operation, state: Value, value: Value, _: int) -> _Taken:
    if not isinstance(value, int):
        raise _unfit(operation, value, "takes whole numbers")
    assert isinstance(state, int)
    return state + value, (state + value,)


def _max(_: Operation, state: Value, value: Value, __: int) -> _Taken:
    best = value if state is None else max(state, value, key=_rank)
    return best, (best,)


def _min(_: Operation, state: Value, value: Value, __: int) -> _Taken:
    best = value if state is None else min(state, value, key=_rank)
    return best, (best,)


def _last(_: Operation, __: Value, value: Value, ___: int) -> _Taken:
    return value, (value,)


def _concatenate(operation: Operation, state: Value, value: Value, _: int) -> _Taken:
    held = (*_parts(state), value)
    if operation.window is not None:
        held = held[-operation.window :]
    return held, ("".join(map(str, held)),)


def _join(_: Operation, state: Value, value: Value, port: int) -> _Taken:
    left, right = (_parts(side) for side in _parts(state))
    if port == 0:
        return (_in_order((*left, value)), right), tuple((value, other) for other in right)
    return (left, _in_order((*right, value))), tuple((other, value) for other in left)


KINDS: Mapping[str, _Take] = {
    "identity": _identity,
    "filter": _filter,
    "distinct": _distinct,
    "count": _count,
    "sum": _sum,
    "max": _max,
    "min": _min,
    "last": _last,
    "concatenate": _concatenate,
    "join": _join,
}
COMMUTATIVE = frozenset(KINDS) - {"last", "concatenate"}
_INITIAL: Mapping[str, Value] = {
    "distinct": (),
    "count": 0,
    "sum": 0,
    "concatenate": (),
    "join": ((), ()),
}
_LIKE: Mapping[str, str] = {
    "distinct": '["a", "b"]',
    "count": "3",
    "sum": "3",
    "concatenate": '["a", "b"]',
    "join": '[["left"], ["right"]]',
}


def _rank(value: Value) -> tuple[int, object]:
    """An order over all values: whole numbers, then everything else as it is written."""
    return (0, value) if isinstance(value, int) else (1, repr(value))


def _in_order(values: object) -> tuple[Value, ...]:
    return tuple(sorted(values, key=_rank))  # type: ignore[call-overload]


def _parts(state: Value) -> tuple[Value, ...]:
    assert isinstance(state, tuple)
    return state


def _pairs(state: Value) -> list[tuple[Value, Value]]:
    pairs = []
    for pair in _parts(state):
        key, part = _parts(pair)
        pairs.append((key, part))
    return pairs


def _unfit(operation: Operation, value: Value, what: str) -> InputError:
    return InputError(
        where=f"operation {operation.name}",
        what=f"{what}, not {value!r}",
        remedy="record values that it takes, or give it another kind (docs/history.md)",
    )
