"""What was decided last about each application, and what others ask of it.

Kept by `consequences`, in the deciding thread; `statuses` asks.
"""

from collections.abc import Mapping

from rekindle.coordination import standing
from rekindle.coordination.application import Case
from rekindle.protocol.tree import Place

__all__ = ["Cases"]


class Cases(dict[Place, Case]):
    """The newest case of each application that was decided about."""

    def queries(self, place: Place) -> frozenset[str] | None:
        """The queries of an application; None where nobody has heard of it."""
        case = self.get(place)
        if case is None or case.state is None:
            return None
        return frozenset(query.name for query in case.state.topology.queries)

    def stopped(self, place: Place) -> Mapping[str, tuple[str, ...]] | None:
        """Its queries that have stopped, with why; None where nobody has heard of it."""
        case = self.get(place)
        return None if case is None or case.state is None else standing.stopped_queries(case.state)

    def priority(self, place: Place) -> float:
        """Of its most important query partition; 0 where nobody has heard of it."""
        case = self.get(place)
        priorities = {} if case is None or case.state is None else case.state.priorities
        return max(priorities.values(), default=0.0)
