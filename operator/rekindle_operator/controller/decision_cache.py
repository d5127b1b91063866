"""What was decided last about each application, and what others ask of it.

Kept by `effects`, in the deciding thread; `policy_status_writer` asks.
"""

from collections.abc import Mapping

from rekindle.coordination import application_status
from rekindle.coordination.session import Case
from rekindle.protocol.store_paths import Place
from rekindle_operator.policies import domain_loss_forecast
from rekindle_operator.policies.domain_loss_forecast import DomainLossForecast

__all__ = ["DecisionCache"]


class DecisionCache(dict[Place, Case]):
    """The newest case of each application that was decided about."""

    def __init__(self) -> None:
        super().__init__()
        self._outlooks: dict[Place, tuple[object, DomainLossForecast | None]] = {}

    def take(self, place: Place, case: Case) -> bool:
        """Keep a newer case; whether what others ask of it may be otherwise. Works nothing out: a
        decision waits for no figure that is only told."""
        before = self.stopped(place), self._basis(place)
        self[place] = case
        return (self.stopped(place), self._basis(place)) != before

    def forget(self, place: Place) -> None:
        """An application that is no more."""
        self.pop(place, None)
        self._outlooks.pop(place, None)

    def outlook(self, place: Place) -> DomainLossForecast | None:
        """What the loss of each failure domain would stop; in an incident what was so before it.
        Worked out again only when something is elsewhere. None where that is not known."""
        case = self.get(place)
        known = self._outlooks.get(place)
        if case is None or case.state is None:
            return None if known is None else known[1]
        basis = self._basis(place)
        if known is None or known[0] != basis:
            found = domain_loss_forecast.look_out(case.state)
            if found is None and known is not None:
                return known[1]
            self._outlooks[place] = known = basis, found
        return known[1]

    def queries(self, place: Place) -> frozenset[str] | None:
        """The queries of an application; None where nobody has heard of it."""
        case = self.get(place)
        if case is None or case.state is None:
            return None
        return frozenset(query.name for query in case.state.topology.queries)

    def stopped(self, place: Place) -> Mapping[str, tuple[str, ...]] | None:
        """Its queries that have stopped, with why; None where nobody has heard of it."""
        case = self.get(place)
        return (
            None
            if case is None or case.state is None
            else application_status.stopped_queries(case.state)
        )

    def priority(self, place: Place) -> float:
        """Of its most important query partition; 0 where nobody has heard of it."""
        case = self.get(place)
        priorities = {} if case is None or case.state is None else case.state.priorities
        return max(priorities.values(), default=0.0)

    def _basis(self, place: Place) -> object:
        """What an outlook follows from; None where nobody has heard of it."""
        case = self.get(place)
        if case is None or case.state is None:
            return None
        state = case.state
        domains = {node: (view.status, view.domain) for node, view in state.nodes.items()}
        running = not state.starting and state.incident is None
        return running, state.placement, state.priorities, domains
