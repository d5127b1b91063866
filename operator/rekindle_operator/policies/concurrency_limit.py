"""Which recoveries of a policy go on at once, and which of them wait for others to be over.

Whoever has had a plan goes on; of the others the oldest is next. So a recovery that has begun is
never stopped by one that comes later, and an operator that takes over lets the same ones go on.
Pure; the shell says what is open.
"""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["RecoveryClaim", "ahead"]


@dataclass(frozen=True, slots=True)
class RecoveryClaim:
    """An application with an incident: whether that has had a plan, and since when it is (seconds
    since 1970)."""

    application: str
    planned: bool
    since: float


def ahead(application: str, claims: Iterable[RecoveryClaim], at_once_max: int) -> tuple[str, ...]:
    """Applications that keep this one waiting, the first first; none where it may go on.

    One without a claim is the newest.
    """
    ranked = sorted(claims, key=lambda claim: (not claim.planned, claim.since, claim.application))
    going = tuple(claim.application for claim in ranked[:at_once_max])
    return () if application in going or len(going) < at_once_max else going
