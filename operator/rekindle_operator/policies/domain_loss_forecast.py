"""The effect of the loss of each failure domain on a running application.

`rekindle forecast` says besides when it would be back; that takes rehearsals, and is not for a
thread that decides. Pure: `policy_conditions` has the words, the shell asks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rekindle.coordination import CoordinationState, domain_placement

DOMAINS_MAX = 50


@dataclass(frozen=True, slots=True)
class DomainLossForecast:
    """The share of all priority that the loss of each domain would stop, by its name, the greatest
    first; empty where no node says which domain it is in."""

    stopped_shares: Mapping[str, float]

    @property
    def worst(self) -> tuple[str, float]:
        """The domain whose loss would stop most, and that share."""
        return next(iter(self.stopped_shares.items()))


def look_out(state: CoordinationState) -> DomainLossForecast | None:
    """None while not all is as it should be: before the first plan, and in an incident."""
    if state.starting or state.incident is not None or not state.placement:
        return None
    named = {view.domain for view in state.nodes.values() if view.domain is not None}
    shares = domain_placement.stopped_shares(state, {}) if named else {}
    found = sorted(
        ((name, share) for name, share in shares.items() if name in named),
        key=lambda item: (-item[1], item[0]),
    )
    return DomainLossForecast(dict(found[:DOMAINS_MAX]))
