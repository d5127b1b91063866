"""The operator as a process of its own, measured from outside.

A watcher ends it when its owner is gone. `operator_at_scale` starts and reads it.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any, Self

from operator_benchmark.cpu_waits import CpuWaits
from rekindle.model.errors import RunError
from rekindle_local import process_sets
from rekindle_local.daemons import Daemon, end_daemons
from rekindle_local.process_reaper import ProcessReaper

START_SECONDS_MAX = 600.0
NAME = "operator"


class OperatorProcess:
    """A context manager: inside, it runs. `directory` takes its log; `options` are its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / f"{NAME}.jsonl"
        self._daemon = Daemon(NAME, directory, None)
        self._waits: CpuWaits | None = None
        self._command = [
            *(sys.executable, "-m", "rekindle_operator", "--identity", NAME),
            *("--log", str(self.log), "--port", "0", *options),
        ]

    def __enter__(self) -> Self:
        self._watcher = ProcessReaper((), self._daemon.logs / f"{NAME}-watcher.log")
        self._daemon.launch(self._command, os.environ, self._watcher)
        process_sets.await_condition(
            lambda: bool(self.lines("ready")) or self.ended,
            limit_seconds=START_SECONDS_MAX,
            interval_seconds=0.2,
        )
        if self.ended or not self.lines("ready"):
            self.__exit__(None, None, None)
            raise RunError(
                where=NAME,
                what="does not start",
                remedy=f"see {self._daemon.log} and {self.log}",
            )
        self._waits = CpuWaits(self.process_id).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._waits is not None:
            self._waits.__exit__()
        end_daemons([self._daemon], self._watcher)
        self._watcher.close()

    @property
    def process_id(self) -> int:
        """Of the one that runs."""
        assert self._daemon.leader is not None
        return self._daemon.leader.pid

    @property
    def cpu_seconds(self) -> float:
        """CPU time so far, of all its threads."""
        return process_sets.cpu_seconds([self.process_id])

    def waited_seconds(self, since: float, until: float) -> float:
        """How long the thread that waited longest for a CPU did so between two moments (since
        1970)."""
        assert self._waits is not None
        return self._waits.longest(since, until)

    @property
    def resident_megabytes(self) -> float:
        """Memory now, in MiB."""
        return process_sets.resident_bytes(self.process_id) / (1 << 20)

    @property
    def resident_megabytes_max(self) -> float:
        """The most memory that it ever had, in MiB."""
        lines = Path(f"/proc/{self.process_id}/status").read_text().splitlines()
        (found,) = [line for line in lines if line.startswith("VmHWM")]
        return int(found.split()[1]) / 1024

    def check(self) -> None:
        """Raises RunError when it has ended."""
        if self.ended:
            raise RunError(where=NAME, what="has ended", remedy=f"see {self._daemon.log}")

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """What it has logged of a kind; a line that is not complete yet is left out."""
        if not self.log.exists():
            return []
        whole = self.log.read_text().rpartition("\n")[0]
        sign = f'"kind": "{kind}"'
        return [json.loads(line) for line in whole.splitlines() if sign in line]

    def metrics(self) -> dict[str, float]:
        """All figures without labels, by name."""
        port = self.lines("operator-started")[-1]["port"]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in found}

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._daemon.has_ended
