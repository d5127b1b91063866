"""The logs of pods as files, kept beyond the pods: those of a lost node are gone with it.

A thread follows each container from the moment at which it is first seen, and one more from its
beginning where a stream broke off. `run_recorder` reads what operators say, and people read the
rest.
"""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

AGAIN_SECONDS = 10.0

Key = tuple[str, str, str, str, int]


@dataclass(slots=True)
class FollowedLog:
    """One container's log: `thread` writes its file, the `files`-th of it, since `began_at`."""

    thread: threading.Thread
    files: int
    began_at: float


@dataclass(slots=True)
class PodLogs:
    """Files NAMESPACE_POD_UID_CONTAINER_RESTARTS_FILE.log in a folder that exists; `core` is a
    client. Each file has the log from its beginning.

    A pod that is made anew may have its predecessor's name, and has another uid.
    """

    core: Any
    folder: Path
    _followed: dict[Key, FollowedLog] = field(default_factory=dict)

    def look(self, *namespaces: str) -> None:
        """Follow what runs in these namespaces and is not followed yet."""
        for namespace in namespaces:
            with suppress(ApiException, HTTPError):
                for pod in self.core.list_namespaced_pod(namespace).items:
                    self._follow_containers(pod)

    def _follow_containers(self, pod: Any) -> None:
        statuses = (pod.status.init_container_statuses, pod.status.container_statuses)
        for status in (*(statuses[0] or ()), *(statuses[1] or ())):
            found = pod.metadata
            key = (found.namespace, found.name, found.uid, status.name, status.restart_count)
            if status.state.waiting is None and self._is_due(key, is_running=status.state.running):
                files = self._followed[key].files + 1 if key in self._followed else 1
                thread = threading.Thread(target=self._follow, args=(key, files), daemon=True)
                self._followed[key] = FollowedLog(thread, files, time.monotonic())
                thread.start()

    def _is_due(self, key: Key, *, is_running: object) -> bool:
        """Whether a log was never followed, or broke off while its container runs."""
        known = self._followed.get(key)
        if known is None:
            return True
        rests = time.monotonic() < known.began_at + AGAIN_SECONDS
        return bool(is_running) and not known.thread.is_alive() and not rests

    def _follow(self, key: Key, number: int) -> None:
        """One container's log, until it ends."""
        namespace, pod, _, container, _ = key
        with suppress(ApiException, HTTPError):
            answer = self.core.read_namespaced_pod_log(
                pod, namespace, container=container, follow=True, _preload_content=False
            )
            with (self.folder / f"{'_'.join(map(str, key))}_{number}.log").open("wb") as file:
                for piece in answer.stream(amt=None):
                    file.write(piece)
                    file.flush()
