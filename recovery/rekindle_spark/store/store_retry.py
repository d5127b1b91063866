"""Waits for a store that cannot be reached, or is full, instead of failing at once.

What is done is done again until it works, so it must be such that this is the same as once. A store
that is away holds up whatever wants to write to it; nothing could count meanwhile in any case.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rekindle.model.errors import RunError

RETRY_SECONDS = 0.5

Result = TypeVar("Result")


@dataclass(slots=True)
class StoreRetry:
    """For at most `seconds`, for the store that `where` names. `say` is told when the waiting
    begins, with the cause, and when it ends, with None."""

    seconds: float = 0.0
    say: Callable[[str | None], None] = lambda _: None
    where: str = "checkpoint store"

    def through(self, action: Callable[[], Result]) -> Result:
        """Do it until it works. FileExistsError is an answer, and passed on."""
        began: float | None = None
        while True:
            try:
                result = action()
            except FileExistsError:
                self._tell_end(began)
                raise
            except OSError as error:
                if began is None:
                    began = time.monotonic()
                    self.say(str(error))
                if time.monotonic() - began > self.seconds:
                    raise self._exhausted(error) from error
                time.sleep(RETRY_SECONDS)
            else:
                self._tell_end(began)
                return result

    def _tell_end(self, began: float | None) -> None:
        if began is not None:
            self.say(None)

    def _exhausted(self, error: OSError) -> RunError:
        return RunError(
            where=self.where,
            what=f"could not be reached or written for {self.seconds:.0f} s ({error})",
            remedy="see that it is there and has room, and start again: committed output stays",
        )
