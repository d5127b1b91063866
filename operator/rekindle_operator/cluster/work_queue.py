"""Work items that take a while and may fail: a few threads run them, one at a time for each key.

Whoever decides never waits for the API server: it leaves an errand under a key. An errand left
again before it was done replaces the one before, so what is done is always the newest. One that
fails is tried again, later and later; that of another key does not wait for it.

Why: docs/decisions/0028-only-the-decision-waits.md.
"""

import heapq
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from rekindle.model.errors import RekindleError
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster.api_client import NotLeading, ObjectConflict

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.5, 30.0
Errand = Callable[[], float | None]


@dataclass(slots=True)
class WorkQueue:
    """An errand returns after how many seconds it is to be done again, or None."""

    log: Log
    threads: int = 8
    _errands: dict[str, Errand] = field(default_factory=dict)
    _due: list[tuple[float, str]] = field(default_factory=list)
    _at: dict[str, float] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _failures: dict[str, int] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    _ending: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def start(self) -> None:
        """Begin."""
        for number in range(self.threads):
            threading.Thread(target=self._work, name=f"errands-{number}", daemon=True).start()

    def stop(self) -> None:
        """Begin no other one."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def leave(self, key: str, errand: Errand, *, delay_seconds: float = 0.0) -> None:
        """Do this under a key, soon; one that waits for its time does not wait longer."""
        with self._changed:
            self._errands[key] = errand
            if key not in self._failures:
                self._plan(key, time.monotonic() + delay_seconds)
            self._changed.notify()

    def clear(self) -> None:
        """Forget all that was left: somebody else acts."""
        with self._changed:
            for known in (self._errands, self._at, self._failures, self._said):
                known.clear()
            self._due.clear()

    @property
    def waiting(self) -> int:
        """How many are left, or being done."""
        with self._changed:
            return len(self._errands.keys() | self._busy)

    @property
    def failing(self) -> int:
        """How many have failed and are tried again."""
        with self._changed:
            return len(self._failures)

    def _plan(self, key: str, at: float) -> None:
        if at < self._at.get(key, float("inf")):
            self._at[key] = at
            heapq.heappush(self._due, (at, key))

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            key, errand = taken
            again: float | None = None
            failed = True
            try:
                again = errand()
                failed = False
            except NotLeading:
                failed = False
            except RekindleError as trouble:
                self._note(key, str(trouble))
            except Exception as error:
                # a bug of ours in one errand must not end the thread of all others
                text = f"{type(error).__name__}: {error}"
                self._note(key, text, traceback.format_exc())
            self._done(key, errand, again, failed=failed)

    def _take(self) -> tuple[str, Errand] | None:
        with self._changed:
            while not self._ending:
                now = time.monotonic()
                key = self._next(now)
                if key is not None:
                    self._busy.add(key)
                    return key, self._errands.pop(key)
                wait = self._due[0][0] - now if self._due else None
                self._changed.wait(None if wait is None else max(0.01, wait))
        return None

    def _next(self, now: float) -> str | None:
        """The next key whose time has come and that nobody is busy with."""
        while self._due and self._due[0][0] <= now:
            at, key = heapq.heappop(self._due)
            if self._at.get(key) != at or key not in self._errands:
                continue
            del self._at[key]
            if key not in self._busy:  # who is busy with it looks again when that is done
                return key
        return None

    def _done(self, key: str, errand: Errand, again: float | None, *, failed: bool) -> None:
        with self._changed:
            self._busy.discard(key)
            if failed:
                count = self._failures[key] = self._failures.get(key, 0) + 1
                again = min(RETRY_SECONDS_MIN * 2 ** (count - 1), RETRY_SECONDS_MAX)
                self._at.pop(key, None)
            else:
                self._failures.pop(key, None)
                self._said.pop(key, None)
            if again is not None:
                self._errands.setdefault(key, errand)
                self._plan(key, time.monotonic() + again)
            elif key in self._errands:
                self._plan(key, time.monotonic())
            self._changed.notify_all()

    def _note(self, key: str, text: str, trace: str = "") -> None:
        """Say once why an errand fails."""
        if self._said.get(key) == text:
            return
        self._said[key] = text
        more = {"trace": trace} if trace else {}
        self.log.write("api-write-failed", errand=key, text=text, **more)


# A thread that looks after something: a turn, a pause, a turn, until it is closed.
#
# What goes wrong is logged once as long as it stays the same, and tried again with the next turn; a
# bug too, for a thread that ends here is missed by nobody until a certificate has expired.
# `store_certificate` and `webhook_upkeep` look after the certificates in such threads, and
# `coordination_risks` asks the store's servers in one.


@dataclass(slots=True)
class UpkeepThread:
    """`turn` does what is due; `pause_seconds` is asked after each one. `report` logs the text of
    what it raises. A conflict is no trouble: the next turn reads the object again."""

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
            self._note(str(trouble))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of cryptography is no Exception
            self._note(f"{type(error).__name__}: {error}")

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            self.report(trouble)
        self._trouble = trouble

    def _run(self) -> None:
        while not self._ending.is_set():
            self.take_turn()
            self._ending.wait(self.pause_seconds())
