"""The additions to one pod: a driver's sidecar, or nodes that an executor must avoid.

Values only. `injector` makes them, `pod_patch` follows them; `InjectionSource` is who is asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_class import Resources, StoreSpec
from rekindle_operator.detection.failure_domains import Domain

INJECT_LABEL = "rekindle.dev/inject"
# of executors, by the runtime in their driver; the store is not open to pods that have it
EXECUTOR_LABEL = "rekindle.dev/executor"
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SidecarTerms:
    """A driver gets a sidecar, by which its application is known as `place`."""

    place: Place
    image: str
    image_pull_policy: str
    store: StoreSpec
    session_seconds: int
    resources: Resources


@dataclass(frozen=True, slots=True)
class ExecutorTerms:
    """An executor is told its node, and does not run in the domains `avoided`."""

    avoided: tuple[Domain, ...] = ()


@dataclass(frozen=True, slots=True)
class InjectionRefusal:
    """Nothing is added to a pod that asks for it. `sentence` says why, and what to do."""

    sentence: str


Terms = SidecarTerms | ExecutorTerms


class InjectionSource(Protocol):
    """Who knows what holds. Asked from the server's thread, and to answer at once."""

    def terms_of(self, pod: Body, namespace: str) -> Terms | InjectionRefusal | None:
        """What holds for a pod that is about to be made; None when it is none of ours.

        `pod` is as the AdmissionReview has it: without a uid, and without a name where that is to
        be generated.
        """

    def waits(self, pod: Body, namespace: str) -> bool:
        """Whether a pod that is about to be made waits for its turn, with a gate of ours."""

    @property
    def gates(self) -> bool:
        """Whether any pod does: if not, pods without a label of ours are not read at all."""
