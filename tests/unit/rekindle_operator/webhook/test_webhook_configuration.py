"""When the API server asks, and whom it trusts."""

import base64
import copy

from spark_objects import Body

from rekindle_operator.webhook import webhook_configuration

SERVICE = webhook_configuration.service("rekindle-webhook", "rekindle")
GIVEN = webhook_configuration.manifest(
    "rekindle", SERVICE, excluded_namespaces=("rekindle",), turns=True
)


def trusting(*bundles: bytes) -> Body:
    """The configuration as it is stored, its webhooks with these bundles."""
    stored = copy.deepcopy(GIVEN)
    stored["metadata"]["resourceVersion"] = "7"
    for webhook, bundle in zip(stored["webhooks"], bundles, strict=True):
        if bundle:
            webhook["clientConfig"] = {
                **webhook["clientConfig"],
                "caBundle": base64.b64encode(bundle).decode(),
            }
    return stored


def test_a_webhook_that_is_away_or_hangs_holds_up_no_pod_for_long() -> None:
    for webhook in GIVEN["webhooks"]:
        assert webhook["failurePolicy"] == "Ignore"
        assert webhook["timeoutSeconds"] <= 5
        assert webhook["sideEffects"] == "None"
        assert webhook["clientConfig"]["service"]["path"] == "/inject"


def test_drivers_are_asked_about_by_their_wish_and_executors_by_sparks_and_ours() -> None:
    drivers, executors, turns = GIVEN["webhooks"]
    assert drivers["objectSelector"] == {"matchLabels": {"rekindle.dev/inject": "true"}}
    assert executors["objectSelector"] == {
        "matchLabels": {"spark-role": "executor", "rekindle.dev/executor": "true"}
    }
    (role,) = turns["objectSelector"]["matchExpressions"]
    assert (role["key"], role["values"]) == ("spark-role", ["driver", "executor"])


def test_namespaces_of_the_system_and_our_own_are_left_alone() -> None:
    for webhook in GIVEN["webhooks"]:
        (requirement,) = webhook["namespaceSelector"]["matchExpressions"]
        assert requirement["operator"] == "NotIn"
        system = ["kube-node-lease", "kube-public", "kube-system"]
        assert requirement["values"] == [*system, "rekindle"]


def test_a_bundle_is_set_in_every_webhook_and_no_more_is_touched() -> None:
    patch = webhook_configuration.bundle_patch(trusting(b"", b"", b""), b"new")
    encoded = base64.b64encode(b"new").decode()
    assert patch == {
        "metadata": {"resourceVersion": "7"},
        "webhooks": [
            {"name": "drivers.rekindle.dev", "clientConfig": {"caBundle": encoded}},
            {"name": "executors.rekindle.dev", "clientConfig": {"caBundle": encoded}},
            {"name": "turns.rekindle.dev", "clientConfig": {"caBundle": encoded}},
        ],
    }


def test_a_bundle_that_is_there_is_not_written_again() -> None:
    assert webhook_configuration.bundle_patch(trusting(b"new", b"new", b"new"), b"new") is None
    assert webhook_configuration.bundle_patch(trusting(b"new", b"new", b""), b"new") is not None
    assert webhook_configuration.bundle_patch(trusting(b"new", b"new", b"old"), b"new") is not None


def test_the_bundle_of_a_manifest_can_be_given() -> None:
    given = webhook_configuration.manifest("rekindle", SERVICE, bundle=b"new")
    assert webhook_configuration.bundle_of(given) == b"new"
    assert webhook_configuration.bundle_of(GIVEN) == b""
    assert webhook_configuration.bundle_of({}) == b""
