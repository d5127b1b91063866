"""Who of a policy recovers, where no more than some may at once."""

from collections.abc import Sequence

from rekindle_operator.policies.concurrency_limiter import RecoveryClaim, reached

PLANNED = RecoveryClaim("flights/a", planned=True, since=20.0)
OLDEST = RecoveryClaim("flights/b", planned=False, since=10.0)
NEWER = RecoveryClaim("flights/c", planned=False, since=30.0)


def ahead(application: str, claims: Sequence[RecoveryClaim], most: int) -> tuple[str, ...]:
    """Those that fill the limit before an application, none where it may go on."""
    limit = reached(application, claims, most, "policy all")
    return () if limit is None else limit.holders


def test_as_many_as_may_go_on_do() -> None:
    assert ahead("flights/a", [PLANNED, OLDEST], 2) == ()
    assert ahead("flights/b", [PLANNED, OLDEST], 2) == ()
    assert ahead("flights/c", [PLANNED, OLDEST, NEWER], 2) == ("flights/a", "flights/b")


def test_one_that_has_had_a_plan_goes_on_although_an_older_one_waits() -> None:
    assert ahead("flights/b", [OLDEST, PLANNED], 1) == ("flights/a",)
    assert ahead("flights/a", [OLDEST, PLANNED], 1) == ()


def test_of_those_that_wait_the_oldest_is_next() -> None:
    assert ahead("flights/b", [NEWER, OLDEST], 1) == ()
    assert ahead("flights/c", [NEWER, OLDEST], 1) == ("flights/b",)


def test_one_of_which_nothing_is_known_yet_is_the_newest() -> None:
    assert ahead("flights/d", [PLANNED], 1) == ("flights/a",)
    assert ahead("flights/d", [PLANNED], 2) == ()
    assert ahead("flights/d", [], 1) == ()
