"""Writes announcements as Events, each once: the API server refuses a repeated name.

What is announced is `kubernetes_events`' to say. Runs in errands of `recovery_writer` and
`policy_status_writer`.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api, ObjectConflict, path_of
from rekindle_operator.recovery import kubernetes_events
from rekindle_operator.recovery.kubernetes_events import KubernetesEvent

CONTROLLER = "rekindle.dev/operator"


def announce(api: Api, told: Iterable[KubernetesEvent], identity: str) -> None:
    """Make the Events; `identity` is the pod that tells them."""
    for item in told:
        body = kubernetes_events.to_object(
            item, datetime.now(UTC), controller=CONTROLLER, instance=identity
        )
        with suppress(ObjectConflict):  # it was told before
            api.create(path_of(object_kinds.EVENTS, body["metadata"]["namespace"]), body)
