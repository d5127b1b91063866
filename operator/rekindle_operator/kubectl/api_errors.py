"""Errors of the API server as sentences with a remedy.

Pure: status code and body in, an InputError with place and remedy out. `api_connection` raises it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from rekindle.model.errors import InputError
from rekindle_operator.api.custom_resources import GROUP, clipped
from rekindle_operator.kubectl.resource_kinds import ResourceKind

INSTALL = "install the definitions: kubectl apply --server-side -f crds/"
SHOWN_MAX = 400
CONFLICT = re.compile(r'conflict with "([^"]+)"')
# What the client's words about a failed connection come down to, the first that is found.
CAUSES = tuple(
    map(
        re.compile,
        (
            r"\[Errno -?\d+\] ([^)\]\"']+)",
            r"(certificate verify failed[^(]*[^(\s])",
            r"(timed out)",
            r": ([^:]+)$",
            r"(.+)",
        ),
    )
)
NOBODY = "system:anonymous"
FIELD_CONFLICT = "FieldManagerConflict"
# Roles of the chart that the usual ones of a namespace take up.
ROLES = "rekindle-view to look and rekindle-edit to change"


class ApiRefusal(InputError):
    """The API server's no. `status` is HTTP's, `managers` are those who have fields that an apply
    would have taken, `missing_kind` says that it does not know the kind at all."""

    def __init__(
        self,
        *,
        where: str,
        what: str,
        remedy: str,
        status: int,
        managers: tuple[str, ...] = (),
        missing_kind: bool = False,
    ) -> None:
        super().__init__(where=where, what=what, remedy=remedy)
        self.status = status
        self.managers = managers
        self.missing_kind = missing_kind

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.where, self.what, self.remedy, self.status, self.managers)


def read(kind: ResourceKind, where: str, verb: str, status: int, body: bytes) -> ApiRefusal:
    """What the answer to a request about `kind` means; `where` is the place in words."""
    said = _status(body)
    message = clipped(" ".join(str(said.get("message") or "").split()), SHOWN_MAX)
    if status == 404:
        return _not_found(kind, where, said)
    if status == 409:
        return _conflict(where, message, said)
    if status == 403 and NOBODY in message:
        status = 401  # the kubeconfig's credentials were none, or could not be had
    what, remedy = _meaning(kind, verb, status, message)
    return ApiRefusal(where=where, what=what, remedy=remedy, status=status)


def unreachable(server: str, error: Exception) -> InputError:
    """There was no answer at all."""
    text = " ".join(str(error).split())
    found = next(filter(None, (cause.search(text) for cause in CAUSES)), None)
    why = found[1] if found else type(error).__name__
    return InputError(
        where=f"API server {server}",
        what=f"does not answer ({clipped(why, SHOWN_MAX)})",
        remedy="see that it is up and can be reached from here, and that the context is right",
    )


def _meaning(kind: ResourceKind, verb: str, status: int, message: str) -> tuple[str, str]:
    """What is wrong and the remedy, by the status code."""
    resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    match status:
        case 401:
            return "your credentials are refused", "log in again; see `kubectl auth whoami`"
        case 403:
            ask = f"`kubectl auth can-i {verb} {resource}`"
            remedy = f"ask for the right; {ask} says whether you have it"
            if kind.group == GROUP:
                remedy = f"ask for a role that has it ({ROLES}); {ask} tells"
            return f"you may not {verb} {kind.plural} here", remedy
        case 400 | 422:
            return message or "the API server refuses it", "correct it; see docs/resources.md"
        case 429:
            return "the API server has too much to do", "try again in a while"
    return (
        f"the API server failed ({status}{': ' if message else ''}{message})",
        "try again; if it stays so, see the API server's log",
    )


def _not_found(kind: ResourceKind, where: str, said: Mapping[str, Any]) -> ApiRefusal:
    """An object that is not there, or a kind that the server does not know."""
    details = said.get("details") or {}
    if details.get("name"):
        return ApiRefusal(
            where=where,
            what="is not there",
            remedy=f"see `kubectl get {kind.plural}`, and the namespace (-n)",
            status=404,
        )
    remedy = INSTALL if kind.group == GROUP else f"install what serves {kind.api}"
    return ApiRefusal(
        where=where,
        what=f"the API server does not know {kind.plural} of {kind.api}",
        remedy=remedy,
        status=404,
        missing_kind=True,
    )


def _conflict(where: str, message: str, said: Mapping[str, Any]) -> ApiRefusal:
    """Somebody else has the fields, or has changed the object meanwhile."""
    causes = (said.get("details") or {}).get("causes") or ()
    named = [
        manager
        for cause in causes
        if cause.get("reason") == FIELD_CONFLICT
        for manager in CONFLICT.findall(str(cause.get("message")))
    ]
    managers = tuple(dict.fromkeys(named))
    if not managers:
        return ApiRefusal(
            where=where,
            what=f"it has changed meanwhile ({message})" if message else "it has changed meanwhile",
            remedy="try again",
            status=409,
        )
    fields = sorted({str(cause.get("field")) for cause in causes if cause.get("field")})
    belongs = "belong" if len(fields) > 1 else "belongs"
    return ApiRefusal(
        where=where,
        what=f"{', '.join(fields) or 'a field'} {belongs} to {' and '.join(managers)}",
        remedy="change it there, or take it with --force",
        status=409,
        managers=managers,
    )


def _status(body: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(body)
    except ValueError:
        return {"message": body.decode(errors="replace")}
    return said if isinstance(said, dict) else {}


def _again(
    where: str, what: str, remedy: str, status: int, managers: tuple[str, ...]
) -> ApiRefusal:
    return ApiRefusal(where=where, what=what, remedy=remedy, status=status, managers=managers)
