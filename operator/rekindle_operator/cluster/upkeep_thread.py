"""A thread that looks after something: a turn, a pause, a turn, until it is closed.

What goes wrong is logged once as long as it stays the same, and tried again with the next turn.
`store_certificate` and `webhook_upkeep` look after the certificates in such threads.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from rekindle.model.errors import RekindleError
from rekindle_operator.cluster.api_client import ObjectConflict


@dataclass(slots=True)
class UpkeepThread:
    """`turn` does what is due; `pause_seconds` is asked after each one. `report` logs the text of a
    RekindleError of it. A conflict is none: the next turn reads the object again."""

    name: str
    turn: Callable[[], object]
    pause_seconds: Callable[[], float]
    report: Callable[[str], object]
    _trouble: str = ""
    _ending: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Take turns until `close` is called."""
        threading.Thread(target=self._run, name=self.name, daemon=True).start()

    def close(self) -> None:
        """End after the present turn."""
        self._ending.set()

    def take_turn(self) -> None:
        """One turn, whatever becomes of it."""
        try:
            self.turn()
            self._trouble = ""
        except ObjectConflict:
            pass
        except RekindleError as trouble:
            if str(trouble) != self._trouble:
                self.report(str(trouble))
            self._trouble = str(trouble)

    def _run(self) -> None:
        while not self._ending.is_set():
            self.take_turn()
            self._ending.wait(self.pause_seconds())
