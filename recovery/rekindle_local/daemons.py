"""One daemon of the cluster, master or worker, with everything that runs below it; groups of them.

A daemon is held together by a cgroup, or else by its session. It is launched behind a gate, awaited
by a line of its log, and ended whole. Which daemons there are, and when, is up to spark_cluster.py.
"""

import re
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rekindle.model.errors import RunError, TimeLimitError
from rekindle_local import cgroups, process_sets
from rekindle_local.process_reaper import ProcessReaper

START_SECONDS_MAX = 120.0
KILL_SECONDS_MAX = 30.0
# A line of a log in which Java says what has gone wrong; the last one has the first cause.
_CAUSE = re.compile(r"^(?:Caused by: )?((?:\w+\.)+\w*(?:Exception|Error)\b.*)$", re.MULTILINE)
CAUSE_SIGNS_MAX = 200


class DaemonGroup(ABC):
    """Daemons that run inside a `with` block."""

    @abstractmethod
    def start(self) -> None:
        """Start all of them; where one does not come up, none is left running."""

    @abstractmethod
    def close(self) -> None:
        """End all of them. Safe to repeat."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class Daemon:
    """A master or worker: `leader` is its process while it runs, `starts` counts its lives."""

    name: str
    logs: Path
    group: cgroups.Group | None
    leader: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def log(self) -> Path:
        """The log of its present life."""
        return self.logs / f"{self.name}-{self.starts}.log"

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended, or was never started."""
        return self.leader is None or self.leader.poll() is not None

    def processes(self) -> tuple[int, ...]:
        """Ids of the daemon's living processes and of all below it."""
        if self.group is not None:
            return self.group.processes()
        return () if self.leader is None else process_sets.session_processes(self.leader.pid)

    def launch(
        self, command: Sequence[str], environment: Mapping[str, str], watcher: ProcessReaper
    ) -> None:
        """Start the daemon in its cgroup, or in a session that the watcher knows.

        Raises `RunError` when the watcher is gone: nothing may run that it does not know.
        """
        self.starts += 1
        self.leader = process_sets.start_gated(
            command,
            environment=environment,
            entrances=() if self.group is None else self.group.entrances,
            log=self.log,
        )
        if self.group is None:
            try:
                watcher.add(self.leader.pid)
            except BrokenPipeError as error:
                raise RunError(
                    where=str(self.logs / "watcher.log"),
                    what="the watcher has ended",
                    remedy="read this log, and close the cluster",
                ) from error
        process_sets.open_gate(self.leader)

    def await_line(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Wait for a line in the log. Raises `RunError`, naming the log, when it does not come."""
        leader = self.leader
        assert leader is not None
        process_sets.await_condition(
            lambda: leader.poll() is not None or self._search_log(pattern) is not None,
            limit_seconds=START_SECONDS_MAX,
        )
        match = self._search_log(pattern)
        if match is not None:
            return match
        code = leader.poll()
        end = f"not up within {START_SECONDS_MAX:.0f} s" if code is None else f"exit code {code}"
        if causes := _CAUSE.findall(self.log.read_text(errors="replace")):
            end += f", {causes[-1][:CAUSE_SIGNS_MAX]}"
        raise (TimeLimitError if code is None else RunError)(
            where=str(self.log), what=f"{self.name} did not start: {end}", remedy="read this log"
        )

    def bury(self, watcher: ProcessReaper) -> None:
        """Wait for the leader, dead or still at the gate. From here on its number is free."""
        if self.leader is None:
            return
        self.leader.kill()
        if self.group is None:
            watcher.drop(self.leader.pid)
        self.leader.wait()
        self.leader = None

    def _search_log(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.search(self.log.read_text(errors="replace"))


def end_daemons(ending: Sequence[Daemon], watcher: ProcessReaper) -> None:
    """SIGKILL all processes of these daemons, as close together as can be; wait until none is left.

    Raises `RunError` when one does not die within 30 s.
    """

    def list_processes() -> tuple[int, ...]:
        return tuple(pid for daemon in ending for pid in daemon.processes())

    process_sets.signal_all(list_processes(), signal.SIGKILL)
    for daemon in ending:
        if daemon.group is not None:
            daemon.group.lift_quota()  # a throttled process needs its turn to die
    left = process_sets.kill_all(list_processes, limit_seconds=KILL_SECONDS_MAX)
    if left:
        raise RunError(
            where=f"processes {list(left)}",
            what=f"still there {KILL_SECONDS_MAX:.0f} s after SIGKILL",
            remedy="see in /proc/PID/stack what the kernel does with them",
        )
    for daemon in ending:
        daemon.bury(watcher)
