"""The AdmissionReview that the API server sends, and the one that goes back (admission.k8s.io/v1).

Every pod is allowed. A patch that cannot be made, for whatever reason, is left out, and a warning
says so to whoever makes the pod. Pure but for asking the outlook; `serving` calls it.
"""

import base64
import traceback
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from rekindle.errors import InputError
from rekindle_operator.injection import patching
from rekindle_operator.injection.terms import ExecutorTerms, Outlook, Refusal
from rekindle_operator.resources import clipped

__all__ = ["Answer", "Outcome", "Request", "Role", "answer", "read"]

# The API server cuts what is longer.
WARNING_LENGTH_MAX = 256
FAILED = "nothing could be added to this pod; the log of Rekindle's operator says why"

Role = Literal["driver", "executor", "other"]
Outcome = Literal["injected", "passed", "refused", "failed"]


class Kind(msgspec.Struct, frozen=True):
    """Of the object under review."""

    group: str = ""
    kind: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What is asked; `object` is the pod as it is about to be made."""

    uid: str
    kind: Kind
    operation: str
    namespace: str = ""
    sub_resource: str = ""
    object: dict[str, Any] | None = None


class Review(msgspec.Struct, frozen=True, rename="camel"):
    """The whole of it."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: Request


@dataclass(frozen=True, slots=True)
class Answer:
    """The AdmissionReview that goes back, as JSON, and what it comes to. `trouble` is for the log:
    the traceback of what failed."""

    body: bytes
    role: Role
    outcome: Outcome
    trouble: str = ""


def read(body: bytes) -> Request:
    """The request in an AdmissionReview; InputError for anything else."""
    try:
        return msgspec.json.decode(body, type=Review).request
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(
            where="the body",
            what=f"is no AdmissionReview: {clipped(str(error), 200)}",
            remedy="send one of admission.k8s.io/v1",
        ) from error


def answer(request: Request, outlook: Outlook) -> Answer:
    """What goes back. Never raises, for what is raised here would hold up a pod."""
    pod = request.object
    is_new_pod = request.operation == "CREATE" and not request.sub_resource
    if pod is None or (request.kind.group, request.kind.kind) != ("", "Pod") or not is_new_pod:
        return _answer(request, "other", "passed")
    try:
        return _of_pod(request, pod, outlook)
    except Exception:  # whatever it is: the pod is to be made
        failed = _answer(request, "other", "failed", warning=FAILED)
        return replace(failed, trouble=traceback.format_exc())


def _of_pod(request: Request, pod: dict[str, Any], outlook: Outlook) -> Answer:
    terms = outlook.terms_of(pod, request.namespace)
    if terms is None:
        return _answer(request, "other", "passed")
    if isinstance(terms, Refusal):
        return _answer(request, "driver", "refused", warning=terms.sentence)
    role: Role = "executor" if isinstance(terms, ExecutorTerms) else "driver"
    operations = patching.patch(pod, terms)
    if isinstance(operations, Refusal):
        return _answer(request, role, "refused", warning=operations.sentence)
    outcome: Outcome = "injected" if operations else "passed"
    return _answer(request, role, outcome, operations)


def _answer(
    request: Request,
    role: Role,
    outcome: Outcome,
    operations: tuple[patching.Operation, ...] = (),
    warning: str = "",
) -> Answer:
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if operations:
        written = base64.b64encode(msgspec.json.encode(operations)).decode()
        response |= {"patchType": "JSONPatch", "patch": written}
    if warning:
        response["warnings"] = [clipped(f"rekindle: {warning}", WARNING_LENGTH_MAX)]
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    }
    return Answer(msgspec.json.encode(review), role, outcome)
