"""What the plugin makes of words, of answers and of field managers."""

import json
import pickle
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import plugin_world as world
import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider_world import START, stamp

from rekindle.model.errors import InputError
from rekindle_operator.kubectl import (
    api_connection,
    durations,
    plugin_main,
    recovery_text,
    server_side_apply,
)
from rekindle_operator.kubectl.api_connection import CLASSES, PODS, POLICIES, RECOVERIES
from rekindle_operator.kubectl.subcommands import kubectl_priority
from rekindle_operator.preflight.preflight_findings import Concern

WHERE = "RecoveryPolicy flights/departures"
NOW = world.NOW


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("1d", 86_400), ("1h30m", 5_400)],
)
def test_a_duration_is_read_in_kubectls_form(text: str, seconds: int) -> None:
    assert durations.duration(text, "--for") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", " ", "0s", "30", "m30", "-5m", "1.5h", "900d", "30m20h"])
def test_a_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--for"):
        durations.duration(text, "--for")


@given(st.text(max_size=12))
def test_no_text_breaks_the_reading_of_a_duration_or_a_moment(text: str) -> None:
    for read in (lambda: durations.duration(text, "x"), lambda: durations.until(text, NOW, "x")):
        try:
            read()
        except InputError:
            continue


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T18:00:00Z", datetime(2026, 11, 21, 18, tzinfo=UTC)),
        ("2026-11-21T20:00:00+02:00", datetime(2026, 11, 21, 18, tzinfo=UTC)),
        ("2026-11-21T18:00", datetime(2026, 11, 21, 18, tzinfo=UTC)),
        ("18:30", datetime(2026, 11, 21, 18, 30, tzinfo=UTC)),
        ("09:30", datetime(2026, 11, 22, 9, 30, tzinfo=UTC)),
    ],
)
def test_a_moment_is_one_to_come(text: str, expected: datetime) -> None:
    assert durations.until(text, NOW, "--until") == expected


def test_a_moment_without_a_zone_is_of_the_readers_zone() -> None:
    east = NOW.astimezone(timezone(timedelta(hours=5)))
    found = durations.until("2026-11-22T03:00:00", east, "--until")
    assert durations.stamp(found) == "2026-11-21T22:00:00Z"


@pytest.mark.parametrize("text", ["2026-11-21T17:00:00Z", "2028-01-01T00:00:00Z", "25:00", "soon"])
def test_a_moment_that_is_over_too_far_or_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--until"):
        durations.until(text, NOW, "--until")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (4.25, "4.2 s"),
        (59.7, "1 min"),
        (90, "1 min 30 s"),
        (3_600, "1 h"),
        (3_660, "1 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_length_of_time_is_said_in_two_units_at_most(seconds: float, text: str) -> None:
    assert durations.span(seconds) == text


def answer(code: int, **said: Any) -> bytes:
    return json.dumps({"kind": "Status", "code": code, **said}).encode()


@pytest.mark.parametrize(
    ("kind", "status", "body", "what", "remedy"),
    [
        (POLICIES, 401, answer(401), "credentials are refused", "kubectl auth whoami"),
        (POLICIES, 403, answer(403), "you may not get recoverypolicies", "rekindle-edit"),
        (PODS, 403, answer(403), "you may not get pods", "kubectl auth can-i get pods"),
        (
            RECOVERIES,
            404,
            answer(404, details={"name": "x", "kind": "recoveries"}),
            "is not there",
            "kubectl get recoveries",
        ),
        (CLASSES, 404, b"404 page not found\n", "does not know", "kubectl apply --server-side"),
        (PODS, 404, b"404 page not found\n", "does not know", "what serves v1"),
        (POLICIES, 422, answer(422, message="spec.x: bad"), "spec.x: bad", "docs/resources.md"),
        (POLICIES, 409, answer(409, message="the object"), "changed meanwhile", "try again"),
        (POLICIES, 429, answer(429), "too much to do", "try again"),
        (POLICIES, 503, b"", "failed (503)", "API server's log"),
        (POLICIES, 500, b"[]", "failed (500)", "API server's log"),
    ],
)
def test_every_refusal_says_what_is_wrong_and_what_to_do(
    kind: Any, status: int, body: bytes, what: str, remedy: str
) -> None:
    found = api_connection.refusal_of(kind, WHERE, "get", status, body)
    assert isinstance(found, InputError)
    assert (found.where, found.status) == (WHERE, status)
    assert what in found.what
    assert remedy in found.remedy
    assert "\n" not in str(found)
    assert str(pickle.loads(pickle.dumps(found))) == str(found)


def test_who_asks_as_nobody_is_told_to_log_in() -> None:
    """The client asks without credentials when those of a kubeconfig's command fail."""
    body = answer(403, message='User "system:anonymous" cannot list resource')
    found = api_connection.refusal_of(POLICIES, WHERE, "list", 403, body)
    assert "credentials are refused" in found.what
    assert found.status == 401


def test_a_conflict_names_the_field_and_whoever_has_it() -> None:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "argocd-controller" using rekindle.dev/v1alpha1',
            "field": '.spec.priorities[query="rare"].priority',
        }
    ]
    body = answer(409, message="Apply failed", details={"causes": causes})
    found = api_connection.refusal_of(POLICIES, WHERE, "patch", 409, body)
    assert found.managers == ("argocd-controller",)
    assert found.what == '.spec.priorities[query="rare"].priority belongs to argocd-controller'
    assert "--force" in found.remedy
    causes.append({**causes[0], "field": '.spec.priorities[query="rare"].until'})
    body = answer(409, message="Apply failed", details={"causes": causes})
    two = api_connection.refusal_of(POLICIES, WHERE, "patch", 409, body)
    assert two.what.endswith(
        '.priority, .spec.priorities[query="rare"].until belong to argocd-controller'
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "HTTPSConnection(host='h', port=1): Failed to connect: [Errno 111] Connection refused",
            "Connection refused",
        ),
        ("('Connection aborted.', OSError(\"[Errno 104] reset by peer\"))", "reset by peer"),
        (
            "(0) Reason: SSLError [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
            "self-signed certificate (_ssl.c:1016)",
            "certificate verify failed: self-signed certificate",
        ),
        ("Connection to h timed out. (connect timeout=5.0)", "timed out"),
        ("", "OSError"),
    ],
)
def test_a_server_that_is_away_is_named_without_the_clients_own_words(
    said: str, shown: str
) -> None:
    found = api_connection.unreachable("https://h:1", OSError(said))
    assert str(found).startswith(f"API server https://h:1: does not answer ({shown});")


def owned(manager: str, *queries: str, operation: str = "Apply") -> dict[str, Any]:
    keys = {f"k:{json.dumps({'query': query})}": {".": {}} for query in queries}
    fields = {"f:spec": {"f:priorities": keys}}
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def with_priorities(*managed: dict[str, Any]) -> dict[str, Any]:
    entries = [
        {"query": "rare", "priority": 9, "until": durations.stamp(world.at(100))},
        {"query": "common", "priority": 2, "until": durations.stamp(world.at(1_000))},
        {"query": "worst=delays", "priority": 7},
        {"query": "theirs", "priority": 5, "until": durations.stamp(world.at(100))},
    ]
    record = world.policy_record(priorities=entries)
    record["metadata"] |= {"managedFields": [*managed], "uid": "u", "resourceVersion": "5"}
    return record


def test_what_the_manager_has_is_kept_until_it_expires_and_others_are_never_said() -> None:
    record = with_priorities(
        owned(kubectl_priority.MANAGER, "rare", "common", "worst=delays"),
        owned("gitops", "theirs"),
    )
    held, expired = kubectl_priority.kept_entries(record, NOW)
    assert [entry.query for entry in held] == ["common", "worst=delays"]
    assert expired == ("rare",)
    body = kubectl_priority.applied_part(
        record, (*held, kubectl_priority.parse_entry("new=1", None))
    )
    assert body["metadata"]["resourceVersion"] == "5"
    assert [item["query"] for item in body["spec"]["priorities"]] == [
        "common",
        "worst=delays",
        "new",
    ]


def test_an_apply_of_nothing_claims_nothing() -> None:
    assert "spec" not in kubectl_priority.applied_part(with_priorities(), ())


def test_a_query_may_have_an_equals_sign_in_its_name() -> None:
    found = kubectl_priority.parse_entry("worst=delays=3", None)
    assert (found.query, found.priority) == ("worst=delays", 3)


def test_who_has_an_entry_is_said_of_each() -> None:
    record = with_priorities(
        owned("gitops", "rare"), owned(kubectl_priority.MANAGER, "rare", "common")
    )
    assert kubectl_priority.owners_of(record) == {
        "rare": ("gitops", kubectl_priority.MANAGER),
        "common": (kubectl_priority.MANAGER,),
    }


def paused_by(manager: str, operation: str, applied: Any = None) -> dict[str, Any]:
    fields = {"f:spec": {"f:paused": {}}}
    entry = {"manager": manager, "operation": operation, "fieldsV1": fields}
    metadata: dict[str, Any] = {"managedFields": [entry]}
    if applied is not None:
        metadata["annotations"] = {server_side_apply.LAST_APPLIED: applied}
    return {"metadata": metadata}


@pytest.mark.parametrize(
    ("record", "default"),
    [
        (paused_by("gitops", "Apply"), False),
        (paused_by("kubectl-create", "Update"), True),
        (paused_by("kubectl-client-side-apply", "Update", '{"spec": {}}'), True),
        (paused_by("kubectl-client-side-apply", "Update", '{"spec": {"paused": false}}'), False),
        (paused_by("kubectl-client-side-apply", "Update", "no JSON"), True),
        ({"metadata": {}}, True),
    ],
)
def test_a_default_is_told_from_what_somebody_has_said(record: Any, default: bool) -> None:
    assert server_side_apply.is_default(record, "spec", "paused") is default


def test_every_finding_and_every_command_is_on_the_page() -> None:
    page = (Path(__file__).parents[4] / "docs" / "kubectl.md").read_text()
    for word in Concern:
        assert f"`{word}`" in page
    for command in plugin_main.COMMANDS:
        assert re.search(rf"`{command.name}[` ]", page), command.name


def pending(message: str = "", age: float = 0.0, **spec: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    return {
        "metadata": {"creationTimestamp": stamp(START - age)},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [condition] if message else []},
    }


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([], ""),
        ([pending("full", nodeName="n1")], ""),
        (
            [pending("0/3 nodes are available: 3 Insufficient cpu.", 40)],
            "1 executor pod waits for a node, the oldest for 40 s: "
            "0/3 nodes are available: 3 Insufficient cpu.",
        ),
        (
            [pending("full", 9), pending("full", 5), pending()],
            "3 executor pods wait for a node, the oldest for 9 s: "
            "full (2); the scheduler has not looked at it yet (1).",
        ),
        (
            [pending(word) for word in "abcde"],
            "5 executor pods wait for a node, the oldest for 0 s: "
            "a (1); b (1); c (1); and 2 more reasons.",
        ),
    ],
)
def test_what_is_pending_is_told_in_the_schedulers_words(
    pods: list[dict[str, Any]], said: str
) -> None:
    assert recovery_text.pending_pods(pods, START) == said
