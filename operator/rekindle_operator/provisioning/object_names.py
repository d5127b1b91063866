"""Names and labels of our objects: the same request always has the same name.

A name is readable in front and certain at its end: a digest of the incident, and the slot's number
in its note. Pure; notes and providers call it.
"""

import hashlib
import re

from rekindle_operator.api.custom_resources import GROUP
from rekindle_operator.provisioning.cluster_state import SCOPE_LABEL
from rekindle_operator.provisioning.node_demand import NodeIncident

__all__ = [
    "INCIDENT_LABEL",
    "MANAGED_BY",
    "SCOPE_LABEL",
    "SLOT_LABEL",
    "labels",
    "note_name",
    "scope",
    "slot_name",
]

MANAGED_BY = {"app.kubernetes.io/managed-by": "rekindle"}
APPLICATION_LABEL = f"{GROUP}/application"
NAMESPACE_LABEL = f"{GROUP}/namespace"
INCIDENT_LABEL = f"{GROUP}/incident"
PROVIDER_LABEL = f"{GROUP}/provider"
SLOT_LABEL = f"{GROUP}/slot"

APPLICATION_LENGTH = 20
SCOPE_LENGTH = 10
LABEL_LENGTH_MAX = 63


def scope(incident: NodeIncident) -> str:
    """What tells an incident from all others, in ten letters and digits."""
    identity = (incident.namespace, incident.application, incident.number, incident.uid)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:SCOPE_LENGTH]


def note_name(incident: NodeIncident) -> str:
    """Name of the ConfigMap with the incident's note."""
    return f"{_stem(incident)}-note"


def slot_name(incident: NodeIncident, number: int) -> str:
    """Name of what is made for a slot; no longer than a label may be."""
    return f"{_stem(incident)}-{number}"


def labels(incident: NodeIncident, provider: str = "", number: int = 0) -> dict[str, str]:
    """Labels of what is made for a slot; without a provider, of the note."""
    found = {
        **MANAGED_BY,
        NAMESPACE_LABEL: incident.namespace,
        APPLICATION_LABEL: _label(incident.application),
        INCIDENT_LABEL: str(incident.number),
        SCOPE_LABEL: scope(incident),
    }
    if provider:
        found |= {PROVIDER_LABEL: provider, SLOT_LABEL: str(number)}
    return found


def _stem(incident: NodeIncident) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", incident.application.lower())[:APPLICATION_LENGTH]
    return f"rekindle-{name.strip('-') or 'x'}-{incident.number}-{scope(incident)}"


def _label(name: str) -> str:
    """A name as a label's value: cut where it is too long."""
    return re.sub(r"[^A-Za-z0-9]+$", "", name[:LABEL_LENGTH_MAX])
