"""The run of a peer in phases, each of which waits for a condition.

    start ─all nodes take part─► every query puts out ─lag is level─► failure
          ─► nodes return one by one ─(next failure)─► all queries are back ─► finish ─► end
          ─lag grows all the time─► end

Nodes die and come back as in the demo: at the same times, in the same order, with the quota put on
when they take part. Everything else is the system's own doing, seen through its events. Raises
RunError when a phase takes too long.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle_local import failure_schedule
from rekindle_local.demo.demo_display import Display
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.demo.run_phases import WAITING_SECONDS, Phases
from rekindle_local.flights import flight_pipeline
from rekindle_local.local_nodes import CPU_QUOTA, LocalNodes
from rekindle_peers import freshness, lateness
from rekindle_peers.freshness import Commits
from rekindle_peers.peer_table import Peer

POLL_SECONDS = 0.1
JUDGE_SECONDS = 2.0
BACK_SECONDS_MAX = 300.0
LATELY_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class PeerTrial:
    """What is asked for. `victims` are the nodes that each failure kills, `names` the queries.

    The failure comes when lag has neither grown nor fallen for `settle_seconds`. There is none
    where a query has put out nothing for `output_seconds_max`, or lag then grows for
    `settle_seconds_max`. A trial that is not `judged` lets it grow. Nodes come back from
    `first_return_seconds` after a failure on, one every `return_every_seconds`; back is a query
    that was not late for `back_seconds`, longer than a batch that is level only for a moment.
    Batches of Structured Streaming begin every `trigger_seconds`, at 0 as soon as they can. Nodes
    have so many `slots`, else those of the peer.
    """

    rows_per_second: float
    victims: Sequence[Sequence[str]]
    names: Sequence[str] = tuple(flight_pipeline.QUERY_KEYS)
    nodes: int = 10
    cpu_quota: float = CPU_QUOTA
    seed: int = 1
    every_seconds: float = 0.0
    first_return_seconds: float = failure_schedule.FIRST_SECONDS
    return_every_seconds: float = failure_schedule.EVERY_SECONDS
    back_seconds: float = 20.0
    settle_seconds: float = 60.0
    output_seconds_max: float = 360.0
    settle_seconds_max: float = 240.0
    phase_seconds_max: float = 900.0
    judged: bool = True
    trigger_seconds: float = 0.0
    slots: int | None = None

    @property
    def priorities(self) -> dict[str, int]:
        """Of the queries that run, by the seed."""
        ranks = flight_pipeline.priorities(self.seed)
        return {name: ranks[name] for name in self.names}

    def display(self) -> Display:
        """What a person sees of such a run."""
        return Display(self.priorities, dict.fromkeys(self.names, 1))


@dataclass(slots=True)
class PeerScenario:
    """One run. `records` collects the driver's events and this one's, by wall clock.

    `ask` asks for so many nodes, `check` raises what went wrong with their starts, `up` is kept by
    who starts them: those that have been started, for peers that do not tell. `cpu` reads CPU
    seconds by what they were for. Afterwards `sustained` says whether lag was bounded, so that
    there was a failure and all rows are out, `growths` how it grew before, and `cpu_shares` how
    many cores were used from the warm-up to the failure.
    """

    trial: PeerTrial
    peer: Peer
    machines: LocalNodes
    driver: DriverProcess
    ask: Callable[[int], None]
    check: Callable[[], None]
    show: Callable[[dict[str, Any]], None]
    up: set[str]
    cpu: Callable[[], Mapping[str, float]] = dict
    records: list[dict[str, Any]] = field(default_factory=list)
    joined: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    failures: list[float] = field(default_factory=list)
    growths: dict[str, float] = field(default_factory=dict)
    sustained: bool = False
    cpu_shares: dict[str, float] = field(default_factory=dict)
    commits: Commits = field(init=False)
    _limits: dict[str, float] = field(default_factory=dict)
    _phases: Phases = field(init=False)

    def __post_init__(self) -> None:
        self.commits = Commits(tuple(self.trial.names))
        limit = self.trial.phase_seconds_max + self.trial.every_seconds
        self._phases = Phases(self.peer.label, self.driver.log, self._poll, self.show, limit)

    def run(self) -> None:
        """All phases after machines and driver have been started."""
        self._phases.await_that("all nodes take part", self._is_whole)
        self._settle()
        if not self.sustained:
            return
        for victims in self.trial.victims:
            self._phases.await_that("the next failure is due", self._is_due)
            self._kill(victims)
            self._phases.await_that("all nodes are back", self._is_whole)
        self._follow()
        self.driver.request_finish()
        self._phases.await_that("the driver has finished", lambda: "finish" in self.kinds)
        self._phases.await_that("the driver has ended", lambda: self.driver.ended)

    @property
    def failure_at(self) -> float:
        """When the first failure was; before it, infinitely far."""
        return self.failures[0] if self.failures else float("inf")

    @property
    def _count(self) -> int:
        return len(self.trial.names)

    @property
    def kept_up_rows_per_second(self) -> float:
        """What the slowest query has kept up with lately, when compilers had had their time, or
        with its last batch, if that took longer; 0 where one has put out nothing."""
        begin = time.time() - LATELY_SECONDS
        lately = {
            name: lateness.since(self.commits.of.get(name, ()), begin) for name in self.trial.names
        }
        return freshness.rows_per_second(lately)

    def _settle(self) -> None:
        """Wait until lag has neither grown nor fallen for a while, and no input waits. For outputs,
        and then for lag that gets no better, one may wait so long; for lag that does, and for
        batches that are too few to tell, as long as for any phase."""
        until = time.time() + self.trial.output_seconds_max
        self._phases.await_that(
            "every query has put out",
            lambda: len(self.commits.of) == self._count or time.time() > until,
        )
        begin, settle = time.time(), self.trial.settle_seconds_max
        before = self.cpu()
        self._note("warm")
        self.show({"kind": "phase", "text": "waiting until lag is level"})
        while len(self.commits.of) == self._count and not self.sustained:
            self._phases.let_pass(JUDGE_SECONDS)
            waited = time.time() - begin
            if waited > (settle if self._is_stuck() else self.trial.phase_seconds_max):
                break
            self._judge(begin, time.time())
        seconds = max(time.time() - begin, POLL_SECONDS)
        self.cpu_shares = {
            what: (used - before.get(what, 0.0)) / seconds for what, used in self.cpu().items()
        }
        said = "is level" if self.sustained else "is not bounded"
        self.show({"kind": "phase", "text": f"lag {said} at {self.trial.rows_per_second:,.0f}/s"})

    def _is_stuck(self) -> bool:
        """Whether lag grows, or input waits that does not get less."""
        if not self.growths or lateness.fall(self.growths):
            return False
        now = time.time()
        waits = lateness.waits(self.commits.of, now - self.trial.settle_seconds / 2, now)
        return waits > 0 or not lateness.sustained(self.growths)

    def _judge(self, begin: float, now: float) -> None:
        """See whether lag is bounded, level, and the time that input needs, not that it waits."""
        commits = self.commits.of
        since = lateness.settled_since(commits, now, self.trial.settle_seconds)
        if since is None or since < begin:
            return
        self.growths = lateness.growths(commits, since, now)
        self.sustained = not self.trial.judged or (
            lateness.sustained(self.growths)
            and lateness.level(commits, since, now)
            and lateness.waits(commits, since, now) == 0
        )

    def _kill(self, victims: Sequence[str]) -> None:
        now = time.time()
        if not self.failures:
            begin = now - self.trial.settle_seconds
            self._limits = lateness.limits(self.commits.of, begin, now)
        self.failures.append(now)
        self.joined -= set(victims)
        self.up -= set(victims)
        self.machines.kill(victims)
        for node in victims:
            self._note("kill", at=now, node=node)
        self.ask(len(victims))

    def _is_due(self) -> bool:
        last = self.failures[-1] if self.failures else 0.0
        return time.time() >= last + self.trial.every_seconds

    def _is_whole(self) -> bool:
        if not self.peer.tells_joined:
            for node in sorted(self.up - self.joined):
                self._join(node, "")
        return len(self.joined) == self.trial.nodes

    def _follow(self) -> None:
        """Wait until all queries are back; for those that are not for minutes, no longer."""
        end = time.time() + BACK_SECONDS_MAX
        hold = self.trial.back_seconds
        self._phases.let_pass(hold)
        told_at = time.time()
        while time.time() < end:
            now = time.time()
            behind = lateness.late(self.commits.of, self._limits, now - hold, now)
            if not behind:
                return
            if now - told_at > WAITING_SECONDS:
                told_at = now
                self.show({"kind": "phase", "text": f"{behind} of {self._count} queries are late"})
            self._phases.let_pass(JUDGE_SECONDS)

    def _poll(self) -> None:
        for record in self.driver.fresh_events():
            self._take(record)
        self.driver.check()
        self.check()
        time.sleep(POLL_SECONDS)

    def _take(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        self.kinds.add(record["kind"])
        self.commits.add(record)
        self.show(record)
        is_new = record["kind"] == "joined" and record["node"] not in self.joined
        # Spark tells of an executor before it has a port, too
        if is_new and self.peer.tells_joined:
            self._join(record["node"], record["executor"])

    def _join(self, node: str, executor: str) -> None:
        """A node takes part: from here on it has no more than its quota."""
        self.joined.add(node)
        self.machines.enforce_quota(node)
        self._note("returned", node=node, executor=executor)

    def _note(self, kind: str, at: float | None = None, **fields: Any) -> None:
        record = {"version": 1, "at": at or time.time(), "kind": kind, **fields}
        self.records.append(record)
        self.show(record)
