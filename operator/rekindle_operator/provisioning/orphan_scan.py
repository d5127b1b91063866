"""Incidents of which something of ours is left in the cluster.

An incident that is over still has nodes to give back, and an operator that was away may never have
heard of its end. The shell asks here, and makes a demand with `over` for each whose Recovery has
ended or is gone; for one of which it merely knows nothing now, it makes none. Decides nothing.
"""

from collections.abc import Iterator

from rekindle_operator.cluster.json_access import Body, mapping, text
from rekindle_operator.provisioning import object_names, request_ledger
from rekindle_operator.provisioning.cluster_state import ClusterState
from rekindle_operator.provisioning.node_demand import NodeIncident
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from rekindle_operator.provisioning.providers.provider_base import (
    APPLICATION_ANNOTATION,
    CLASS_ANNOTATION,
    RECOVERY_ANNOTATION,
    UID_ANNOTATION,
)
from rekindle_operator.provisioning.providers.provisioning_requests import (
    POD_TEMPLATE,
    PROVISIONING_REQUEST,
)


def remains(standing: ClusterState, home: str) -> dict[NodeIncident, str]:
    """Each incident that has a note or an object, with the name of its class."""
    known, _ = request_ledger.read_all(standing, home)
    found = {note.incident: note.class_name for note, _ in known.values()}
    for body in _objects(standing):
        incident = _incident(body)
        if incident is not None:
            class_name = text(body, "metadata", "annotations", CLASS_ANNOTATION)
            found.setdefault(incident, class_name)
    return found


def _objects(standing: ClusterState) -> Iterator[Body]:
    for kind in (NODE_CLAIM, PROVISIONING_REQUEST, POD_TEMPLATE):
        yield from standing.all(kind)


def _incident(body: Body) -> NodeIncident | None:
    """The incident that an object was made for; None for one that does not say so."""
    annotations = mapping(body, "metadata", "annotations")
    namespace, _, application = text(annotations, APPLICATION_ANNOTATION).partition("/")
    number = text(body, "metadata", "labels", object_names.INCIDENT_LABEL)
    uid = text(annotations, UID_ANNOTATION)
    if not (namespace and application and number.isdecimal() and uid):
        return None
    return NodeIncident(
        namespace=namespace,
        application=application,
        number=int(number),
        recovery=text(annotations, RECOVERY_ANNOTATION),
        uid=uid,
    )
