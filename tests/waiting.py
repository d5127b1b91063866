"""What tests on real processes wait for."""

from collections.abc import Callable

from rekindle_local import process_sets

SECONDS_MAX = 180.0


def wait_until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until something is so; a failure after SECONDS_MAX says `what` was waited for."""
    assert process_sets.await_condition(lambda: bool(condition()), limit_seconds=SECONDS_MAX), what
