"""The coordinator's interface to the cluster in which applications run.

    NodeProvider   who has the machines: says what is certainly gone, gets what is asked for
    Oversight      who holds what people have said elsewhere than in the store: terms of an
                   application before a decision, and each decision afterwards

A local cluster has a provider, Kubernetes both. Neither decides anything; the desk calls them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.coordination.session import ApplicationReading, Case, Decision
from rekindle.protocol import Heartbeat
from rekindle.protocol.store_paths import Place


class NodeProvider(Protocol):
    """All answers at once: what takes longer goes on behind it. Each may raise RekindleError or
    OSError, and is then asked again later."""

    def news(self) -> Collection[Place] | None:
        """Applications of which something may be otherwise than before; None where that may be any.
        Asked all the time, also while another coordinator leads."""

    def request(self, place: Place, identity: str, request: NodeRequestOrder) -> None:
        """Get nodes, or the driver again. The same identity again is the same request."""

    def gone_nodes(self, place: Place) -> frozenset[str]:
        """Nodes of an application that are certainly not there, with all that ran on them."""

    def domains(self, place: Place) -> Mapping[str, str]:
        """Nodes of an application with their failure domains, as far as they are known."""

    def notices(
        self, place: Place, recorded: Mapping[str, LossNotice]
    ) -> Mapping[str, LossNotice] | None:
        """Nodes of an application that are announced to go, with by whom and until when; None where
        that is not known yet, so that those that are `recorded` in its case remain."""

    def exists(self, place: Place) -> bool:
        """Whether there is anything of an application, as an object, pod or process. Any thread may
        ask."""

    def driver_gone(self, place: Place, heartbeat: Heartbeat | None, generation: int) -> bool:
        """Whether the newest driver has certainly ended. `heartbeat` is the newest known, perhaps
        of a session that is over; `generation` that of the newest driver that reported."""


@dataclass(frozen=True, slots=True)
class DecisionTerms:
    """What holds for a decision: the reading with what people have said, whether plans may be made,
    also in an incident (`recover`), whether what a loss leads to is only told (`dry_run`), and the
    next moment (seconds since 1970) at which time alone changes that."""

    reading: ApplicationReading
    plan: bool = True
    recover: bool = True
    dry_run: bool = False
    due: float | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A decision that the store has: on which case and reading, and when (seconds since 1970)."""

    case: Case
    reading: ApplicationReading
    decision: Decision
    at: float


class DecisionObserver(Protocol):
    """All answers at once. None of them raises."""

    def heard(self, place: Place, reading: ApplicationReading) -> None:
        """An application has other records than before, whoever leads."""

    def terms(self, place: Place, reading: ApplicationReading) -> DecisionTerms:
        """What holds for the decision on a reading."""

    def decided(self, place: Place, look: Look) -> None:
        """A decision was written; also one without news, for something may be otherwise here."""

    def forget(self, place: Place) -> None:
        """An application has no records any more, whoever leads."""

    def retire(self, days: int) -> None:
        """Asked each hour of whoever leads: remove what was over `days` ago of applications that
        are gone."""
