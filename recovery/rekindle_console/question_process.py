"""Questions asked of a process of their own, one at a time, with answers that are kept a while.

`ask` waits for nothing: it gives the newest answer, and has the question answered behind the
caller's back where that is old. The pages call it; `close` ends a process that still works.
"""

import logging
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from rekindle_console.console_questions import ConsoleAnswer, ConsoleQuestion

WALL_SECONDS_MAX = 300.0
WAITING_MAX = 8
ANSWERS_MAX = 64
BUSY = "Too much else is being worked out; try again in a while."
FAILED = "It could not be worked out in time."
BROKEN = "It cannot be worked out; the log of this process says why."
LOG = logging.getLogger("rekindle_console")

Make = Callable[[], ConsoleQuestion]


@dataclass(slots=True)
class _Kept:
    basis: object
    answer: ConsoleAnswer
    at: float


@dataclass(slots=True)
class QuestionProcess:
    """Answers of one kind. Each is asked for again when it is `seconds` old and its basis is
    another one by then, or it has failed; and when it is `seconds_max` old."""

    seconds: float
    seconds_max: float
    _kept: OrderedDict[str, _Kept] = field(default_factory=OrderedDict)
    _waiting: OrderedDict[str, tuple[object, Make]] = field(default_factory=OrderedDict)
    _condition: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _process: "subprocess.Popen[bytes] | None" = None
    _ended: bool = False

    def ask(self, key: str, basis: object, make: Make) -> ConsoleAnswer | None:
        """The newest answer, None before the first; `basis` is what it follows from. `make` is
        called on another thread."""
        with self._condition:
            kept = self._kept.get(key)
            if kept is not None and self._is_fresh(kept, basis):
                return kept.answer
            if key not in self._waiting:
                if len(self._waiting) >= WAITING_MAX:
                    return kept.answer if kept else ConsoleAnswer(time.time(), trouble=BUSY)
                self._waiting[key] = (basis, make)
                self._start()
                self._condition.notify_all()
            return None if kept is None else kept.answer

    def await_answer(self, key: str, seconds: float) -> None:
        """Wait until a question has an answer, or for so long."""
        with self._condition:
            self._condition.wait_for(lambda: key in self._kept or self._ended, seconds)

    def close(self) -> None:
        """End, with what works for us."""
        with self._condition:
            self._ended = True
            self._waiting.clear()
            process = self._process
            self._condition.notify_all()
        if process is not None:
            process.kill()
        if self._thread is not None:
            self._thread.join(5.0)

    def _is_fresh(self, kept: _Kept, basis: object) -> bool:
        age = time.monotonic() - kept.at
        same = age < self.seconds_max and kept.basis == basis and not kept.answer.trouble
        return age < self.seconds or same

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="console-asker", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._ended)
                if self._ended:
                    return
                key, (basis, make) = next(iter(self._waiting.items()))
            answer = self._answer(make)
            with self._condition:
                self._waiting.pop(key, None)
                self._kept[key] = _Kept(basis, answer, time.monotonic())
                self._kept.move_to_end(key)
                while len(self._kept) > ANSWERS_MAX:
                    self._kept.popitem(last=False)
                self._condition.notify_all()

    def _answer(self, make: Make) -> ConsoleAnswer:
        try:
            data = msgspec.json.encode(make())
        except Exception:  # a bug of ours; the next question is answered all the same
            LOG.exception("a question of the console cannot be asked")
            return ConsoleAnswer(time.time(), trouble=BROKEN)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "rekindle_console.console_questions"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # a signal to a terminal's group is not for it
            )
        except OSError as error:
            return ConsoleAnswer(time.time(), trouble=f"{FAILED} ({error.strerror})")
        with self._condition:
            self._process = process
            ended = self._ended
        if ended:
            process.kill()
        try:
            found, _ = process.communicate(data, WALL_SECONDS_MAX)
            return msgspec.json.decode(found, type=ConsoleAnswer)
        except (subprocess.TimeoutExpired, msgspec.DecodeError, OSError):
            return ConsoleAnswer(time.time(), trouble=FAILED)
        finally:
            process.kill()
            process.wait()
            with self._condition:
                self._process = None
