"""Whose turn it is among the incidents of a policy, as decisions come."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from rekindle.coordination.session import Case, Driver
from rekindle.protocol.store_paths import Place
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.policies.concurrency_limiter import Limiter
from rekindle_operator.policies.effective_policy import Effective

FIRST, SECOND = Place("flights", "arrivals"), Place("flights", "departures")
ONE_AT_ONCE = cast(Effective, SimpleNamespace(concurrent_recoveries_max=1))


def limiter() -> Limiter:
    """Both applications are of one policy, which needs no approval."""
    known: Any = SimpleNamespace(
        application=lambda _: SimpleNamespace(policy="flights/all"),
        approved=lambda *_: True,
        changed=set(),
    )
    return Limiter(cast(ClusterView, known))


def case(plans: int, began_at: float, *, is_announced: bool = False) -> Case:
    """With an incident that is open."""
    incident = SimpleNamespace(plans=plans, began_at=began_at, is_announced=is_announced)
    return Case(state=cast(Any, SimpleNamespace(incident=incident)))


def test_the_second_incident_waits_until_the_first_one_is_over() -> None:
    ours = limiter()
    ours.decided(FIRST, case(plans=1, began_at=10.0))
    ours.decided(SECOND, case(plans=0, began_at=20.0))
    assert ours.ahead(FIRST, ONE_AT_ONCE) == ()
    assert ours.ahead(SECOND, ONE_AT_ONCE) == (str(FIRST),)
    ours.decided(FIRST, Case())
    assert ours.ahead(SECOND, ONE_AT_ONCE) == ()
    assert SECOND in ours.known.changed


def test_a_run_that_has_ended_in_its_incident_keeps_nobody_waiting() -> None:
    ours, running = limiter(), case(plans=1, began_at=10.0)
    ours.decided(FIRST, running)
    ours.decided(SECOND, case(plans=0, began_at=20.0))
    ours.decided(FIRST, replace(running, driver=Driver.FINISHED))
    assert ours.ahead(SECOND, ONE_AT_ONCE) == ()


def test_losses_that_are_only_announced_keep_nobody_waiting() -> None:
    ours = limiter()
    ours.decided(FIRST, case(plans=0, began_at=10.0, is_announced=True))
    ours.decided(SECOND, case(plans=0, began_at=20.0))
    assert ours.ahead(SECOND, ONE_AT_ONCE) == ()
    ours.decided(FIRST, case(plans=0, began_at=10.0))
    assert ours.ahead(SECOND, ONE_AT_ONCE) == (str(FIRST),)
