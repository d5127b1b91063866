"""Whose orders the driver follows: the coordinator's, or its own when nobody can be asked.

    confer: reports ──► the same core, in here ──► own orders, carried out only when alone
                   └──► sidecar ──► coordinator ──► directives, taken or refused

The core in the driver takes in every report, so it can go on at once with the incident that is
under way. It knows no priorities that people have set meanwhile, and no failure domains: where
placement is by these, it moves nothing but off slow nodes. A driver without a sidecar is always
alone, each of its nodes a domain by itself. `control_loop` confers, and carries out what is given
back. A plan may take its solver's whole budget, so it is made in a thread of its own: epochs go on.
"""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from rekindle import coordination, protocol
from rekindle.coordination import ApplicationReading, Case, directive_acceptance
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle.coordination.instructions import Instruction
from rekindle.model.errors import RekindleError
from rekindle_spark.control import report_builder
from rekindle_spark.driver import driver_clock

REPORT_SECONDS = 5.0
# Costs are measured every 5 s. Those that stay about as they are go out less often: else a third of
# what is written to the store would say nothing new.
STATISTICS_SECONDS = 30.0
COST_STEP_SHARE, COST_STEP_PERCENT = 0.2, 1.0
# Most decisions are made at once; who waits for the others holds up epochs.
PLANNING_WAIT_SECONDS = 0.05


class CoordinatorContact(Protocol):
    """A sidecar, as seen from here: nothing blocks."""

    @property
    def contact_at(self) -> float:
        """When the store was last known to answer, by time.monotonic()."""

    @property
    def led(self) -> bool:
        """Whether a coordinator leads, as far as is known."""

    @property
    def waiting(self) -> bool:
        """Whether there are directives to be looked at."""

    @property
    def fenced(self) -> RekindleError | None:
        """Why this driver must stop: FencedError once a newer one is known, InputError once another
        store's history is."""

    @property
    def unreadable(self) -> frozenset[int]:
        """Directives that have been refused because this version cannot read them."""

    @property
    def refusals(self) -> Mapping[str, str]:
        """By kind of message why the last one was refused."""

    def report(self, report: protocol.Report) -> None:
        """Send a report; a newer one of its kind takes its place if it waits."""

    def directives(self) -> list[protocol.Directive]:
        """What has come since the last call; `looked_at` says what has been looked at."""

    def looked_at(self, sequence: int) -> None:
        """Directives up to this one need not be given again."""

    def acknowledge(self, acknowledgement: protocol.Acknowledgement) -> None:
        """Say what became of a directive."""


class DriverReports(Protocol):
    """What a driver says of itself, as it is now: pipelines and protected queries each have one."""

    statistics: protocol.StatisticsReport | None
    checkpoint: protocol.CheckpointReport | None
    refused: Mapping[str, str]
    finished: bool

    def progress(self, following: AcceptedDirectives, *, alone: bool) -> protocol.ProgressReport:
        """Where everything is now."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to carry out, in order. `instructions` are for the event log: empty for orders that
    came from a coordinator, which has a log of its own."""

    directives: tuple[protocol.Directive, ...]
    instructions: tuple[Instruction, ...]


Reports = TypeVar("Reports", bound=DriverReports)


@dataclass(slots=True)
class CoordinatorClient(Generic[Reports]):
    """The driver's standing towards its coordinator, and its own coordinator's case."""

    topology: protocol.TopologyReport
    reports: Reports
    following: AcceptedDirectives
    contact: CoordinatorContact | None = None
    case: Case = field(default_factory=Case)
    told: dict[str, object] = field(default_factory=dict)
    reported_at: float = 0.0
    costs: protocol.StatisticsReport | None = None
    costs_at: float = 0.0
    complaints: dict[str, str] = field(default_factory=dict)
    planner: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="planning")
    )
    planning: Future[coordination.Decision] | None = None

    @property
    def closures(self) -> Mapping[str, frozenset[str]]:
        """Per query partition, the partitions that it needs."""
        return {} if self.case.state is None else self.case.state.closures

    @property
    def priorities(self) -> dict[str, float]:
        """Per query partition, as the core in here knows them."""
        return {} if self.case.state is None else dict(self.case.state.priorities)

    @property
    def waiting(self) -> bool:
        """Whether an order has come in, or a plan of one's own is made."""
        is_planned = self.planning is not None and self.planning.done()
        return is_planned or (self.contact is not None and self.contact.waiting)

    @property
    def fenced(self) -> RekindleError | None:
        """Why this driver must stop: FencedError once a newer one is known, InputError once another
        store's history is."""
        return None if self.contact is None else self.contact.fenced

    def refused(self) -> list[tuple[str, str]]:
        """Kinds of reports that are refused, each with why, where that is new."""
        refusals = {} if self.contact is None else self.contact.refusals
        news = [item for item in refusals.items() if self.complaints.get(item[0]) != item[1]]
        self.complaints = dict(refusals)
        return news

    @property
    def alone(self) -> bool:
        """Whether nobody else decides."""
        return directive_acceptance.is_alone(self.following, time.monotonic())

    def confer(self, paused: bool) -> Advice:
        """Say how things are, and learn what to do."""
        self._hear()
        alone = self.alone
        progress = self._progress(alone)
        decision = self._decided(progress, paused, alone)
        if self.contact is not None:
            self._send(self.contact, progress)
        if not alone:
            return Advice(self._taken(progress.epoch), ())
        if decision is None:
            return Advice((), ())
        return Advice(self._own(decision.directives), decision.instructions)

    def disown_plans(self) -> None:
        """Refuse all plans that are on their way: they know nothing of what has just been lost.
        Costs go out with the next report, however little they have changed."""
        self.planning, self.costs = None, None
        self.following = directive_acceptance.planned(self.following, self.following.plan_epoch + 1)

    def finish(self) -> None:
        """Say that the run has ended in order."""
        self.reports.finished = True
        self.report_now()

    def report_now(self) -> None:
        """Report progress at once: at the end, and where whoever reports otherwise waits for the
        checkpoint store. On any thread."""
        if self.contact is not None:
            self.contact.report(self._progress(self.alone))

    def _progress(self, alone: bool) -> protocol.ProgressReport:
        self.reports.refused = {} if self.contact is None else self.contact.refusals
        return self.reports.progress(self.following, alone=alone)

    def _hear(self) -> None:
        if self.contact is not None:
            self.following = directive_acceptance.contacted(
                self.following, self.contact.contact_at, led=self.contact.led
            )

    def _decided(
        self, progress: protocol.ProgressReport, paused: bool, alone: bool
    ) -> coordination.Decision | None:
        """The core's own decision; None while it is being made.

        It is of how things were when it was asked for, as a coordinator's is. One that is asked for
        while this driver was alone, and comes when it is not, is nobody's.
        """
        if not alone or self.case.state is None:
            self.planning = None
            decision = self._decide(progress, paused, alone)
        else:
            if self.planning is None:
                self.planning = self.planner.submit(self._decide, progress, paused, alone)
            if not wait([self.planning], PLANNING_WAIT_SECONDS).done:
                return None
            decision, self.planning = self.planning.result(), None
        self.case = decision.case
        return decision

    def _decide(
        self, progress: protocol.ProgressReport, paused: bool, alone: bool
    ) -> coordination.Decision:
        """Ask the core, which has seen its own orders all carried out. It does not know the goals
        for lags that a coordinator has ordered, so it is not asked about them: they go on to hold.
        """
        own = msgspec.structs.replace(progress, directive=self.case.sequence, lag_goals=None)
        reading = ApplicationReading(
            topology=self.topology,
            progress=own,
            statistics=self.reports.statistics,
            checkpoint=self.reports.checkpoint,
            heartbeat=protocol.Heartbeat(generation=self.topology.generation, since=0.0),
            orders=protocol.Orders(paused=paused),
            domains={} if self.contact is None else None,
        )
        return coordination.decide(
            self.case, reading, driver_clock.now(), clock=time.monotonic, plan=alone
        )

    def _own(self, directives: tuple[protocol.Directive, ...]) -> tuple[protocol.Directive, ...]:
        plans = [
            item.plan_epoch for item in directives if isinstance(item.order, protocol.PlanOrder)
        ]
        for plan_epoch in plans:
            self.following = directive_acceptance.planned(self.following, plan_epoch)
        return directives

    def _taken(self, epoch: int) -> tuple[protocol.Directive, ...]:
        """The coordinator's directives that are to be carried out; all are acknowledged."""
        if self.contact is None:
            return ()
        taken = []
        for directive in self.contact.directives():
            if directive.after in self.contact.unreadable:
                self.following = directive_acceptance.passed(self.following, directive.after)
            if directive_acceptance.is_early(self.following, directive):
                continue
            self.following, why = directive_acceptance.take(self.following, directive)
            self.contact.looked_at(self.following.directive)
            self.contact.acknowledge(
                protocol.Acknowledgement(
                    sequence=directive.sequence,
                    generation=self.topology.generation,
                    outcome="refused" if why else "done",
                    epoch=epoch,
                    plan_epoch=self.following.plan_epoch,
                    text=why,
                )
            )
            if not why:
                taken.append(directive)
        return tuple(taken)

    def _is_news(self, statistics: protocol.StatisticsReport, now: float) -> bool:
        """Whether costs are to be reported: others than those that were, or not for long."""
        known = self.costs
        if (
            known is not None
            and now - self.costs_at < STATISTICS_SECONDS
            and known.costs.keys() == statistics.costs.keys()
            and known.state_bytes.keys() == statistics.state_bytes.keys()
            and _are_close(known.overhead_percent, statistics.overhead_percent)
            and all(_are_close(known.costs[name], cost) for name, cost in statistics.costs.items())
        ):
            return False
        self.costs, self.costs_at = statistics, now
        return True

    def _send(self, contact: CoordinatorContact, progress: protocol.ProgressReport) -> None:
        """Send what is new: progress when more than its moment has changed, or now and then."""
        assert self.case.state is not None
        statistics = self.reports.statistics
        if statistics is not None:
            known = self.case.state
            statistics = msgspec.structs.replace(
                statistics, costs=dict(known.costs), overhead_percent=known.overhead_percent
            )
        now = time.monotonic()
        if statistics is not None and not self._is_news(statistics, now):
            statistics = None
        for report in (self.topology, statistics, self.reports.checkpoint):
            if report is not None and self.told.get(type(report).__name__) != report.sequence:
                self.told[type(report).__name__] = report.sequence
                contact.report(report)
        gist = report_builder.gist(progress)
        if self.told.get("gist") != gist or now - self.reported_at > REPORT_SECONDS:
            self.told["gist"], self.reported_at = gist, now
            contact.report(progress)


def _are_close(before: float, after: float) -> bool:
    """Of costs in percent of a core."""
    return abs(after - before) <= max(COST_STEP_PERCENT, COST_STEP_SHARE * before)
