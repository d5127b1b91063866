"""The logs of pods as files, kept beyond the pods: those of a lost node are gone with it.

A thread follows each container from the moment at which it is first seen. `witness` reads what
operators say, and people read the rest.
"""

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

__all__ = ["PodLogs"]

Key = tuple[str, str, str, str, int]


@dataclass(slots=True)
class PodLogs:
    """Files NAMESPACE_POD_UID_CONTAINER_RESTARTS.log in a folder that exists; `core` is a client.

    A pod that is made anew may have its predecessor's name, and has another uid.
    """

    core: Any
    folder: Path
    _followed: dict[Key, threading.Thread] = field(default_factory=dict)

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
            if status.state.waiting is None and key not in self._followed:
                thread = threading.Thread(target=self._follow, args=(key,), daemon=True)
                self._followed[key] = thread
                thread.start()

    def _follow(self, key: Key) -> None:
        """One container's log, until it ends."""
        namespace, pod, _, container, _ = key
        with (
            suppress(ApiException, HTTPError),
            (self.folder / f"{'_'.join(map(str, key))}.log").open("wb") as file,
        ):
            answer = self.core.read_namespaced_pod_log(
                pod, namespace, container=container, follow=True, _preload_content=False
            )
            for piece in answer.stream(amt=None):
                file.write(piece)
                file.flush()
