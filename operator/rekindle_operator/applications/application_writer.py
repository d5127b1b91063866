"""Writes what an incident of whole applications comes to: Recoveries with events, gates lifted.

    story of an application ──► Recovery made, unless it is there ──► events ──► status
    pod whose turn it is    ──► our gate taken off

Runs in errands of `application_recovery`, one at a time for each application and for each pod. What
is written twice is the same.
"""

from dataclasses import dataclass

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api import recovery_resource
from rekindle_operator.api.custom_resources import API_VERSION
from rekindle_operator.api.recovery_resource import (
    ApplicationReference,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
    recovery_name,
    to_status,
)
from rekindle_operator.cluster import api_client, object_kinds
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.pods import PodSeen, without_gate
from rekindle_operator.recovery import event_writer, kubernetes_events
from rekindle_operator.recovery.kubernetes_events import ObjectReference


@dataclass(frozen=True, slots=True)
class ApplicationWriter:
    """`identity` is the operator's pod, which the events name."""

    known: ClusterView
    api: api_client.Api
    log: Log
    identity: str

    def write(self, place: Place, spec: RecoverySpec, status: RecoveryStatus, kept: int) -> None:
        """Make the Recovery unless it is there; announce what is new, then write it."""
        body = self.api.get(_path(place, spec))
        if body is None:
            made = recovery_resource.to_object(place.namespace, spec)
            body = self.api.create(
                api_client.path_of(object_kinds.RECOVERIES, place.namespace), made
            )
        self._announce(place, spec, status, body)
        if status.has_ended:
            self._put_away(place, kept)

    def end(self, place: Place, spec: RecoverySpec, status: RecoveryStatus) -> None:
        """Write the end of a Recovery; of one that is not there nothing is left to say."""
        body = self.api.get(_path(place, spec))
        if body is not None and not recovery_resource.from_object(body).status.has_ended:
            self._announce(place, spec, status, body)

    def _announce(
        self, place: Place, spec: RecoverySpec, status: RecoveryStatus, body: api_client.Body
    ) -> None:
        """Events of what is new, then the status on the version that was read; nothing where that
        is of a newer release, and something of it was left out."""
        recovery = recovery_resource.from_object(body)
        if recovery.left_out:
            return
        metadata = recovery.metadata
        about = ObjectReference(
            API_VERSION, Recovery.kind, metadata.name, place.namespace, metadata.uid
        )
        told = kubernetes_events.of_recovery(
            about, _owner(place, spec.application), recovery.status, status
        )
        event_writer.announce(self.api, told, self.identity)
        self.api.replace(f"{_path(place, spec)}/status", {**body, "status": to_status(status)})

    def _put_away(self, place: Place, kept: int) -> None:
        """Delete the oldest that have ended, beyond as many as are kept."""
        known = [*self.known.recoveries.get(place, {}).values()]
        ended = [item for item in known if item.status.has_ended]
        ended.sort(key=recovery_resource.age, reverse=True)
        for item in ended[kept:]:
            path = api_client.path_of(object_kinds.RECOVERIES, place.namespace, item.metadata.name)
            self.api.delete(path, {"preconditions": {"uid": item.metadata.uid}})

    def lift(self, pod: PodSeen) -> None:
        """Take our gate off a pod, and leave those of others."""
        path = api_client.path_of(object_kinds.PODS, pod.namespace, pod.name)
        try:
            self.api.patch(path, without_gate(pod.uid), api_client.STRATEGIC_MERGE)
        except api_client.ObjectConflict:
            return  # another pod has its name by now
        except api_client.ApiRefused as refused:
            if refused.status != api_client.NOT_FOUND:
                raise
            return
        self.log.write("gate-lifted", pod=pod.name, namespace=pod.namespace)


def _path(place: Place, spec: RecoverySpec) -> str:
    name = recovery_name(spec.application, spec.incident)
    return api_client.path_of(object_kinds.RECOVERIES, place.namespace, name)


def _owner(place: Place, application: ApplicationReference) -> ObjectReference | None:
    """The SparkApplication, which gets the lines that matter to whoever owns it."""
    if application.kind != "SparkApplication" or application.group is None:
        return None
    version = object_kinds.SPARK_VERSIONS[application.group]
    return ObjectReference(
        f"{application.group}/{version}",
        application.kind,
        application.name,
        place.namespace,
        application.uid or "",
    )
