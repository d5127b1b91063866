"""The AdmissionReview that the API server sends, and the one that goes back (admission.k8s.io/v1).

Every pod is allowed. A pod that does not ask is looked at by its labels alone: its body stays text,
since the objects of a body take twenty times its memory. A patch that cannot be made, for whatever
reason, is left out, and a warning says so to whoever makes the pod. Pure but for asking the
outlook; `webhook_server` calls it.
"""

import base64
import traceback
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from rekindle.model.errors import InputError
from rekindle_operator.api.custom_resources import clipped
from rekindle_operator.cluster.pods import ROLE_LABEL
from rekindle_operator.webhook import injection_spec, pod_patch
from rekindle_operator.webhook.injector import ROLES

# The API server cuts what is longer.
WARNING_LENGTH_MAX = 256
FAILED = "nothing could be added to this pod; the log of Rekindle's operator says why"
# The API server cannot keep a larger one: etcd takes requests of 1.5 MiB.
POD_BYTES_MAX = 3 * 2**19
TOO_LARGE = "nothing was added to this pod, which is larger than 1.5 MiB; make it smaller"

Role = Literal["driver", "executor", "other"]
Outcome = Literal["injected", "passed", "refused", "failed"]


# What the decoder raises; of what is nested too deep a RecursionError.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
NOTHING = msgspec.Raw(b"null")


class ReviewedKind(msgspec.Struct, frozen=True):
    """Of the object under review."""

    group: str = ""
    kind: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """What is asked; `object` is the JSON of the pod as it is about to be made."""

    uid: str
    kind: ReviewedKind
    operation: str
    namespace: str = ""
    sub_resource: str = ""
    object: msgspec.Raw = NOTHING


class PodLabels(msgspec.Struct, frozen=True):
    """Of a pod's metadata; other types than text are nobody's who asks."""

    labels: dict[str, Any] | None = None


class LabelledPod(msgspec.Struct, frozen=True):
    """By which a pod asks."""

    metadata: PodLabels = PodLabels()


class Review(msgspec.Struct, frozen=True, rename="camel"):
    """The whole of it."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """The AdmissionReview that goes back, as JSON, and what it comes to. `trouble` is for the log:
    the traceback of what failed."""

    body: bytes
    role: Role
    outcome: Outcome
    trouble: str = ""


def read(body: bytes) -> AdmissionRequest:
    """The request in an AdmissionReview; InputError for anything else."""
    try:
        return msgspec.json.decode(body, type=Review).request
    except UNREADABLE as error:
        raise InputError(
            where="the body",
            what=f"is no AdmissionReview: {clipped(str(error), 200)}",
            remedy="send one of admission.k8s.io/v1",
        ) from error


def answer(request: AdmissionRequest, outlook: injection_spec.InjectionSource) -> AdmissionAnswer:
    """What goes back. Never raises, for what is raised here would hold up a pod."""
    is_new_pod = request.operation == "CREATE" and not request.sub_resource
    is_pod = (request.kind.group, request.kind.kind) == ("", "Pod")
    if not (is_new_pod and is_pod and _asks(request.object, outlook)):
        return _answer(request, "other", "passed")
    if len(request.object) > POD_BYTES_MAX:
        return _answer(request, "other", "refused", warning=TOO_LARGE)
    try:
        pod = msgspec.json.decode(request.object, type=dict[str, Any])
        return _of_pod(request, pod, outlook)
    except Exception:  # whatever it is: the pod is to be made
        failed = _answer(request, "other", "failed", warning=FAILED)
        return replace(failed, trouble=traceback.format_exc())


def _asks(pod: msgspec.Raw, outlook: injection_spec.InjectionSource) -> bool:
    """Whether a pod has a label of ours, or is Spark's while such pods wait for their turn. What is
    no pod asks for nothing."""
    try:
        labels = msgspec.json.decode(pod, type=LabelledPod).metadata.labels or {}
    except UNREADABLE:
        return False
    ours = any(
        labels.get(label) == "true"
        for label in (injection_spec.INJECT_LABEL, injection_spec.EXECUTOR_LABEL)
    )
    return ours or (outlook.gates and labels.get(ROLE_LABEL) in ROLES)


def _of_pod(
    request: AdmissionRequest, pod: dict[str, Any], outlook: injection_spec.InjectionSource
) -> AdmissionAnswer:
    gate = pod_patch.gate(pod) if outlook.waits(pod, request.namespace) else ()
    terms = outlook.terms_of(pod, request.namespace)
    if terms is None:
        return _answer(request, "other", "injected" if gate else "passed", gate)
    if isinstance(terms, injection_spec.InjectionRefusal):
        return _answer(request, "driver", "refused", gate, terms.sentence)
    role: Role = "executor" if isinstance(terms, injection_spec.ExecutorTerms) else "driver"
    operations = pod_patch.patch(pod, terms)
    if isinstance(operations, injection_spec.InjectionRefusal):
        return _answer(request, role, "refused", gate, operations.sentence)
    outcome: Outcome = "injected" if operations or gate else "passed"
    return _answer(request, role, outcome, (*operations, *gate))


def _answer(
    request: AdmissionRequest,
    role: Role,
    outcome: Outcome,
    operations: tuple[pod_patch.Operation, ...] = (),
    warning: str = "",
) -> AdmissionAnswer:
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
    return AdmissionAnswer(msgspec.json.encode(review), role, outcome)
