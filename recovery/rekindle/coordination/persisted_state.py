"""The coordinator's durable state, and how a restarted coordinator continues from it.

Kept is what no report says: incident, losses, plans on their way. Topology, policy, costs and
sizes come from the driver's reports. So a coordinator that is killed at any moment goes on with
the plan that it would have made. `session` writes it together with its directives.

Why: docs/decisions/0023-the-coordinator-keeps-what-no-report-says.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rekindle.coordination.coordination_events import Started
from rekindle.coordination.coordination_state import CoordinationState, Due, NodeView
from rekindle.model.incidents import Incident, NodeLoss


@dataclass(frozen=True, slots=True)
class PersistedState:
    """The fields of `CoordinationState` of the same names."""

    nodes: Mapping[str, NodeView]
    placement: Mapping[str, str]
    resident: Mapping[str, str]
    charges: Mapping[str, float]
    catching_up: frozenset[str]
    nodes_expected: int
    start: Started | None
    starting: bool
    plan_epoch: int
    unacknowledged: int | None
    incident: Incident | None
    incidents: int
    losses: tuple[NodeLoss, ...]
    last_checkpoint: int | None
    last_checkpoint_at: float | None
    due: Due | None
    holding: bool
    seen_at: float | None
    uneven_since: float | None = None


FIELDS = tuple(PersistedState.__slots__)


def recollect(state: CoordinationState) -> PersistedState:
    """What to keep of a state."""
    return PersistedState(**{name: getattr(state, name) for name in FIELDS})


def recall(fresh: CoordinationState, kept: PersistedState) -> CoordinationState:
    """A fresh state of the same topology with what was kept."""
    return replace(fresh, **{name: getattr(kept, name) for name in FIELDS})
