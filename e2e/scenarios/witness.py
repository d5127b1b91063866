"""What driver and operator say, as one record of a run, by wall clock.

The driver's event file lies on the shared volume. Each operator's pod writes its log to standard
output; a thread follows each, so that what a pod has said before its node died is kept.
"""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from rekindle.errors import RunError
from rekindle_local.event_files import EventFile
from scenarios import helm

__all__ = ["Witness"]

POLL_SECONDS = 0.2
WAIT_SECONDS_MAX = 600.0
OPERATORS = "app.kubernetes.io/component=operator"


@dataclass(slots=True)
class Witness:
    """`records` grows with each `look`. `core` is the official client's."""

    core: Any
    events: Path
    records: list[dict[str, Any]] = field(default_factory=list)
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    _followed: dict[str, threading.Thread] = field(default_factory=dict)
    _said: list[dict[str, Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _file: EventFile | None = None
    _heard: set[bytes] = field(default_factory=set)

    def look(self) -> None:
        """Take in what has been said since the last look."""
        self._follow_operators()
        if self._file is None:
            self._file = EventFile(self.events)
        with self._lock:
            said, self._said = self._said, []
        for record in (*self._file.fresh(), *said):
            self.records.append(record)
            self.latest[record["kind"]] = record

    def note(self, kind: str, at: float | None = None, **fields: Any) -> None:
        """Something that the scenario itself has done or seen."""
        self.records.append({"version": 1, "at": at or time.time(), "kind": kind, **fields})

    def of_kind(self, kind: str, since: float = 0.0) -> list[dict[str, Any]]:
        """Records of a kind from a moment on."""
        return [one for one in self.records if one["kind"] == kind and one["at"] >= since]

    def await_that(self, what: str, condition: Callable[[], Any]) -> None:
        """Look until it holds. Raises `RunError` when it does not for a long time."""
        end = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            if time.monotonic() > end:
                raise RunError(
                    where="the scenario",
                    what=f"waited {WAIT_SECONDS_MAX:.0f} s until {what}",
                    remedy=f"see the events in {self.events}, and logs of pods beside them",
                )
            time.sleep(POLL_SECONDS)
            self.look()

    def _follow_operators(self) -> None:
        with suppress(ApiException, HTTPError):
            pods = self.core.list_namespaced_pod(
                helm.NAMESPACE, label_selector=OPERATORS, field_selector="status.phase=Running"
            )
            for pod in pods.items:
                name = pod.metadata.name
                if name not in self._followed or not self._followed[name].is_alive():
                    thread = threading.Thread(target=self._follow, args=(name,), daemon=True)
                    self._followed[name] = thread
                    thread.start()

    def _follow(self, pod: str) -> None:
        """One operator's log, until it ends."""
        with suppress(ApiException, HTTPError):
            answer = self.core.read_namespaced_pod_log(
                pod, helm.NAMESPACE, follow=True, _preload_content=False
            )
            rest = b""
            for piece in answer.stream():
                *lines, rest = (rest + piece).split(b"\n")
                with self._lock:
                    fresh = [one for one in lines if one[:1] == b"{" and one not in self._heard]
                    self._heard.update(fresh)  # a log that is followed again begins again
                    self._said += [{**json.loads(line), "operator": pod} for line in fresh]
