"""What goes back to the API server: every pod is allowed, whatever happens."""

import base64
import json
from typing import Any

import msgspec
import pytest
import spark_objects as objects
from injection_world import Informed, applied, driver, knowledge, new, review
from spark_objects import Body

from rekindle.model.errors import InputError
from rekindle_operator.cluster.pods import SIDECAR
from rekindle_operator.webhook import admission_review
from rekindle_operator.webhook.admission_review import AdmissionAnswer

OUTLOOK = Informed(knowledge())


def answered(pod: Any, outlook: Any = OUTLOOK, **more: Any) -> tuple[AdmissionAnswer, Body]:
    found = admission_review.answer(admission_review.read(review(pod, **more)), outlook)
    body = json.loads(found.body)
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Body = body["response"]
    assert response["uid"] == "705ab4f5"
    assert response["allowed"] is True
    return found, response


def test_a_driver_that_asks_for_it_gets_its_patch() -> None:
    pod = driver()
    found, response = answered(pod)
    assert (found.role, found.outcome) == ("driver", "injected")
    assert response["patchType"] == "JSONPatch"
    made = applied(pod, json.loads(base64.b64decode(response["patch"])))
    assert made["spec"]["initContainers"][0]["name"] == SIDECAR
    found, response = answered(made)
    assert (found.outcome, sorted(response)) == ("passed", ["allowed", "uid"])


def test_an_executor_gets_its_patch() -> None:
    found, response = answered(new(objects.submitted_executor(1), {}))
    assert (found.role, found.outcome) == ("executor", "injected")
    assert "warnings" not in response


def test_why_nothing_is_added_is_a_warning_of_a_length_that_is_not_cut() -> None:
    found, response = answered(driver(), namespace="elsewhere")
    assert (found.role, found.outcome) == ("driver", "refused")
    assert "patch" not in response
    sentence = "rekindle: no RecoveryPolicy selects flights; make one in its namespace"
    assert response["warnings"] == [sentence]
    long = new(objects.submitted_driver("x" * 300))
    (warning,) = answered(long)[1]["warnings"]
    assert len(warning) <= 256


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"operation": "UPDATE"}, id="a change"),
        pytest.param({"operation": "CREATE", "subResource": "binding"}, id="a binding"),
        pytest.param({"kind": {"group": "apps", "kind": "Deployment"}}, id="another kind"),
        pytest.param({"object": None}, id="no object"),
    ],
)
def test_what_is_no_new_pod_passes(more: dict[str, Any]) -> None:
    found, response = answered(driver(), **more)
    assert (found.role, found.outcome) == ("other", "passed")
    assert sorted(response) == ["allowed", "uid"]


class Broken:
    """An outlook with a bug."""

    gates = False

    def terms_of(self, pod: Any, namespace: str) -> None:
        raise ZeroDivisionError(f"{len(pod)} {namespace}")

    waits = terms_of


class BrokenInAnIncident(Broken):
    gates = True


def test_a_bug_of_ours_holds_up_no_pod() -> None:
    found, response = answered(driver(), Broken())
    assert found.outcome == "failed"
    assert "ZeroDivisionError" in found.trouble
    assert "the log of Rekindle's operator says why" in response["warnings"][0]


@pytest.mark.parametrize("pod", [[], "pod", 7, {"metadata": {"labels": ["rekindle.dev/inject"]}}])
def test_what_is_no_pod_asks_for_nothing(pod: Any) -> None:
    assert answered(pod)[0].outcome == "passed"


def test_a_pod_that_is_nested_too_deep_asks_for_nothing() -> None:
    """It is text until somebody looks for its labels."""
    deep = b'{"metadata": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    asked = admission_review.read(review({"pod": 1}))
    request = msgspec.structs.replace(asked, object=msgspec.Raw(deep))
    assert admission_review.answer(request, OUTLOOK).outcome == "passed"


def test_a_pod_that_does_not_ask_is_not_looked_into() -> None:
    pod = new(objects.submitted_driver(), {})
    assert answered(pod, Broken())[0].outcome == "passed"
    assert answered(pod, BrokenInAnIncident())[0].outcome == "failed"


def test_a_pod_that_no_api_server_can_keep_gets_nothing() -> None:
    found, response = answered(driver(schedulerName="x" * 3 * 2**19))
    assert found.outcome == "refused"
    assert "larger than 1.5 MiB" in response["warnings"][0]


@pytest.mark.parametrize(
    "pod", [{}, {"spec": None}, {"metadata": None}, {"metadata": {"labels": {"spark-role": 1}}}]
)
def test_pods_of_any_shape_are_allowed(pod: Body) -> None:
    answered(pod)
    labels = {"rekindle.dev/inject": "true"}
    answered({**pod, "metadata": {"labels": labels}})
    answered({**pod, "metadata": {"labels": {"spark-role": "executor"}}})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        review({}).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"),
        review({}, uid=7),
        b'{"request": {"object": ' + b"[" * 100_000,
    ],
)
def test_what_is_no_review_is_refused(body: bytes) -> None:
    with pytest.raises(InputError, match=r"the body: is no AdmissionReview: .*; send one of"):
        admission_review.read(body)
