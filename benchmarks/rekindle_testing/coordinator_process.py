"""A coordinator as a process of its own, for the benchmark and the tests.

A watcher ends it when its owner is gone. It is started again under the same name as often as need
be, and goes on writing the same log.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from rekindle.model.errors import RunError
from rekindle_local import process_sets
from rekindle_local.daemons import Daemon, end_daemons
from rekindle_local.process_reaper import ProcessReaper

START_SECONDS_MAX = 120.0
END_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 60.0
METRIC = "rekindle_coordinator_"


class CoordinatorProcess:
    """`directory` takes logs; `hosts` are the store's servers. With a `console_port` it serves its
    console, too (0: on any port that is free)."""

    def __init__(
        self,
        directory: Path,
        name: str,
        hosts: str,
        *,
        cluster: Path | None = None,
        session_seconds: float = 10.0,
        console_port: int | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / f"{name}.jsonl"
        self._daemon = Daemon(name, directory, None)
        self._watcher: ProcessReaper | None = None
        self._port = 0
        self._command = [
            *(sys.executable, "-m", "rekindle_cli", "coordinator", "--zookeeper", hosts),
            *("--log", str(self.log), "--session-seconds", str(session_seconds), "--port", "0"),
            *(() if cluster is None else ("--cluster", str(cluster))),
            *(() if console_port is None else ("--console-port", str(console_port))),
        ]

    @property
    def process_id(self) -> int:
        """Of the running one."""
        assert self._daemon.leader is not None
        return self._daemon.leader.pid

    @property
    def console_port(self) -> int:
        """Of the console of the newest start."""
        return int(self._started()[-1]["console_port"])

    def start(self) -> None:
        """Start it and wait until it says so. Raises RunError, naming what it printed."""
        if self._watcher is None:
            watcher_log = self._daemon.logs / f"{self._daemon.name}-watcher.log"
            self._watcher = ProcessReaper((), watcher_log)
        starts = self._starts()
        self._daemon.launch(self._command, os.environ, self._watcher)
        process_sets.await_condition(
            lambda: self._starts() > starts or self._daemon.has_ended,
            limit_seconds=START_SECONDS_MAX,
        )
        if self._starts() == starts:
            raise RunError(
                where=str(self._daemon.log), what="it did not start", remedy="read this log"
            )
        self._port = self._started()[-1]["port"]

    def kill(self) -> None:
        """SIGKILL it, if it runs."""
        if self._watcher is not None:
            end_daemons([self._daemon], self._watcher)

    def end(self) -> int | None:
        """SIGTERM it, and SIGKILL it if that does not help; its exit code, None if it did not
        end by itself. Safe to repeat."""
        code = None
        leader = self._daemon.leader
        if leader is not None:
            leader.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                code = leader.wait(END_SECONDS_MAX)
        self.kill()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        return code

    def stop(self) -> None:
        """SIGSTOP it: it stands still with its connections open."""
        process_sets.stop_all(self._daemon.processes, limit_seconds=END_SECONDS_MAX)

    def proceed(self) -> None:
        """SIGCONT it."""
        process_sets.continue_all(self._daemon.processes)

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged; a line that is not complete yet is left out."""
        if not self.log.exists():
            return []
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def metrics(self) -> dict[str, float]:
        """By name without the common beginning, `leads` for example."""
        url = f"http://127.0.0.1:{self._port}/metrics"
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS_MAX) as answer:
            text = answer.read().decode()
        found = (line.split() for line in text.splitlines() if line.startswith(METRIC))
        return {name.removeprefix(METRIC): float(value) for name, value in found}

    def _starts(self) -> int:
        return len(self._started())

    def _started(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["kind"] == "coordinator-started"]
