"""What is to be done about an application, and what is seen of it: values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from rekindle.model.errors import InputError

Body = Mapping[str, Any]


class Action(Enum):
    """What an operator does, before it writes the status that comes of it."""

    NOTHING = "nothing"
    SUBMIT = "submit"
    DELETE_DRIVER = "delete the driver's pod"
    FORCE_DRIVER = "delete the driver's pod by force"


@dataclass(frozen=True, slots=True)
class SubmissionStep:
    """An action and the status after it; the status is None where it stays."""

    action: Action = Action.NOTHING
    status: Body | None = None


@dataclass(frozen=True, slots=True)
class SubmissionState:
    """What an operator sees at a moment: the application, its driver's pod, its executors' pods.

    `now` is in seconds since 1970, `identity` a new one for whoever needs it.
    """

    application: Body
    driver: Body | None
    executors: Sequence[Body]
    now: float
    identity: str

    @property
    def name(self) -> str:
        """The application's."""
        return str(self.application["metadata"]["name"])

    @property
    def status(self) -> Body:
        """Empty for a new application."""
        found: Body = self.application.get("status") or {}
        return found


def moment(now: float) -> str:
    """A moment as the API has it."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_between(earlier: str, now: float) -> float:
    """How long ago a moment was."""
    return now - datetime.fromisoformat(earlier).timestamp()


def phase(pod: Body | None) -> str:
    """Of a pod, "" for one that is not there."""
    return "" if pod is None else str((pod.get("status") or {}).get("phase") or "Pending")


def only(where: str, record: Body, known: Sequence[str]) -> None:
    """Refuse fields that nothing here would do anything about."""
    strange = sorted(record.keys() - set(known))
    if strange:
        raise InputError(
            where=where,
            what=f"has {', '.join(strange)}, which this does not act on",
            remedy=f"leave it out; known are {', '.join(known)}",
        )
