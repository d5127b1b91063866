"""What tests on real processes wait for, and what goes on meanwhile."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rekindle_local import process_sets

SECONDS_MAX = 180.0


def wait_until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until something is so; a failure after SECONDS_MAX says `what` was waited for."""
    assert process_sets.await_condition(lambda: bool(condition()), limit_seconds=SECONDS_MAX), what


@contextmanager
def repeated(step: Callable[[], object], every_seconds: float) -> Iterator[None]:
    """Inside, another thread takes the step again and again, with such a pause before each."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(every_seconds):
            step()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
