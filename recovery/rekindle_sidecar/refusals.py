"""Requests that are not taken: HTTP status, cause, and the body that says where, what and why.

The cause is one word, the same in log and metrics. Raised by `desk` and `endpoints`, which turns
them into answers.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from rekindle.errors import InputError

__all__ = ["Cause", "Refusal", "fenced", "malformed"]


class Cause(StrEnum):
    """Why a request was refused."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    VERSION = "version"
    FENCED = "fenced"
    NO_HANDSHAKE = "no-handshake"
    UNKNOWN = "unknown"  # no such path or method


class Refusal(Exception):
    """A request that is not taken. `more` are fields of the body beside where, what, remedy."""

    def __init__(
        self, status: int, cause: Cause, error: InputError, more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(str(error))
        self.status = status
        self.cause = cause
        self.body = {
            "where": error.where,
            "what": error.what,
            "remedy": error.remedy,
            **(more or {}),
        }


def malformed(error: InputError) -> Refusal:
    """A message that is not as the schema says."""
    return Refusal(400, Cause.MALFORMED, error)


def fenced(where: str, generation: int, newer: int) -> Refusal:
    """A driver that a newer one has taken over from: it has to end."""
    error = InputError(
        where=where,
        what=f"is of generation {generation}, and there is a driver of generation {newer}",
        remedy="end this driver",
    )
    return Refusal(409, Cause.FENCED, error, {"fenced": True, "generation": newer})
