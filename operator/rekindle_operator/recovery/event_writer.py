"""Writes announcements as Events, each once: the API server refuses a repeated name.

What is announced is `kubernetes_events`' to say. Runs in errands of `recovery_writer` and
`policy_status_writer`.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api, ApiRefused, ObjectConflict, path_of
from rekindle_operator.recovery import kubernetes_events
from rekindle_operator.recovery.kubernetes_events import KubernetesEvent

CONTROLLER = "rekindle.dev/operator"
LOG = logging.getLogger("rekindle_operator.events")


def announce(api: Api, told: Iterable[KubernetesEvent], identity: str) -> None:
    """Make the Events; `identity` is the pod that tells them. One that the API server refuses for
    good is left out, and the log says so: a status does not wait for a right on Events, or for a
    policy of the cluster that lets none in."""
    for item in told:
        body = kubernetes_events.to_object(
            item, datetime.now(UTC), controller=CONTROLLER, instance=identity
        )
        try:
            with suppress(ObjectConflict):  # it was told before
                api.create(path_of(object_kinds.EVENTS, body["metadata"]["namespace"]), body)
        except ApiRefused as refused:
            LOG.warning("an Event was refused: %s", refused)
