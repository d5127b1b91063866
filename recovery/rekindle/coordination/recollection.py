"""What a coordinator must not forget, and its state again after it has been started anew.

Kept is what no report says: incident, losses, plans on their way. Topology, policy, costs and
sizes come from the driver's reports. So a coordinator that is killed at any moment goes on with
the plan that it would have made. `application` writes it together with its directives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rekindle.coordination.events import Started
from rekindle.coordination.state import Due, NodeView, State
from rekindle.incidents import Incident, Loss

__all__ = ["Recollection", "recall", "recollect"]


@dataclass(frozen=True, slots=True)
class Recollection:
    """The fields of `State` of the same names."""

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
    losses: tuple[Loss, ...]
    last_checkpoint: int | None
    last_checkpoint_at: float | None
    due: Due | None
    holding: bool
    seen_at: float | None
    uneven_since: float | None = None


FIELDS = tuple(Recollection.__slots__)


def recollect(state: State) -> Recollection:
    """What to keep of a state."""
    return Recollection(**{name: getattr(state, name) for name in FIELDS})


def recall(fresh: State, kept: Recollection) -> State:
    """A fresh state of the same topology with what was kept."""
    return replace(fresh, **{name: getattr(kept, name) for name in FIELDS})
