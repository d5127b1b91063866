"""The planner's question and its answer, as records and as JSON.

A problem says what was lost, what bringing it back costs and what capacity there is; an answer
says what to bring back and where. The formats are written out in docs/planning.md. Nothing here
decides or touches a file: `planning.solve` turns the one into the other, the coordinator, the
command `rekindle plan` and `rekindle verify` read and write them.
"""

import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from rekindle.model import strict_json
from rekindle.model.errors import InputError
from rekindle.model.sentences import counted, percent
from rekindle.model.strict_json import short

VERSION = 1
NUMBER_MAX = 1e12  # percent of a core, or priority: far above sense, far below overflow
WHOLE_NUMBER_MAX = 2**63 - 1  # bytes of state, or a seed

RUNNING = "running"
NO_CAPACITY = "no-capacity"
DOES_NOT_FIT_A_NODE = "does-not-fit-a-node"
UNPLACEABLE = "unplaceable"


@dataclass(frozen=True, slots=True)
class PartitionCost:
    """CPU in percent of one core; `running_on` is a node id, without meaning once failed."""

    cpu_percent: float
    state_bytes: int = 0
    running_on: str | None = None


@dataclass(frozen=True, slots=True)
class QueryDemand:
    """A query (or query partition): its priority, above 0, and all partitions upstream of it."""

    priority: float
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """RECOVERY SCHEDULING (paper, section 2.3, Definition 2).

    Partitions outside `failed` run: they cost nothing and are already there. Exactly one of
    `capacity_cpu_percent` (free CPU in total) and `nodes` (free CPU per node, after the cap) is
    given, in percent of one core.
    """

    partitions: Mapping[str, PartitionCost]
    queries: Mapping[str, QueryDemand]
    failed: frozenset[str]
    capacity_cpu_percent: float | None = None
    nodes: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A recovery plan with its certificate.

    `status` is "optimal" (proved: nothing better exists) or "feasible". `queries` are brought
    back with `partitions`, all failed ones that they need; `skipped` gives the reason for every
    other query; `placement` is empty where the problem gives no nodes. `gap` is
    (upper_bound - priority_sum) / upper_bound, 0 where both are 0.
    """

    status: str
    solver: str
    seed: int
    queries: tuple[str, ...]
    skipped: Mapping[str, str]
    partitions: tuple[str, ...]
    placement: Mapping[str, tuple[str, ...]]
    priority_sum: float
    used_cpu_percent: float
    fragmentation_cpu_percent: float
    upper_bound: float
    gap: float
    seconds: float
    version: int = field(default=VERSION, kw_only=True)


def describe(
    answer: Answer,
    *,
    verb: str = "Bring back",
    one: str = "lost query",
    several: str = "lost queries",
    waiting: int | None = None,
) -> str:
    """The plan as one sentence. `verb` and the nouns are the caller's: the runtime's problems have
    query partitions for queries, and at a start nothing is lost. `waiting`: how many are, where
    the problem had not all of them."""
    asked = len(answer.queries) + sum(1 for why in answer.skipped.values() if why != RUNNING)
    waiting = asked if waiting is None else waiting
    if not waiting:
        return f"Nothing to {verb.lower()}: there is no {one}."
    what = f"{verb} {len(answer.queries)} of {waiting} {one if waiting == 1 else several}"
    cost = f"{counted(len(answer.partitions), 'partition')}, {percent(answer.used_cpu_percent)} CPU"
    where = f" on {counted(len(answer.placement), 'node')}" if answer.placement else ""
    proof = f"at most {math.ceil(1000 * answer.gap) / 10:g} % below the best possible"
    if answer.status == "optimal":
        proof = "the best possible"
    if waiting > asked:
        proof += f" of the {asked} that are to come first"
    return (
        f"{what} with {cost}{where}: priorities of {answer.priority_sum:.6g}, {proof} "
        f"({answer.solver})."
    )


def parse(content: bytes, where: str) -> Problem:
    """A problem from the bytes of a JSON file; `where` is the file in messages.

    Raises InputError with file, field and remedy for anything that is not a sound problem.
    """
    if not content.strip():
        _refuse(where, "", "is empty", "write a problem as in docs/planning.md into it")

    return from_record(strict_json.read(content, where), where)


def from_record(record: object, where: str) -> Problem:
    """A problem from what `json` made of it; raises InputError as `parse` does."""
    required = ("version", "partitions", "queries")
    optional = ("failed", "capacity_cpu_percent", "nodes")
    fields = _fields(record, where, "", required, optional)
    _check_version(fields["version"], where)
    if ("capacity_cpu_percent" in fields) == ("nodes" in fields):
        both = "both are given" if "nodes" in fields else "neither is given"
        _refuse(where, "capacity_cpu_percent, nodes", both, "give exactly one of the two")
    partitions = _partitions(fields["partitions"], where)
    capacity, nodes = None, None
    if "nodes" in fields:
        nodes = _nodes(fields["nodes"], where)
    else:
        capacity = _number(fields["capacity_cpu_percent"], where, "capacity_cpu_percent")
    return Problem(
        partitions=partitions,
        queries=_queries(fields["queries"], partitions, where),
        failed=frozenset(
            _known(fields.get("failed", list(partitions)), partitions, where, "failed")
        ),
        capacity_cpu_percent=capacity,
        nodes=nodes,
    )


def to_record(problem: Problem) -> dict[str, Any]:
    """The JSON object of a problem, ids in ascending order."""
    record: dict[str, Any] = {
        "version": VERSION,
        "partitions": {
            name: _partition_record(problem.partitions[name]) for name in sorted(problem.partitions)
        },
        "queries": {
            name: {
                "priority": problem.queries[name].priority,
                "partitions": list(problem.queries[name].partitions),
            }
            for name in sorted(problem.queries)
        },
        "failed": sorted(problem.failed),
    }
    if problem.nodes is None:
        record["capacity_cpu_percent"] = problem.capacity_cpu_percent
    else:
        record["nodes"] = {
            name: {"free_cpu_percent": problem.nodes[name]} for name in sorted(problem.nodes)
        }
    return record


def answer_to_record(answer: Answer) -> dict[str, Any]:
    """The JSON object of an answer, fields in the order of the contract (DESIGN, section 9)."""
    return {
        "version": answer.version,
        "status": answer.status,
        "solver": answer.solver,
        "seed": answer.seed,
        "queries": list(answer.queries),
        "skipped": dict(answer.skipped),
        "partitions": list(answer.partitions),
        "placement": {node: list(names) for node, names in answer.placement.items()},
        "priority_sum": answer.priority_sum,
        "used_cpu_percent": answer.used_cpu_percent,
        "fragmentation_cpu_percent": answer.fragmentation_cpu_percent,
        "upper_bound": answer.upper_bound,
        "gap": answer.gap,
        "seconds": answer.seconds,
    }


def answer_from_record(record: object, where: str) -> Answer:
    """An answer read back; raises InputError for missing and ill-typed fields."""
    if isinstance(record, Mapping) and isinstance(record.get("partitions"), Mapping):
        _refuse(where, "", "is a problem, not an answer", "give what was planned for it")
    fields = _fields(record, where, "", tuple(Answer.__dataclass_fields__), ())
    _check_version(fields["version"], where)

    def number(name: str) -> float:
        return _number(fields[name], where, name, number_max=sys.float_info.max)

    return Answer(
        status=_text(fields["status"], where, "status"),
        solver=_text(fields["solver"], where, "solver"),
        seed=_whole_number(fields["seed"], where, "seed"),
        queries=_names(fields["queries"], where, "queries"),
        skipped={
            name: _text(reason, where, f"skipped.{name}")
            for name, reason in _object(fields["skipped"], where, "skipped").items()
        },
        partitions=_names(fields["partitions"], where, "partitions"),
        placement={
            node: _names(held, where, f"placement.{node}")
            for node, held in _object(fields["placement"], where, "placement").items()
        },
        priority_sum=number("priority_sum"),
        used_cpu_percent=number("used_cpu_percent"),
        fragmentation_cpu_percent=number("fragmentation_cpu_percent"),
        upper_bound=number("upper_bound"),
        gap=number("gap"),
        seconds=number("seconds"),
    )


def _partition_record(cost: PartitionCost) -> dict[str, Any]:
    record: dict[str, Any] = {"cpu_percent": cost.cpu_percent, "state_bytes": cost.state_bytes}
    if cost.running_on is not None:
        record["running_on"] = cost.running_on
    return record


def _partitions(value: object, where: str) -> dict[str, PartitionCost]:
    partitions = {}
    for name, record in _object(value, where, "partitions").items():
        place = f"partitions.{name}"
        fields = _fields(record, where, place, ("cpu_percent",), ("state_bytes", "running_on"))
        running_on = fields.get("running_on")
        partitions[name] = PartitionCost(
            _number(fields["cpu_percent"], where, f"{place}.cpu_percent"),
            _whole_number(fields.get("state_bytes", 0), where, f"{place}.state_bytes"),
            None if running_on is None else _text(running_on, where, f"{place}.running_on"),
        )
    return partitions


def _queries(value: object, partitions: Mapping[str, object], where: str) -> dict[str, QueryDemand]:
    queries = {}
    for name, record in _object(value, where, "queries").items():
        place = f"queries.{name}"
        fields = _fields(record, where, place, ("priority", "partitions"), ())
        priority = _number(fields["priority"], where, f"{place}.priority", least="above 0")
        if priority == 0:
            _refuse(where, f"{place}.priority", "is 0", "give a number above 0")
        needed = _known(fields["partitions"], partitions, where, f"{place}.partitions")
        if not needed:
            _refuse(where, f"{place}.partitions", "is empty", "name what the query needs")
        queries[name] = QueryDemand(priority, needed)
    return queries


def _nodes(value: object, where: str) -> dict[str, float]:
    nodes = {}
    for name, record in _object(value, where, "nodes").items():
        place = f"nodes.{name}"
        fields = _fields(record, where, place, ("free_cpu_percent",), ())
        nodes[name] = _number(fields["free_cpu_percent"], where, f"{place}.free_cpu_percent")
    return nodes


def _check_version(value: object, where: str) -> None:
    if type(value) is not int or value != VERSION:
        _refuse(where, "version", f"is {_shown(value)}", f"use version {VERSION}")


def _fields(
    value: object, where: str, place: str, required: Iterable[str], optional: Iterable[str]
) -> Mapping[str, Any]:
    record = _object(value, where, place)
    dot = f"{place}." if place else ""
    known = (*required, *optional)
    for name in record:
        if name not in known:
            remedy = f"remove it; known here are {', '.join(known)}"
            _refuse(where, f"{dot}{name}", "is not a known field", remedy)
    for name in required:
        if name not in record:
            _refuse(where, f"{dot}{name}", "is missing", "add it (docs/planning.md)")
    return record


def _object(value: object, where: str, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(where, place, f"is {_shown(value)}, not an object", "write {...}")
    for name in value:
        if not isinstance(name, str) or not name or not name.isprintable():
            remedy = "use visible characters only, at least one"
            _refuse(where, place, f"has the key {_shown(name)}", remedy)
    return value


def _names(value: object, where: str, place: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        _refuse(where, place, f"is {_shown(value)}, not a list", 'write ["name", ...]')
    return tuple(_text(name, where, f"{place}[{i}]") for i, name in enumerate(value))


def _known(
    value: object, partitions: Mapping[str, object], where: str, place: str
) -> tuple[str, ...]:
    names = _names(value, where, place)
    seen = set()
    for name in names:
        if name not in partitions:
            remedy = "name only partitions that are listed under partitions"
            _refuse(where, place, f"names the unknown partition {_shown(name)}", remedy)
        if name in seen:
            _refuse(where, place, f"names {_shown(name)} twice", "name each partition once")
        seen.add(name)
    return names


def _text(value: object, where: str, place: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        _refuse(where, place, f"is {_shown(value)}", "give a name in visible characters")
    return value


def _number(
    value: object,
    where: str,
    place: str,
    number_max: float = NUMBER_MAX,
    *,
    least: str = "from 0",
) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(where, place, f"is {_shown(value)}, not a number", f"give a number {least}")
    if not 0 <= value <= number_max:
        remedy = f"give a number {least} to {number_max:g}"
        _refuse(where, place, f"is {_shown(value)}", remedy)
    return float(value)


def _whole_number(value: object, where: str, place: str) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 0 <= value <= WHOLE_NUMBER_MAX:  # type: ignore[operator]
        _refuse(where, place, f"is {_shown(value)}", "give a whole number from 0")
    return int(value)  # type: ignore[call-overload, no-any-return]


def _shown(value: object) -> str:
    """A value in a message, short and on one line; never a number too long to print."""
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a number beyond all limits"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return short(repr(value) if isinstance(value, str) else json.dumps(value, default=repr))


def _refuse(where: str, place: str, what: str, remedy: str) -> NoReturn:
    raise InputError(where=f"{where}: {short(place)}" if place else where, what=what, remedy=remedy)
