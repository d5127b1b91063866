"""Who acts: the Lease is held only where somebody decides; and how a process is told to end."""

import io
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from shell_world import World

from rekindle.model.errors import RunError
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster.api_client import Api, Body
from rekindle_operator.controller.leader_election import (
    LEASE_SECONDS,
    SUSPENDED_TOO,
    LeaderElection,
)
from rekindle_operator.controller.operator_options import OperatorOptions
from rekindle_operator.controller.wiring import RunningOperator

ENDING_SECONDS = 2.0


@dataclass
class Leases:
    """An API server with one Lease."""

    lease: Body | None = None
    away: bool = False
    delay: Callable[[], None] = lambda: None

    def get(self, path: str) -> Body | None:
        del path
        if self.away:
            raise RunError(where="the API server", what="is away", remedy="it is tried again")
        return self.lease

    def create(self, path: str, body: Body) -> Body:
        return self.replace(path, body)

    def replace(self, path: str, body: Body) -> Body:
        del path
        self.delay()
        version = 0 if self.lease is None else int(self.lease["metadata"]["resourceVersion"])
        metadata = {**body["metadata"], "resourceVersion": str(version + 1)}
        self.lease = {**body, "metadata": metadata}
        return self.lease

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"]["holderIdentity"])


@dataclass
class Elected:
    leads: bool = True
    term: object = 1
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class One:
    """A candidate; `decides` is whether its deciding thread goes on."""

    leases: Leases
    clock: list[float]
    identity: str = "one"
    decides: bool = True
    lease_seconds: int = LEASE_SECONDS
    file: io.StringIO = field(default_factory=io.StringIO)
    elections: list[Elected] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.leadership = LeaderElection(
            cast(Api, self.leases),
            "rekindle",
            "rekindle-operator",
            self.identity,
            Log(self.file),
            elect=self._elect,
            decides=lambda: self.decides,
            clock=lambda: self.clock[0],
            lease_seconds=self.lease_seconds,
        )

    def _elect(self, changed: Any) -> Elected:
        del changed
        self.elections.append(Elected())
        return self.elections[-1]

    def turn(self) -> bool:
        self.leadership.turn()
        return self.leadership.leads

    def said(self) -> list[str]:
        return [json.loads(line)["kind"] for line in self.file.getvalue().splitlines()]


def test_a_lease_is_counted_by_a_clock_that_goes_on_while_a_machine_is_suspended() -> None:
    """Another replica may have taken over meanwhile."""
    leadership = LeaderElection(
        cast(Api, Leases()), "rekindle", "lease", "one", Log(io.StringIO()), cast(Any, None)
    )
    assert leadership.clock == SUSPENDED_TOO
    assert SUSPENDED_TOO.args == (time.CLOCK_BOOTTIME,)


def test_who_does_not_decide_any_more_gives_the_lease_back_and_another_one_takes_it() -> None:
    leases, clock = Leases(), [100.0]
    one, two = One(leases, clock), One(leases, clock, "two")
    assert (one.turn(), two.turn()) == (True, False)
    one.decides = False
    assert (one.turn(), two.turn()) == (False, True)
    assert leases.holder == "two"
    assert one.elections[0].closed
    clock[0] += 2 * LEASE_SECONDS
    assert not one.turn(), "what stands still must not stand for it either"
    assert one.said() == ["lease-held", "lease-failed", "lease-not-held"]


def test_who_decides_again_stands_for_the_lease_again() -> None:
    leases, clock = Leases(), [100.0]
    one = One(leases, clock)
    one.turn()
    one.decides = False
    one.turn()
    one.decides = True
    before = one.leadership.transitions
    assert one.turn()
    assert one.leadership.transitions > before, "a term of its own: somebody may have acted between"


def test_a_lease_that_cannot_be_renewed_is_held_until_its_deadline_and_no_longer() -> None:
    leases, clock = Leases(), [100.0]
    one = One(leases, clock)
    one.turn()
    leases.away = True
    clock[0] += one.leadership.deadline_seconds - 0.1
    assert one.turn()
    clock[0] += 0.2
    assert not one.turn()


def test_a_lease_is_held_from_when_it_was_asked_for_however_late_the_answer_is() -> None:
    leases, clock = Leases(), [100.0]
    one = One(leases, clock)

    def delay() -> None:
        clock[0] += 6.0

    leases.delay = delay
    assert one.turn()
    leases.away = True
    clock[0] = 100.0 + one.leadership.deadline_seconds - 0.1
    assert one.turn()
    clock[0] += 0.2
    assert not one.turn()


def test_a_lease_of_few_seconds_is_given_up_and_taken_over_that_much_sooner() -> None:
    leases, clock = Leases(), [100.0]
    one, two = (One(leases, clock, name, lease_seconds=6) for name in ("one", "two"))
    assert (one.turn(), two.turn()) == (True, False)
    assert leases.lease is not None
    assert leases.lease["spec"]["leaseDurationSeconds"] == 6
    clock[0] += 4.1
    assert not one.leadership.leads, "after two thirds of its time it is not ours"
    assert not two.turn(), "and nobody else's before all of it is over"
    clock[0] += 2.0
    assert two.turn()


def operator() -> RunningOperator:
    nothing = cast(Any, None)
    return RunningOperator(
        options=OperatorOptions("zk:2181", "rekindle"),
        log=Log(io.StringIO()),
        metrics=nothing,
        watchers=(),
        handlers=nothing,
        renewals=nothing,
        leadership=nothing,
        errands=nothing,
        reads=nothing,
        probe=nothing,
        webhook=nothing,
        known=nothing,
        shell=World().coordinator().shell,
    )


def test_a_second_signal_at_any_moment_of_the_first_does_not_hold_the_process_up() -> None:
    ours = operator()

    def stop() -> None:
        sys.setprofile(lambda *_: ours.stop())  # called between any two calls of the first one
        try:
            ours.stop()
        finally:
            sys.setprofile(None)

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    thread.join(ENDING_SECONDS)
    assert not thread.is_alive()
    assert ours.ending
