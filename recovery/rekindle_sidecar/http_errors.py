"""Refused requests: HTTP status, cause, and a body with place, fault and remedy.

The cause is one word, the same in log and metrics. Raised by `sidecar_session` and `http_api`,
which turns them into answers.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from rekindle.model.errors import InputError
from rekindle.protocol.store_paths import Place


class Cause(StrEnum):
    """Why a request was refused."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    VERSION = "version"
    FENCED = "fenced"
    OTHER_STORE = "other-store"
    NO_HANDSHAKE = "no-handshake"
    UNKNOWN = "unknown"  # no such path or method


class RequestRefusal(Exception):
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


def malformed(error: InputError) -> RequestRefusal:
    """A message that is not as the schema says."""
    return RequestRefusal(400, Cause.MALFORMED, error)


def other_store(place: Place, generation: int, *, is_there: bool) -> RequestRefusal:
    """A driver whose checkpoint store is not the one that the application has had up to a driver
    of `generation`, which `is_there` still, or not."""
    what = f"has another checkpoint store, with a history up to generation {generation}"
    remedy = (
        f"name that store, give another name, or start over with `rekindle reset {place}`, which "
        "forgets that history"
    )
    if is_there:
        what = f"has a driver of generation {generation}, with another checkpoint store"
        remedy = "give this one another name, or end that one"
    error = InputError(where=f"application {place}", what=what, remedy=remedy)
    return RequestRefusal(
        409, Cause.OTHER_STORE, error, {"fenced": True, "generation": generation, "store": "other"}
    )


def fenced(where: str, generation: int, newer: int) -> RequestRefusal:
    """A driver that a newer one has taken over from: it has to end."""
    error = InputError(
        where=where,
        what=f"is of generation {generation}, and there is a driver of generation {newer}",
        remedy="end this driver; where its store was restored from an older copy, forget the newer "
        "one with `rekindle reset` first (docs/operations.md)",
    )
    return RequestRefusal(409, Cause.FENCED, error, {"fenced": True, "generation": newer})
