"""A record that a driver was about to write arrives late: another driver has started meanwhile.

    set ──the driver is at the record──► held ──another takes the next generation──► succeeded
                                                                                        │
    over ◄── a third starts ◄── the second is killed ◄── the first has ended ◄──────────┘
                    (of a checkpoint alone)                       after some seconds, or of a
                                                                  checkpoint after a commit

The driver's Python stands still with all checks behind it (`sabotage.sitecustomize`); its JVM dies,
so that executors go to the next one, as with a put that is on its way when its machine is gone. Of
a checkpoint, the put arrives once the second driver has committed output, and this one dies before
it has a checkpoint of its own: a third one reads what both have left.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rekindle.model import record_format
from rekindle.model.errors import RekindleError
from rekindle_chaos.trials import Fault
from rekindle_local import process_sets
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_store import commit_log, store_files

LOOK_SECONDS = 0.05
# A checkpoint may not be due while something is behind, and a slow machine is behind for long.
WAIT_SECONDS_MAX = 90.0
# What the second driver is waited for: the machine may be slow.
SUCCESSOR_SECONDS_MAX = 150.0
COMMITS_LOOKED_AT = 20

Action = Callable[[], None]


@dataclass(slots=True)
class LatePut:
    """One such fault. `plan` has something done at a time, `succeed` starts another driver beside
    the one that stands still, `again` kills the driver and starts another one."""

    fault: Fault
    driver: DriverProcess
    traps: Path
    plan: Callable[[float, Action], None]
    succeed: Action
    again: Action

    def begin(self) -> None:
        """Set the trap."""
        self._trap.touch()
        self._await_held(self.fault.at)

    @property
    def _trap(self) -> Path:
        return self.traps / f"late-put-{self.fault.what}"

    def _await_held(self, at: float) -> None:
        """Wait until the driver, whichever it is by now, stands still; at last give it up."""
        older = self.driver.process
        assert older is not None
        mark = self.traps / f"held-{older.pid}"
        self._let_go(mark)
        if mark.exists():
            mark.unlink()
            _kill_jvm(older)
            before = _newest_generation(self.driver.store)
            self.succeed()
            self._await_time(older, before, at, at + self.fault.seconds)
        elif at < self.fault.at + WAIT_SECONDS_MAX:
            self.plan(at + LOOK_SECONDS, partial(self._await_held, at + LOOK_SECONDS))
        else:
            self._trap.unlink(missing_ok=True)

    def _let_go(self, mark: Path) -> None:
        """Let another driver go on that stands still at the trap: one that was superseded before it
        came to it. It would keep its executors for ever. The trap is set again."""
        for other in self.traps.glob("held-*"):
            if other != mark:
                other.unlink()
                with suppress(ProcessLookupError):
                    os.killpg(int(other.name.removeprefix("held-")), signal.SIGCONT)
                self._trap.touch()

    def _await_time(
        self, older: subprocess.Popen[bytes], before: int, at: float, end: float
    ) -> None:
        is_checkpoint = self.fault.what == "checkpoints"
        if at < end + SUCCESSOR_SECONDS_MAX and not self._is_time(before, at >= end):
            later = at + LOOK_SECONDS
            self.plan(later, partial(self._await_time, older, before, later, end))
            return
        with suppress(ProcessLookupError):
            os.killpg(older.pid, signal.SIGCONT)
        if is_checkpoint:
            self._await_end(older, at)

    def _is_time(self, before: int, is_over: bool) -> bool:
        """Whether the second driver has got where the record is to meet it."""
        if self.fault.what == "checkpoints":
            return _has_committed(self.driver.store, before)
        return is_over and _newest_generation(self.driver.store) > before

    def _await_end(self, older: subprocess.Popen[bytes], at: float) -> None:
        if older.poll() is None:
            self.plan(at + LOOK_SECONDS, partial(self._await_end, older, at + LOOK_SECONDS))
        else:
            self.again()


def _kill_jvm(driver: subprocess.Popen[bytes]) -> None:
    found = process_sets.session_processes(driver.pid)
    javas = [pid for pid in found if _name(pid) == "java"]
    process_sets.signal_all(javas, signal.SIGKILL)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _newest_generation(store: Path) -> int:
    found = (store / "generations").glob("[0-9]*.json")
    return max((int(path.stem) for path in found), default=0)


def _has_committed(store: Path, before: int) -> bool:
    """Whether a driver after that generation has made output count."""
    with suppress(OSError, RekindleError):
        place = store_files.at(store)
        newest = commit_log.newest(place)
        for number in range(newest, max(0, newest - COMMITS_LOOKED_AT), -1):
            name = f"commits/{number}.json"
            record = record_format.decode("commit", place.read(name), name)
            if record["generation"] <= before:
                return False
            if record["outputs"]:
                return True
    return False
