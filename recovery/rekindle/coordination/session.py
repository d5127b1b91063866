"""One application for a coordinator's shell: a reading goes in, directives come out.

    gather   Reading: the driver's reports, people's orders, what the node provider knows
    decide   `decide(case, reading, now)`: events, then `advance`, then directives
    apply    the shell writes case and directives in one transaction, and asks for nodes

A shell that has written nothing may decide again on a newer reading, so it may be killed at any
moment; two shells that decide at once collide at the transaction. At most one plan is on its way,
and it says on which it builds: a driver that has planned by itself meanwhile refuses it. Pure.

Why: docs/decisions/0032-a-dry-run-decides-and-sends-nothing.md.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

import msgspec

from rekindle import protocol
from rekindle.coordination import buffering_mode, directives, report_diff
from rekindle.coordination import coordination_events as happened
from rekindle.coordination import instructions as told
from rekindle.coordination.coordination_events import Started
from rekindle.coordination.coordination_state import (
    CoordinationState,
    Due,
    NodeStatus,
    NodeView,
    inactive,
    initial,
    with_status,
)
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.coordination.state_machine import advance
from rekindle.model.errors import InputError
from rekindle.model.incidents import Incident, NodeLoss
from rekindle.model.reasons import Reason
from rekindle.model.settings import Policy

# The coordinator's durable state, and how a restarted coordinator continues from it.
#
# Kept is what no report says: incident, losses, plans on their way. Topology, policy, costs and
# sizes come from the driver's reports. So a coordinator that is killed at any moment goes on with
# the plan that it would have made.
#
# Why: docs/decisions/0023-the-coordinator-keeps-what-no-report-says.md.


@dataclass(frozen=True, slots=True)
class PersistedState:
    """The fields of `CoordinationState` of the same names."""

    nodes: Mapping[str, NodeView]
    placement: Mapping[str, str]
    resident: Mapping[str, str]
    charges: Mapping[str, float]
    catching_up: frozenset[str]
    nodes_expected: int
    start: Started | None
    starting: bool
    plan_epoch: int
    unacknowledged: int | None
    incident: Incident | None
    incidents: int
    losses: tuple[NodeLoss, ...]
    last_checkpoint: int | None
    last_checkpoint_at: float | None
    due: Due | None
    holding: bool
    seen_at: float | None
    uneven_since: float | None = None


FIELDS = tuple(PersistedState.__slots__)


def recollect(state: CoordinationState) -> PersistedState:
    """What to keep of a state."""
    return PersistedState(**{name: getattr(state, name) for name in FIELDS})


def recall(fresh: CoordinationState, kept: PersistedState) -> CoordinationState:
    """A fresh state of the same topology with what was kept."""
    return replace(fresh, **{name: getattr(kept, name) for name in FIELDS})


DIGEST_LENGTH = 16
# Grows when what the release before reads in a record would mean something else. New fields and
# new words need no new version: the one are left out, the other mean something careful.
RECORD_VERSION = 1

OfDriver = TypeVar("OfDriver", protocol.ProgressReport, protocol.StatisticsReport)


class Driver(StrEnum):
    """Of an application, as the coordinator sees it: silent has no heartbeat, gone is certain, and
    one that has finished ended in order."""

    THERE = "there"
    SILENT = "silent"
    GONE = "gone"
    FINISHED = "finished"

    @classmethod
    def _missing_(cls, value: object) -> "Driver":
        """A word of a newer release, in a record that it has written: it is looked at again."""
        del value
        return cls.THERE


class Resumption(StrEnum):
    """How far a driver that was started with earlier work is: it is being placed, all of it has
    been and nothing was lost since, or it is like any other."""

    PLACING = "placing"
    PLACED = "placed"
    OVER = "over"

    @classmethod
    def _missing_(cls, value: object) -> "Resumption":
        """A word of a newer release, in a record that it has written: it is like any other."""
        del value
        return cls.OVER


@dataclass(frozen=True, slots=True)
class ApplicationReading:
    """What is known of an application from outside. `nodes_gone`, `driver_gone` and `domains` are
    the node provider's word: processes or machines that are certainly not there any more, and nodes
    with their failure domain; None for a driver that leaves these to its coordinator. `notices` are
    nodes that are announced to go; None where nobody knows, so that those that are known hold on.
    `directives` are the numbers of those that the store has, None where nobody has looked.
    `incidents` is the highest number of an incident that is known elsewhere than in the store."""

    topology: protocol.TopologyReport
    progress: protocol.ProgressReport | None = None
    statistics: protocol.StatisticsReport | None = None
    checkpoint: protocol.CheckpointReport | None = None
    heartbeat: protocol.Heartbeat | None = None
    orders: protocol.Orders = field(default_factory=protocol.Orders)
    nodes_gone: frozenset[str] = frozenset()
    driver_gone: bool = False
    domains: Mapping[str, str] | None = field(default_factory=dict)
    notices: Mapping[str, happened.LossNotice] | None = None
    directives: frozenset[int] | None = None
    incidents: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """An application in the coordinator's hands.

    `version` is of the record; `kept` is what the store holds of `state`; `sequence` the number of
    the newest directive, `base` that of the newest one to an earlier generation, `plan_sequence`
    that of the newest plan; `driver_at` is since when the driver is as it is, None while it was
    never otherwise; `requests` (id -> request) what the node provider is asked for until it is
    there; `resumption` is of the driver of `generation`; `policy` is a digest of the policy that
    `state` has. `taken` (kind -> sequence) are the reports that are in `state` already; not kept.
    """

    version: int = RECORD_VERSION
    generation: int = 0
    sequence: int = 0
    base: int = 0
    plan_sequence: int = 0
    driver: Driver = Driver.THERE
    driver_at: float | None = None
    paused: bool = False
    requests: Mapping[str, NodeRequestOrder] = field(default_factory=dict)
    resumption: Resumption = Resumption.OVER
    policy: str = ""
    kept: PersistedState | None = None
    state: CoordinationState | None = None
    taken: Mapping[str, int] = field(default_factory=dict)

    @property
    def incident(self) -> Incident | None:
        """The incident that is open; none once the run has ended."""
        if self.state is None or self.driver is Driver.FINISHED:
            return None
        return self.state.incident


class _Stamp(msgspec.Struct, frozen=True):
    """What every version of a record has; the first ones had none."""

    version: int = 1


@dataclass(frozen=True, slots=True)
class Decision:
    """The case from now on, whether it must be written, and what goes out with it; `requested` is
    what the node provider is asked for from now on, and was not before."""

    case: Case
    changed: bool
    directives: tuple[protocol.Directive, ...]
    instructions: tuple[told.Instruction, ...]
    requested: tuple[NodeRequestOrder, ...] = ()


def decide(
    case: Case,
    reading: ApplicationReading,
    now: float,
    *,
    clock: Callable[[], float],
    plan: bool = True,
    recover: bool = True,
    dry_run: bool = False,
) -> Decision:
    """What to do about an application now. Without `plan` everything is taken in and noted, but
    no plan is made; without `recover` none as long as an incident is open. In a dry run besides
    nothing goes out that a loss has led to, and nothing that runs moves; a driver that starts, also
    with earlier work, is placed as ever."""
    before = case
    state, case = _opened(case, reading, now)
    progress = _of_generation(reading.progress, case.generation)
    state, case = _caught_up(state, case, progress)
    driver = _driver(reading, case.generation)
    repeated: tuple[told.Instruction, ...] = ()
    if driver is Driver.THERE and _has_lost_directives(case, reading):
        # the newest report is taken again: it says what of the plan has not been done
        case = replace(case, base=case.sequence, plan_sequence=0, taken={})
        repeated = buffering_mode.announce(state, Reason.REPEATED)
    state, instructions = _take_in(state, case, reading, now, clock, dry_run=dry_run)
    instructions = (*repeated, *instructions)
    resumption = _resumption(case.resumption, state)
    withheld = dry_run and not state.starting and resumption is Resumption.OVER
    recover = recover and not withheld
    plan = plan and (recover or state.incident is None) and not reading.orders.paused
    if plan and driver is Driver.THERE and not state.unacknowledged:
        may_move = not dry_run and _has_taken_all(progress, case)
        knows_domains = reading.domains is not None
        tick = happened.Tick(may_move, knows_domains=knows_domains, may_recover=recover)
        state, planned = advance(state, tick, now, clock=clock)
        instructions += planned
    issued = _issue(case, state, reading, progress, instructions, driver, withheld=withheld)
    case = replace(
        case,
        sequence=case.sequence + len(issued),
        plan_sequence=_plan_sequence(case, issued),
        driver=driver,
        driver_at=case.driver_at if driver is case.driver else now,
        paused=reading.orders.paused,
        requests=_requests(case, instructions, state, driver),
        resumption=resumption,
        policy=_policy_digest(before, state),
        kept=case.kept if state is before.state else recollect(state),
        state=state,
        taken=_sequences(reading, case),
    )
    requested = tuple(
        request for name, request in case.requests.items() if name not in before.requests
    )
    return Decision(case, _differs(before, case), issued, instructions, requested)


def awaited(case: Case, progress: protocol.ProgressReport | None) -> range:
    """Numbers of the directives that the driver has been sent and has not looked at."""
    progress = _of_generation(progress, case.generation)
    first = case.base if progress is None else max(case.base, progress.directive)
    return range(first + 1, case.sequence + 1)


def to_record(case: Case) -> bytes:
    """What the store keeps of a case."""
    return msgspec.json.encode(replace(case, version=RECORD_VERSION, state=None, taken={}))


def from_record(data: bytes, where: str) -> Case:
    """The case of an application for a coordinator that has not had it before; InputError when
    what the store keeps is no such record, or of a later version."""
    version = protocol.decode(data, _Stamp, where).version
    if version > RECORD_VERSION:
        raise InputError(
            where=where,
            what=f"is of version {version}; this release reads {RECORD_VERSION}",
            remedy="run the release that wrote it, or a later one; where that cannot be, see "
            "docs/runbooks/RekindleApplicationStopped.md",
        )
    return protocol.decode(data, Case, where)


def _opened(case: Case, reading: ApplicationReading, now: float) -> tuple[CoordinationState, Case]:
    """The state to go on with; a driver's new start begins a new one, its incident goes on."""
    report = reading.topology
    if report.generation == case.generation and case.state is not None:
        return case.state, case
    fresh = initial(
        report.topology,
        _policy(reading, now),
        report.nodes_expected,
        resumed=report.resumed,
        checkpoint_at=report.checkpoint_at,
        hints=report.hints,
    )
    if case.kept is not None and report.generation == case.generation:
        return recall(fresh, case.kept), case
    if case.kept is None:
        # an incident must not take the name of one that is over, and that the store has forgotten
        fresh = replace(fresh, incidents=reading.incidents)
    else:
        fresh = replace(
            fresh,
            plan_epoch=case.kept.plan_epoch,
            incident=case.kept.incident if _goes_on(report, case) else None,
            incidents=case.kept.incidents,
            seen_at=case.kept.seen_at,
        )
    return fresh, replace(
        case,
        generation=report.generation,
        base=case.sequence,
        plan_sequence=0,
        policy="",
        resumption=Resumption.PLACING if report.resumed else Resumption.OVER,
        taken={},
        driver=Driver.THERE,
        driver_at=None,
    )


def _caught_up(
    state: CoordinationState, case: Case, progress: protocol.ProgressReport | None
) -> tuple[CoordinationState, Case]:
    """The case with numbers behind all that the driver has looked at.

    A case whose record was lost, or restored from an older copy, has lower ones, which the driver
    would not look at. Each incident has led to a directive, so as many numbers of incidents are
    left out: a later one must not take the name of one that is over.
    """
    missed = 0 if progress is None else progress.directive - case.sequence
    if missed <= 0:
        return state, case
    newest = case.sequence + missed
    return (
        replace(state, incidents=state.incidents + missed),
        replace(case, sequence=newest, base=newest),
    )


def _has_lost_directives(case: Case, reading: ApplicationReading) -> bool:
    """Whether the store has lost a directive that the driver has not looked at. It would take none
    of those behind it, so all that is on its way is given up, and ordered again where its reports
    say that it has not been done."""
    held = reading.directives
    return held is not None and not held.issuperset(awaited(case, reading.progress))


def _goes_on(report: protocol.TopologyReport, case: Case) -> bool:
    """Whether a new driver goes on with the incident of the one before."""
    return report.resumed and case.driver is not Driver.FINISHED


def _resumption(before: Resumption, state: CoordinationState) -> Resumption:
    """How far it is after everything has been taken in. What is lost while it is being placed
    counts with the start, what is lost afterwards does not."""
    if before is Resumption.OVER or state.start is not None:
        return before
    if state.incident is None or state.incident.is_announced:
        return Resumption.OVER
    waits = bool(inactive(state))
    if before is Resumption.PLACED:
        return Resumption.OVER if waits or with_status(state, NodeStatus.LOST) else before
    return before if waits or state.unacknowledged is not None else Resumption.PLACED


def _take_in(
    state: CoordinationState,
    case: Case,
    reading: ApplicationReading,
    now: float,
    clock: Callable[[], float],
    *,
    dry_run: bool,
) -> tuple[CoordinationState, tuple[told.Instruction, ...]]:
    """Everything that the reading says, in an order that gives no plan a wrong base."""
    instructions: tuple[told.Instruction, ...] = ()

    def tell(events: Iterable[happened.Event]) -> None:
        nonlocal state, instructions
        for event in events:
            state, more = advance(state, event, now, clock=clock)
            instructions += more

    policy = _policy(reading, now)
    if policy != state.policy or _has_missed(case, policy):
        tell([happened.PolicyChanged(policy)])
    domains = reading.domains or {}
    if located := report_diff.located(state, domains):
        tell([happened.NodesLocated(located)])
    charged = frozenset(state.charges)
    for report in _fresh(reading, case):
        if isinstance(report, protocol.ProgressReport) and report.directive >= case.plan_sequence:
            tell([happened.PlanAcknowledged(state.plan_epoch)])
        tell(report_diff.observe(state, report, domains))
    progress = _of_generation(reading.progress, case.generation)
    if progress is not None and (names := report_diff.named(state, progress)):
        tell([happened.NodesNamed(names)])
    driver = _driver(reading, case.generation)
    if dry_run and driver is Driver.THERE and reading.progress is not None:
        tell(report_diff.heard_again(state, reading.progress, reading.nodes_gone))
    if reading.notices is not None and report_diff.notices_differ(state, reading.notices):
        tell([happened.LossesAnnounced(reading.notices)])
    gone = sorted(node for node in reading.nodes_gone if _is_there(state, node))
    if gone and not reading.driver_gone and driver is not Driver.FINISHED:
        tell([happened.NodesLost(tuple(gone))])
    # costs are told first, and those of what caught up then were left out
    statistics = _of_generation(reading.statistics, case.generation)
    if statistics is not None and charged - state.charges.keys() - state.placement.keys():
        tell(report_diff.observe(state, statistics, domains))
    if driver is Driver.GONE and case.driver is not Driver.GONE:
        tell([happened.DriverLost()])
    return state, instructions


def _has_taken_all(progress: protocol.ProgressReport | None, case: Case) -> bool:
    """Whether the driver's report says what it has made of every order."""
    return progress is not None and progress.directive >= case.sequence


def _of_generation(report: OfDriver | None, generation: int) -> OfDriver | None:
    return report if report is not None and report.generation == generation else None


def _fresh(reading: ApplicationReading, case: Case) -> list[report_diff.Observed]:
    """Reports of this generation that are not in the state yet, costs first."""
    reports = (reading.statistics, reading.progress, reading.checkpoint)
    return [
        report
        for report in reports
        if report is not None
        and report.generation == case.generation
        and report.sequence > case.taken.get(_kind(report), -1)
    ]


def _sequences(reading: ApplicationReading, case: Case) -> dict[str, int]:
    return {**case.taken, **{_kind(report): report.sequence for report in _fresh(reading, case)}}


def _kind(report: protocol.Report) -> str:
    return type(report).__name__


def _policy(reading: ApplicationReading, now: float) -> Policy:
    """The application's policy with the priorities that people have set, as long as they hold.
    Batches of protected queries that catch up are limited, and what they take beyond their share
    are slots that nobody else needs: that has no costs of its own."""
    policy = reading.topology.policy
    if reading.topology.program == protocol.PROTECTED_QUERIES:
        policy = replace(policy, catch_up_cost_ratio=0.0)
    if not reading.orders.priorities:
        return policy
    queries = {query.name for query in reading.topology.topology.queries}
    overrides = {
        query: override.priority
        for query, override in reading.orders.priorities.items()
        if query in queries and (override.until is None or now < override.until)
    }
    return replace(policy, priorities={**policy.priorities, **overrides})


def _has_missed(case: Case, policy: Policy) -> bool:
    """Whether the policy has changed since the case was written by a coordinator that is gone: its
    state would have taken that for news."""
    return case.state is None and case.policy not in ("", _digest(policy))


def _policy_digest(before: Case, state: CoordinationState) -> str:
    if before.state is not None and before.state.policy is state.policy and before.policy:
        return before.policy
    return _digest(state.policy)


def _digest(policy: Policy) -> str:
    """The release before knew no goals: without some the same policy has the same digest there."""
    content = msgspec.to_builtins(policy)
    if not policy.lag_goals:
        del content["lag_goals"]
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:DIGEST_LENGTH]


def _issue(
    case: Case,
    state: CoordinationState,
    reading: ApplicationReading,
    progress: protocol.ProgressReport | None,
    instructions: tuple[told.Instruction, ...],
    driver: Driver,
    *,
    withheld: bool,
) -> tuple[protocol.Directive, ...]:
    """What the driver is told; nothing after its run has ended."""
    if driver is Driver.FINISHED:
        return ()
    newest = case.sequence
    wanted = (
        *directives.undropped(state, progress, newest, instructions),
        *instructions,
        *directives.overdue(state, progress, newest, instructions),
        *directives.other_goals(state, progress, newest),
    )
    return directives.issue(
        directives.of_no_loss(wanted, state) if withheld else wanted,
        directives.pausing(reading.orders.paused, case.paused, progress, case.sequence),
        after=case.sequence,
        base=case.base,
        generation=case.generation,
        state=state,
        progress=progress,
    )


def _requests(
    case: Case, instructions: tuple[told.Instruction, ...], state: CoordinationState, driver: Driver
) -> Mapping[str, NodeRequestOrder]:
    """What the node provider is asked for from now on: nothing for a run that has ended."""
    if driver is Driver.FINISHED:
        return {}
    asked = {**case.requests, **directives.requests(instructions, case.generation, state)}
    return directives.outstanding(asked, state, driver_there=driver is Driver.THERE)


def _plan_sequence(case: Case, issued: Iterable[protocol.Directive]) -> int:
    plans = [item.sequence for item in issued if isinstance(item.order, protocol.PlanOrder)]
    return max([case.plan_sequence, *plans])


def _driver(reading: ApplicationReading, generation: int) -> Driver:
    heartbeat, progress = reading.heartbeat, _of_generation(reading.progress, generation)
    if progress is not None and progress.finished:
        return Driver.FINISHED
    if heartbeat is not None and heartbeat.generation == generation:
        return Driver.THERE
    return Driver.GONE if reading.driver_gone else Driver.SILENT


def _is_there(state: CoordinationState, node: str) -> bool:
    view = state.nodes.get(node)
    return view is not None and view.status is not NodeStatus.LOST


def _differs(before: Case, case: Case) -> bool:
    """Whether there is news to write: not for the moment at which we last looked."""

    def lasting(case: Case) -> tuple[object, ...]:
        kept = None if case.kept is None else replace(case.kept, seen_at=None)
        return (
            *(case.generation, case.sequence, case.driver, case.paused, case.requests),
            *(case.resumption, case.policy, kept),
        )

    if case.kept is before.kept and case.sequence == before.sequence:
        return (case.driver, case.paused) != (before.driver, before.paused)
    return lasting(before) != lasting(case)
