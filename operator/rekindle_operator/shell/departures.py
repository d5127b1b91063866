"""Nodes that an incident has taken executors from as it had been announced: a drain, mostly.

Such a loss is told to nobody. `consequences` asks with each decision.
"""

from dataclasses import dataclass, field

from rekindle.incidents import Incident
from rekindle.protocol.tree import Place
from rekindle_operator.observation import announcement
from rekindle_operator.shell.judging import Judge

__all__ = ["Departures"]


@dataclass(slots=True)
class Departures:
    """What is announced of a node after its loss says only that somebody else has noticed, so that
    each is judged once in an incident."""

    judge: Judge
    _announced: dict[Place, dict[str, bool]] = field(default_factory=dict)

    def of(self, place: Place, incident: Incident | None) -> frozenset[str]:
        """Those of the incident that is open."""
        if incident is None:
            self.forget(place)
            return frozenset()
        found, hosts = self._announced.setdefault(place, {}), self.judge.hosts_ever(place)
        for name in incident.lost:
            if name in hosts:
                found.setdefault(hosts[name], self._is_leaving(hosts[name]))
        return frozenset(name for name, announced in found.items() if announced)

    def forget(self, place: Place) -> None:
        """An application that is gone."""
        self._announced.pop(place, None)

    def _is_leaving(self, node: str) -> bool:
        """Whether a node goes, or has gone, as it was announced."""
        state = self.judge.state
        if node in state.suspects:
            return False
        gone, known = state.gone.get(node), self.judge.known.registry.nodes.get(node)
        if node in state.leaving or (gone is not None and gone.departure is not None):
            return True
        if known is None:
            return False
        judged = known.judged
        return judged.unschedulable or announcement(judged, self.judge.rules) is not None
