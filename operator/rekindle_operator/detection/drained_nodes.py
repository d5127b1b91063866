"""Nodes that an incident has taken executors from as it had been announced: a drain, mostly.

Such a loss is told to nobody. `effects` asks with each decision.
"""

from dataclasses import dataclass, field

from rekindle.model.incidents import Incident
from rekindle.protocol.store_paths import Place
from rekindle_operator.detection import node_inventory
from rekindle_operator.detection.detection_runner import DetectionRunner


@dataclass(slots=True)
class DrainedNodes:
    """What is announced of a node after its loss says only that somebody else has noticed, so that
    each is judged once in an incident."""

    judge: DetectionRunner
    _announced: dict[Place, tuple[int, dict[str, bool]]] = field(default_factory=dict)

    def of(self, place: Place, incident: Incident | None) -> frozenset[str]:
        """The Nodes that an application's open incident has lost as it had been announced."""
        if incident is None:
            self.forget(place)
            return frozenset()
        number, found = self._announced.get(place, (0, {}))
        if number != incident.number:
            found = {}
            self._announced[place] = incident.number, found
        hosts = self.judge.hosts_ever(place)
        for name in incident.lost:
            if name in hosts:
                found.setdefault(hosts[name], self._is_leaving(hosts[name]))
        return frozenset(name for name, announced in found.items() if announced)

    def forget(self, place: Place) -> None:
        """An application that is gone."""
        self._announced.pop(place, None)

    def clear(self) -> None:
        """Another one acts from now on."""
        self._announced.clear()

    def _is_leaving(self, node: str) -> bool:
        """Whether a node goes, or has gone, as it was announced."""
        state, known = self.judge.state, self.judge.known.registry.nodes.get(node)
        if known is not None:
            # what stood there is lost: a cordoned node is drained as far as that concerns us
            by = node_inventory.departure(state, node, known.judged, {}, self.judge.rules)
            if by is not None:
                return True
        gone = state.gone.get(node)
        announced = node in state.leaving or (gone is not None and gone.departure is not None)
        return announced and node not in state.suspects
