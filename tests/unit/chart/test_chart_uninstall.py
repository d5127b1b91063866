"""What runs before the chart is uninstalled: a Job that lifts our gate from all pods."""

import inspect

import pytest
from chart_commands import NAMESPACE, Helm, Object, pick

import rekindle
from rekindle_operator.gates import gate_release

HOOKS = "helm.sh/hook"


def hooks(objects: list[Object]) -> dict[str, Object]:
    """Objects that are there while the chart is uninstalled alone, by kind."""
    return {
        item["kind"]: item
        for item in objects
        if item["metadata"].get("annotations", {}).get(HOOKS) == "pre-delete"
    }


def test_before_the_chart_goes_a_job_releases_all_pods_that_wait_for_their_turn(
    renderer: Helm,
) -> None:
    found = hooks(
        renderer.objects(
            *("--set", "wholeApplications=true", "--set", "uninstall.timeoutSeconds=300"),
            *("--set", "image.repository=there/rekindle", "--set", "imagePullSecrets[0].name=ours"),
        )
    )
    weights = {
        kind: int(item["metadata"]["annotations"][f"{HOOKS}-weight"])
        for kind, item in found.items()
    }
    first, *between, last = sorted(weights, key=lambda kind: weights[kind])
    assert (first, last) == ("ServiceAccount", "Job")
    assert {*between} == {"ClusterRole", "ClusterRoleBinding", "NetworkPolicy"}
    for item in found.values():
        assert item["metadata"]["annotations"][f"{HOOKS}-delete-policy"] == (
            "before-hook-creation,hook-succeeded"
        ), "what has failed is to be read"
    job = found["Job"]
    assert job["metadata"]["annotations"][f"{HOOKS}-output-log-policy"] == "hook-failed"
    assert job["spec"]["activeDeadlineSeconds"] == 300
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert pod["imagePullSecrets"] == [{"name": "ours"}]
    (container,) = pod["containers"]
    assert container["image"] == f"there/rekindle:{rekindle.__version__}"
    assert container["command"] == [gate_release.PROGRAM]
    options = {word.partition("=")[0] for word in container["args"]}
    known = inspect.signature(gate_release.release_gates).parameters
    assert options <= {f"--{name.replace('_', '-')}" for name in known}
    assert "--helm-only" in container["args"], "at an installation without Helm it does no harm"
    assert "--timeout-seconds=150" in container["args"], "the rest is for its pod to come up"
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels


def test_the_job_has_what_the_operators_pod_has_and_its_own_values_hold_over_that(
    renderer: Helm,
) -> None:
    settings = (
        "wholeApplications=true",
        "operator.podLabels.team=data",
        "operator.podLabels.mesh=on",
        "operator.podLabels.app\\.kubernetes\\.io/component=other",
        "operator.podAnnotations.inject=yes",
        "operator.serviceAccountAnnotations.role=ours",
        "uninstall.podLabels.mesh=off",
        "uninstall.podAnnotations.inject=no",
        "uninstall.jobLabels.kueue\\.x-k8s\\.io/queue-name=system",
    )
    words = [word for value in settings for word in ("--set-string", value)]
    words[1], words[0] = "wholeApplications=true", "--set"
    objects = renderer.objects(*words)
    found = hooks(objects)
    job = found["Job"]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "system"
    assert found["ServiceAccount"]["metadata"]["annotations"]["role"] == "ours"
    template = job["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert (labels["team"], labels["mesh"]) == ("data", "off")
    selector = found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    assert selector.items() <= labels.items()
    assert template["metadata"]["annotations"] == {"inject": "no"}
    operator = pick(objects, "Deployment", "rekindle-operator")["spec"]["template"]
    assert operator["metadata"]["labels"]["mesh"] == "on"

    def resources(pod: Object) -> Object:
        (container,) = pod["spec"]["containers"]
        given: Object = container["resources"]
        return given

    assert resources(template) == resources(operator)
    small = renderer.objects(*words, "--set", "uninstall.resources.limits.memory=256Mi")
    assert resources(hooks(small)["Job"]["spec"]["template"]) == {"limits": {"memory": "256Mi"}}


@pytest.mark.parametrize(
    "settings",
    [[], ["wholeApplications=true", "uninstall.releaseGates=false"]],
    ids=["no gates", "switched off"],
)
def test_where_no_pod_waits_or_a_value_says_so_nothing_runs_before_the_chart_goes(
    renderer: Helm, settings: list[str]
) -> None:
    objects = renderer.objects(*(word for value in settings for word in ("--set", value)))
    assert not hooks(objects)
    assert "rekindle-release-gates" not in {item["metadata"]["name"] for item in objects}


@pytest.mark.parametrize("account", ["rekindle-operator", "rekindle-release-gates"])
def test_who_lifts_gates_is_held_to_its_own_by_an_admission_policy(
    renderer: Helm, account: str
) -> None:
    objects = renderer.objects("--set", "wholeApplications=true")
    policy = pick(objects, "ValidatingAdmissionPolicy", "rekindle-operator-gates")
    (condition,) = policy["spec"]["matchConditions"]
    assert f"'system:serviceaccount:{NAMESPACE}:{account}'" in condition["expression"]
