"""Whose turn it is among the incidents of a policy and of a class, as decisions come."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from operator_world import policy

from rekindle.coordination.session import Case, Driver
from rekindle.protocol.store_paths import Place
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.policies.concurrency_limiter import Limiter
from rekindle_operator.policies.effective_policy import Effective, ReachedLimit, effective
from rekindle_testing.operator_builders import make_class

FIRST, SECOND = Place("flights", "arrivals"), Place("flights", "departures")
OTHERS = Place("trains", "arrivals"), Place("trains", "departures")


def held(policy_max: int = 1, class_max: int = 100, class_name: str = "default") -> Effective:
    """What holds of a policy, as far as limits go."""
    class_: Any = make_class(limits={"concurrentRecoveriesMax": class_max})
    found = effective(policy(), class_)
    return replace(found, class_name=class_name, concurrent_recoveries_max=policy_max)


ONE_AT_ONCE = held()


def limiter(**policies: Effective) -> Limiter:
    """All applications of a namespace are of one policy, which needs no approval."""
    known: Any = SimpleNamespace(
        application=lambda place: SimpleNamespace(policy=f"{place.namespace}/all"),
        approved=lambda *_: True,
        changed=set(),
        effective=lambda name: policies.get(name.partition("/")[0], ONE_AT_ONCE),
    )
    return Limiter(cast(ClusterView, known))


def holders(ours: Limiter, place: Place, terms: Effective) -> tuple[str, ...]:
    """Those that keep an application waiting, none where it may go on."""
    limit = ours.reached(place, terms)
    return () if limit is None else limit.holders


def case(plans: int, began_at: float, *, is_announced: bool = False) -> Case:
    """With an incident that is open."""
    incident = SimpleNamespace(plans=plans, began_at=began_at, is_announced=is_announced)
    return Case(state=cast(Any, SimpleNamespace(incident=incident)))


def test_the_second_incident_waits_until_the_first_one_is_over() -> None:
    ours = limiter()
    ours.decided(FIRST, case(plans=1, began_at=10.0))
    ours.decided(SECOND, case(plans=0, began_at=20.0))
    assert holders(ours, FIRST, ONE_AT_ONCE) == ()
    assert holders(ours, SECOND, ONE_AT_ONCE) == (str(FIRST),)
    ours.decided(FIRST, Case())
    assert holders(ours, SECOND, ONE_AT_ONCE) == ()
    assert SECOND in ours.known.changed


def test_a_run_that_has_ended_in_its_incident_keeps_nobody_waiting() -> None:
    ours, running = limiter(), case(plans=1, began_at=10.0)
    ours.decided(FIRST, running)
    ours.decided(SECOND, case(plans=0, began_at=20.0))
    ours.decided(FIRST, replace(running, driver=Driver.FINISHED))
    assert holders(ours, SECOND, ONE_AT_ONCE) == ()


def test_a_class_counts_the_recoveries_of_all_its_policies() -> None:
    terms = held(policy_max=10, class_max=2)
    ours = limiter(flights=terms, trains=terms)
    ours.decided(FIRST, case(plans=1, began_at=10.0))
    ours.decided(OTHERS[0], case(plans=1, began_at=20.0))
    ours.decided(OTHERS[1], case(plans=0, began_at=5.0))
    ours.decided(SECOND, case(plans=0, began_at=30.0))
    assert holders(ours, OTHERS[1], terms) == (str(FIRST), str(OTHERS[0]))
    assert holders(ours, SECOND, terms) == (str(FIRST), str(OTHERS[0]))
    assert holders(ours, FIRST, terms) == holders(ours, OTHERS[0], terms) == ()
    ours.known.changed.clear()
    ours.decided(FIRST, Case())
    assert ours.known.changed == {SECOND, OTHERS[1]}, "of all policies, those that wait"
    assert holders(ours, OTHERS[1], terms) == ()


@pytest.mark.parametrize(
    ("terms", "owner"),
    [
        (held(policy_max=1, class_max=2), "policy all"),
        (held(policy_max=1, class_max=1, class_name="shared"), "class shared"),
    ],
)
def test_the_limit_that_can_be_raised_is_named(terms: Effective, owner: str) -> None:
    ours = limiter(flights=terms)
    ours.decided(FIRST, case(plans=1, began_at=10.0))
    ours.decided(SECOND, case(plans=0, began_at=20.0))
    assert ours.reached(SECOND, terms) == ReachedLimit(owner, 1, (str(FIRST),))


def test_the_limit_of_a_class_names_recoveries_of_all_its_policies() -> None:
    terms = held(policy_max=10, class_max=2, class_name="shared")
    ours = limiter(flights=terms, trains=terms)
    ours.decided(FIRST, case(plans=1, began_at=10.0))
    ours.decided(OTHERS[0], case(plans=1, began_at=20.0))
    ours.decided(SECOND, case(plans=0, began_at=30.0))
    named = (str(FIRST), str(OTHERS[0]))
    assert ours.reached(SECOND, terms) == ReachedLimit("class shared", 2, named)


def test_policies_of_another_class_do_not_count() -> None:
    terms = held(policy_max=10, class_max=1)
    ours = limiter(flights=terms, trains=held(10, 1, class_name="other"))
    for number, other in enumerate(OTHERS):
        ours.decided(other, case(plans=1, began_at=number))
    ours.decided(FIRST, case(plans=1, began_at=10.0))
    ours.decided(SECOND, case(plans=0, began_at=20.0))
    assert holders(ours, SECOND, terms) == (str(FIRST),)


def test_the_first_of_a_policy_never_waits_for_the_class() -> None:
    terms = held(policy_max=10, class_max=1)
    ours = limiter(flights=terms, trains=terms)
    for number, other in enumerate(OTHERS):
        ours.decided(other, case(plans=1, began_at=number))
    ours.decided(FIRST, case(plans=0, began_at=10.0))
    ours.decided(SECOND, case(plans=0, began_at=20.0))
    assert holders(ours, FIRST, terms) == ()
    assert holders(ours, SECOND, terms) != ()


def test_what_waits_for_its_own_policy_takes_no_place_of_the_class() -> None:
    strict, terms = held(policy_max=1, class_max=2), held(policy_max=10, class_max=2)
    ours = limiter(flights=terms, trains=strict)
    for number, other in enumerate(OTHERS):
        ours.decided(other, case(plans=0, began_at=number))
    ours.decided(FIRST, case(plans=0, began_at=10.0))
    assert holders(ours, OTHERS[1], strict) == (str(OTHERS[0]),)
    assert holders(ours, FIRST, terms) == ()
    ours.decided(SECOND, case(plans=0, began_at=20.0))
    assert holders(ours, SECOND, terms) == (str(OTHERS[0]), str(FIRST))


def test_losses_that_are_only_announced_keep_nobody_waiting() -> None:
    ours = limiter()
    ours.decided(FIRST, case(plans=0, began_at=10.0, is_announced=True))
    ours.decided(SECOND, case(plans=0, began_at=20.0))
    assert holders(ours, SECOND, ONE_AT_ONCE) == ()
    ours.decided(FIRST, case(plans=0, began_at=10.0))
    assert holders(ours, SECOND, ONE_AT_ONCE) == (str(FIRST),)
