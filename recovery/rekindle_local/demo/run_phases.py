"""Waiting within the phases of a run: for a condition, with a limit, or for a while.

What happens meanwhile is polled, and somebody is told now and then what is waited for. Called by
the scenarios of the demo and of its peers.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.model.errors import RunError

# Longer waits are told of: on a machine with much else to do each phase takes its time.
WAITING_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Phases:
    """Whose run it is, the driver's log, what looks at all that is new and rests a little, who is
    told, and how long a condition is waited for."""

    whose: str
    log: Path
    poll: Callable[[], None]
    show: Callable[[dict[str, Any]], None]
    seconds_max: float

    def let_pass(self, seconds: float) -> None:
        """Let the application run for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.poll()

    def await_that(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until something holds; RunError when that takes too long."""
        begin = told_at = time.monotonic()
        while not condition():
            self.poll()
            if time.monotonic() - told_at > WAITING_SECONDS:
                told_at = time.monotonic()
                self.show({"kind": "not-yet", "until": what})
            if time.monotonic() - begin > self.seconds_max:
                raise self.too_long(what, self.seconds_max)

    def too_long(self, what: str, seconds: float) -> RunError:
        """The error when something was waited for in vain."""
        return RunError(
            where=self.whose,
            what=f"waited {seconds:.0f} s until {what}",
            remedy=f"see {self.log} and the logs beside it",
        )
