"""A console's reader over values that tests make up, and applications to put into it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from standing_world import Desk, running, short_of_capacity

from rekindle.coordination import session
from rekindle.coordination.coordination_state import NodeView
from rekindle.coordination.session import ApplicationReading, Case
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol import Heartbeat, NodeSeen, ProgressReport, StatisticsReport, TopologyReport
from rekindle_console.console_reader import (
    ApplicationRecord,
    PastIncident,
    PlanRecord,
    ProcessRecord,
)
from rekindle_console.page_addresses import Address, parse
from rekindle_console.page_router import Made, Pages

NOW = 1_000_000.0
MARKUP = "<script>alert(1)</script>\"'&"


@dataclass
class Values:
    """A reader that gives what it is given."""

    records: list[ApplicationRecord] = field(default_factory=list)
    made_plans: dict[str, list[PlanRecord]] = field(default_factory=dict)
    past: dict[str, list[PastIncident]] = field(default_factory=dict)
    leads: bool = True
    reads: int = 0
    trouble: Exception | None = None

    def process(self) -> ProcessRecord:
        return ProcessRecord("coordinator", "host:1", self.leads, store_reachable=True)

    def applications(self) -> Sequence[ApplicationRecord]:
        self.reads += 1
        if self.trouble is not None:
            raise self.trouble
        return self.records

    def plans(self, application: str) -> Sequence[PlanRecord]:
        return self.made_plans.get(application, [])

    def incidents(self, application: str) -> Sequence[PastIncident]:
        return self.past.get(application, [])


def record_of(desk: Desk, name: str = "team/flights", trouble: str = "") -> ApplicationRecord:
    return ApplicationRecord(name, desk.case, desk.reading, trouble)


def healthy(name: str = "team/flights") -> ApplicationRecord:
    return record_of(running(), name)


def short(name: str = "team/short") -> ApplicationRecord:
    """One with an open incident, in which a query waits."""
    return record_of(short_of_capacity(), name)


def unreported(name: str = "team/new") -> ApplicationRecord:
    return ApplicationRecord(name, Case(), None)


def many_queries(count: int, name: str = "team/large", text: str = "query") -> ApplicationRecord:
    """An application of so many queries, half of which run; names begin with `text`."""
    names = [f"{text}-{index:04}" for index in range(count)]
    topology = Topology(
        operators=tuple(TopologyOperator(item, 1) for item in names),
        edges=(),
        queries=tuple(Query(item, item, 1 + index % 10) for index, item in enumerate(names)),
    )
    placed = {f"{item}/0": "node-1" for item in names[: count // 2]}
    report = TopologyReport(
        generation=1,
        sequence=0,
        program="p",
        topology=topology,
        policy=Policy(),
        nodes_expected=1,
    )
    reading = ApplicationReading(
        topology=report,
        progress=ProgressReport(
            generation=1,
            sequence=1,
            nodes={"node-1": NodeSeen(incarnation="a", capacity_percent=100.0)},
            placement=placed,
            live=tuple(placed),
            plan_epoch=1,
            lags={item: float(index % 50) for index, item in enumerate(names)},
        ),
        statistics=StatisticsReport(generation=1, sequence=0, costs=dict.fromkeys(placed, 0.01)),
        heartbeat=Heartbeat(generation=1, since=NOW - 100),
    )
    decision = session.decide(Case(), reading, NOW, clock=float, plan=False)
    return ApplicationRecord(name, decision.case, reading)


def with_nodes(record: ApplicationRecord, names: Sequence[str]) -> ApplicationRecord:
    """The application with these nodes besides its own."""
    assert record.case.state is not None
    view = next(iter(record.case.state.nodes.values()))
    assert isinstance(view, NodeView)
    nodes = {**record.case.state.nodes, **dict.fromkeys(names, view)}
    assert record.reading is not None
    progress = record.reading.progress
    assert progress is not None
    seen = next(iter(progress.nodes.values()))
    reported = {**progress.nodes, **dict.fromkeys(names, seen)}
    state = replace(record.case.state, nodes=nodes)
    reading = replace(
        record.reading, progress=msgspec.structs.replace(progress, sequence=99, nodes=reported)
    )
    return replace(record, case=replace(record.case, state=state), reading=reading)


def page(values: Values, target: str = "/", **fields: Any) -> Made:
    """The page of a path with parameters."""
    pages = Pages(values, **fields)
    try:
        return pages.make(address(target), NOW)
    finally:
        pages.close()


def address(target: str) -> Address:
    path, _, rest = target.partition("?")
    found = parse(path, dict(parse_qsl(rest)))
    assert found is not None, target
    return found
