"""Preflight of files: what a manifest may hold, and that none of them breaks it."""

import io
from typing import Any

import plugin_world as world
import preflight_world
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.errors import InputError
from rekindle_operator.kubectl import application_reader
from rekindle_operator.kubectl.application_reader import ObjectLists
from rekindle_operator.preflight import preflight_checks
from rekindle_operator.preflight.subjects import spark_pods


def read_text(tmp_path: Any, text: str) -> ObjectLists:
    file = tmp_path / "manifest.yaml"
    file.write_text(text)
    return application_reader.read_file(str(file), "flights")


def test_a_manifest_may_hold_a_teams_whole_folder(tmp_path: Any) -> None:
    application = preflight_world.apache_body()
    del application["metadata"]["namespace"]
    listed = {"kind": "List", "apiVersion": "v1", "items": [application]}
    service = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s"}}
    policy = {**world.policy_record(), "metadata": {"name": "all"}}
    found = read_text(tmp_path, yaml.safe_dump_all([listed, service, None, policy]))
    assert found.policies is not None
    (subject,) = application_reader.subjects(found)
    assert (subject.namespace, subject.name, subject.trouble) == ("flights", "departures", "")
    assert subject.workload is not None
    assert subject.around.policies is not None
    assert found.claims is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [", "is no YAML"),
        ("- a", "is no object"),
        ("kind: SparkApplication\n", "without a name"),
        ("kind: Service\nmetadata: {name: s}\n", "neither a SparkApplication nor a driver"),
        ("", "neither"),
    ],
)
def test_a_file_without_an_application_is_refused(tmp_path: Any, text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_text(tmp_path, text)


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    text = yaml.safe_dump(preflight_world.kubeflow_body())
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert len(application_reader.read_file("-", "flights").applications) == 1


@pytest.mark.parametrize(
    "spec",
    [
        {"executor": {"memory": "much"}},
        {"executor": ["a"]},
        {"driver": "one"},
        {"sparkConf": ["spark.a=b"]},
        {"restartPolicy": {"type": "OnFailure", "onFailureRetries": "many"}},
        {"volumes": 7},
    ],
)
def test_a_manifest_that_its_operator_would_refuse_is_told_and_the_others_are_looked_at(
    spec: Any,
) -> None:
    body = preflight_world.kubeflow_body()
    body["metadata"]["name"] = "broken"
    body["spec"] |= spec
    found = ObjectLists(applications=(body, preflight_world.kubeflow_body()))
    told = {subject.name: subject.trouble for subject in application_reader.subjects(found)}
    assert told["departures"] == ""
    assert told["broken"]


@pytest.mark.parametrize(
    ("part", "field"),
    [("metadata", "metadata.labels"), ("spec", "spec.restartPolicy"), ("status", "status")],
)
def test_an_object_of_another_form_is_told_with_its_field(part: str, field: str) -> None:
    body = preflight_world.kubeflow_body()
    changes = {
        "metadata": {**body["metadata"], "labels": "none"},
        "spec": {"restartPolicy": "Always"},
        "status": "fine",
    }
    body[part] = changes[part]
    (subject,) = application_reader.subjects(ObjectLists(applications=(body,)))
    assert (subject.kind, subject.name) == ("SparkApplication", "departures")
    assert subject.trouble.startswith(f"{field}: is text")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
FIELDS = {
    "kubeflow": ["sparkConf", "restartPolicy", "driver", "executor", "volumes", "type"],
    "apache": ["sparkConf", "applicationTolerations", "driverSpec", "executorSpec", "pyFiles"],
}


@pytest.mark.parametrize("kind", FIELDS)
@given(data=st.data())
def test_no_manifest_breaks_preflight(kind: str, data: Any) -> None:
    """Whatever stands where: a finding, or a sentence that says what cannot be read."""
    make = {"kubeflow": preflight_world.kubeflow_body, "apache": preflight_world.apache_body}
    body = make[kind]()
    field = data.draw(st.sampled_from(FIELDS[kind]))
    value = data.draw(JSON)
    if isinstance(body["spec"].get(field), dict) and data.draw(st.booleans()):
        body["spec"][field][data.draw(st.sampled_from(sorted(body["spec"][field])))] = value
    else:
        body["spec"][field] = value
    try:
        (subject,) = application_reader.subjects(ObjectLists(applications=(body,)))
    except InputError:
        return
    if subject.workload is not None:
        preflight_checks.application(subject.workload, subject.around)
    else:
        assert subject.trouble.endswith(".")


def test_applications_that_have_ended_are_left_out_unless_they_are_named() -> None:
    body = preflight_world.kubeflow_body()
    body["status"] = {"applicationState": {"state": "COMPLETED"}}
    found = ObjectLists(applications=(body,))
    assert [*application_reader.subjects(found)] == []
    assert [subject.name for subject in application_reader.subjects(found, "departures")] == [
        "departures"
    ]


def test_a_driver_that_nothing_names_is_looked_at_under_its_pods_name() -> None:
    driver = preflight_world.plain_driver(
        lambda body: body["metadata"].update(labels={"spark-role": "driver"})
    )
    (subject,) = application_reader.subjects(ObjectLists(pods=(driver,), policies=()))
    assert subject.workload is not None
    assert "name-missing" in preflight_world.words(subject.workload, subject.around)


def test_what_a_file_says_goes_before_what_the_cluster_has() -> None:
    ours = world.policy_record(priorities=[{"query": "q", "priority": 1}])
    theirs = world.policy_record()
    merged = application_reader.merged(
        ObjectLists(policies=(ours,)), ObjectLists(policies=(theirs,), claims=())
    )
    assert merged.policies == (ours,)
    assert merged.claims == ()
    assert merged.nodes is None


@pytest.mark.parametrize(
    ("spec", "trouble"),
    [
        ({"sparkConf": [1, 2]}, "spec.sparkConf: is a list, and has to be a mapping"),
        ({"restartPolicy": "Always"}, "spec.restartPolicy: is text, and has to be a mapping"),
        ({"restartPolicy": {"type": "Sometimes"}}, "restartPolicy.type: 'Sometimes' is no value"),
        ({"executor": {"labels": ["a"]}}, "spec.executor.labels: is a list"),
        ({"driver": {"template": {"spec": 3}}}, "spec.driver.template.spec: is a whole number"),
    ],
)
def test_a_field_of_another_form_is_named_and_the_other_applications_are_looked_at(
    spec: Any, trouble: str
) -> None:
    body = preflight_world.kubeflow_body()
    body["metadata"]["name"] = "broken"
    body["spec"] |= spec
    found = ObjectLists(applications=(body, preflight_world.kubeflow_body()))
    told = {subject.name: subject.trouble for subject in application_reader.subjects(found)}
    assert trouble in told["broken"]
    assert told["departures"] == ""
    (asked,) = application_reader.subjects(found, "departures")
    assert asked.workload is not None


def test_a_driver_without_command_and_arguments_is_looked_at() -> None:
    body = preflight_world.plain_driver()
    for container in body["spec"]["containers"]:
        container.pop("command")
        container.pop("args")
    (subject,) = application_reader.subjects(ObjectLists(pods=(body,)))
    assert (subject.trouble, subject.workload is None) == ("", False)
    assert spark_pods.command_settings(body["spec"]) == {}
