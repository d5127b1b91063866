"""Operators and webhooks as processes of their own, started, stopped, killed and read by tests."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from rekindle_local import process_sets
from rekindle_local.daemons import Daemon, end_daemons
from rekindle_local.process_reaper import ProcessReaper

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 60.0
LEAD_SECONDS_MAX = 180.0


class LoggedProcess:
    """A process of `python -m MODULE` that logs JSON lines, and `ready` once it is; `directory`
    takes its log."""

    module: str
    started: str

    def __init__(self, directory: Path, name: str, *options: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = directory / f"{name}.jsonl"
        self._marked = 0
        self._daemon = Daemon(name, directory, None)
        self._watcher: ProcessReaper | None = None
        self._command = [
            *(sys.executable, "-m", self.module, "--log", str(self.log)),
            *options,
        ]

    def start(self) -> None:
        """Start it and wait until it has seen everything."""
        if self._watcher is None:
            self._watcher = ProcessReaper((), self._daemon.logs / f"{self.name}-watcher.log")
        self.kill()  # what is left of an earlier one
        before = len(self._all("ready"))
        self._daemon.launch(self._command, os.environ, self._watcher)
        there = process_sets.await_condition(
            lambda: len(self._all("ready")) > before or self.ended,
            limit_seconds=START_SECONDS_MAX,
        )
        assert there, "it does not start"
        assert not self.ended, self._daemon.log.read_text()[-3_000:]

    @property
    def ended(self) -> bool:
        return self._daemon.has_ended

    def kill(self) -> None:
        """SIGKILL it."""
        if self._watcher is not None:
            end_daemons([self._daemon], self._watcher)

    def end(self) -> int | None:
        """SIGTERM it; its exit code, None if it did not end by itself."""
        leader = self._daemon.leader
        if leader is None:
            return None
        self.proceed()
        leader.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            return leader.wait(STOP_SECONDS_MAX)
        return None

    def close(self) -> None:
        """End it in order, so that the store forgets it at once."""
        self.end()
        self.kill()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def stop(self) -> None:
        """SIGSTOP it."""
        process_sets.stop_all(self._daemon.processes, limit_seconds=STOP_SECONDS_MAX)

    def proceed(self) -> None:
        process_sets.continue_all(self._daemon.processes)

    def mark(self) -> None:
        """A test begins: what was said before does not concern it."""
        self._marked = self.log.stat().st_size if self.log.exists() else 0

    def lines(self, kind: str = "") -> list[dict[str, Any]]:
        """What it has logged since the mark, of a kind or all of it."""
        return self._read(kind, self._marked)

    def page(self, path: str) -> str:
        port = self._all(self.started)[-1]["port"]
        url = f"http://127.0.0.1:{port}{path}"
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS_MAX) as answer:
            text: str = answer.read().decode()
            return text

    def metric(self, name: str) -> float:
        found = [line for line in self.page("/metrics").splitlines() if line.startswith(name)]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    def _all(self, kind: str) -> list[dict[str, Any]]:
        return self._read(kind, 0)

    def _read(self, kind: str, since: int) -> list[dict[str, Any]]:
        if not self.log.exists():
            return []
        whole = self.log.read_bytes()[since:].rpartition(b"\n")[0]
        found = [json.loads(line) for line in whole.splitlines()]
        return [line for line in found if kind in ("", line["kind"])]

    @property
    def process_id(self) -> int:
        """Of the process that runs."""
        leader = self._daemon.leader
        assert leader is not None
        return leader.pid


class OperatorProcess(LoggedProcess):
    """The command `rekindle-operator`; without `--webhook` it has none to look after."""

    module, started = "rekindle_operator", "operator-started"

    def __init__(self, directory: Path, name: str, *options: str) -> None:
        webhook = () if "--webhook" in options else ("--no-webhook",)
        super().__init__(directory, name, "--identity", name, "--port", "0", *webhook, *options)

    def lead(self) -> None:
        """Start it unless it runs, and wait until it is the one that acts."""
        if self.ended:
            self.start()
        there = process_sets.await_condition(lambda: self.acts, limit_seconds=LEAD_SECONDS_MAX)
        assert there, "it does not act"

    @property
    def acts(self) -> bool:
        return not self.ended and self.metric("rekindle_operator_leader") == 1


class WebhookProcess(LoggedProcess):
    """The command `rekindle-webhook`."""

    module, started = "rekindle_operator.webhook", "webhook-started"

    def __init__(self, directory: Path, name: str, *options: str) -> None:
        super().__init__(directory, name, "--port", "0", "--health-port", "0", *options)

    @property
    def webhook_port(self) -> int:
        """Where its webhook listens."""
        return int(self._all("webhook-serves")[-1]["port"])
