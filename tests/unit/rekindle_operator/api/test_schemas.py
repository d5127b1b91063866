"""The schemas in crds/, as far as can be told without an API server; and the examples in docs/."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from rekindle_operator.api import (
    custom_resources,
    recovery_class,
    recovery_policy,
    recovery_resource,
)
from rekindle_operator.api.custom_resources import Resource, ResourceReason

ROOT = Path(__file__).parents[4]
KINDS: dict[str, type[Resource]] = {
    "RecoveryPolicy": recovery_policy.RecoveryPolicy,
    "RecoveryClass": recovery_class.RecoveryClass,
    "Recovery": recovery_resource.Recovery,
}
FILES = {
    "RecoveryPolicy": "recoverypolicies.yaml",
    "RecoveryClass": "recoveryclasses.yaml",
    "Recovery": "recoveries.yaml",
}
# The API server's own resources, and those of whatever runs beside us on such clusters.
SHORT_NAMES_TAKEN = {
    *("cm", "cs", "crd", "crds", "csr", "cj", "deploy", "ds", "ep", "ev", "hpa", "ing", "limits"),
    *("netpol", "no", "ns", "pc", "pdb", "po", "pv", "pvc", "quota", "rc", "rs", "sa", "sc", "sts"),
    *("svc", "sparkapp", "scheduledsparkapp", "provreq", "provreqs", "cb", "md", "ms", "ma", "mhc"),
    *("nc", "np", "wl", "cq", "lq", "rf", "vcjob", "vj", "q", "pg", "kp", "ckp"),
}
PRINTED = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def definition(kind: str) -> dict[str, Any]:
    record: dict[str, Any] = yaml.safe_load((ROOT / "crds" / FILES[kind]).read_text())
    return record


def version(kind: str) -> dict[str, Any]:
    (found,) = definition(kind)["spec"]["versions"]
    record: dict[str, Any] = found
    return record


def schema(kind: str) -> dict[str, Any]:
    record: dict[str, Any] = version(kind)["schema"]["openAPIV3Schema"]
    return record


def walk(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema in a schema, by its path: `.spec.priorities[].query`, `.labels{}`."""
    yield path, node
    for name, below in node.get("properties", {}).items():
        yield from walk(below, f"{path}.{name}")
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), Mapping):
        yield from walk(node["additionalProperties"], f"{path}{{}}")


NODES = [
    pytest.param(kind, node, id=f"{kind}{path}")
    for kind in KINDS
    for path, node in walk(schema(kind))
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_names_its_resource(kind: str) -> None:
    record = definition(kind)
    spec, names = record["spec"], record["spec"]["names"]
    assert record["metadata"]["name"] == f"{names['plural']}.{spec['group']}"
    assert (spec["group"], version(kind)["name"]) == ("rekindle.dev", "v1alpha1")
    assert FILES[kind] == f"{names['plural']}.yaml"
    assert (names["kind"], names["listKind"]) == (kind, f"{kind}List")
    assert names["singular"] == kind.lower()
    assert names["categories"] == ["rekindle"]
    assert spec["scope"] == ("Cluster" if kind == "RecoveryClass" else "Namespaced")
    assert version(kind)["subresources"] == {"status": {}}


def test_short_names_collide_with_nothing() -> None:
    names = [name for kind in KINDS for name in definition(kind)["spec"]["names"]["shortNames"]]
    assert len({*names}) == len(names)
    assert not SHORT_NAMES_TAKEN & {*names}


@pytest.mark.parametrize(("kind", "node"), NODES)
def test_every_field_is_typed_described_and_bounded(kind: str, node: Mapping[str, Any]) -> None:
    assert kind in KINDS
    assert node["description"].endswith("."), "a description is a sentence"
    if node.get("x-kubernetes-int-or-string"):
        assert node["maxLength"]
        return
    match node["type"]:
        case "string":
            assert "enum" in node or "maxLength" in node
        case "array":
            assert {"items", "maxItems", "x-kubernetes-list-type"} <= node.keys()
        case "integer" | "number":
            assert "minimum" in node
        case "object":
            assert ("properties" in node) != ("additionalProperties" in node)
            assert "additionalProperties" not in node or "maxProperties" in node
        case "boolean":
            pass
        case other:
            pytest.fail(f"{other} is no type of a structural schema")
    for forbidden in ("oneOf", "anyOf", "allOf", "not", "$ref", "uniqueItems", "pattern"):
        assert forbidden not in node, "say it in a validation, with a message"


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_person_gives_is_bounded_on_both_sides(kind: str) -> None:
    for path, node in walk(schema(kind)["properties"]["spec"]):
        if node.get("type") in ("integer", "number"):
            assert {"minimum", "maximum"} <= node.keys(), path


@pytest.mark.parametrize(("kind", "node"), NODES)
def test_items_with_names_merge_by_them(kind: str, node: Mapping[str, Any]) -> None:
    assert kind in KINDS
    keys = node.get("x-kubernetes-list-map-keys", [])
    assert bool(keys) == (node.get("x-kubernetes-list-type") == "map")
    for key in keys:
        field = node["items"]["properties"][key]
        assert key in node["items"]["required"] or "default" in field


@pytest.mark.parametrize(("kind", "node"), NODES)
def test_every_validation_tells_a_person_what_to_do(kind: str, node: Mapping[str, Any]) -> None:
    assert kind in KINDS
    for rule in node.get("x-kubernetes-validations", []):
        message = rule["message"]
        assert len(message) > 20
        assert "self" not in message.split()
        assert message[0].islower() or message.split()[0] in {
            *("In", "Exists", "a", "SparkApplication", "sparkApplications")
        }


@pytest.mark.parametrize(("kind", "node"), NODES)
def test_rules_hold_for_a_default_that_is_still_empty(kind: str, node: Mapping[str, Any]) -> None:
    """The API server checks a default `{}` before it fills in what is below it."""
    assert kind in KINDS
    if node.get("default") == {}:
        for rule in node.get("x-kubernetes-validations", []):
            for name in re.findall(r"self\.(\w+)", rule["rule"]):
                assert f"has(self.{name})" in rule["rule"]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_point_at_fields(kind: str) -> None:
    paths = {path for path, _ in walk(schema(kind))}
    condition = re.compile(r'^\.status\.conditions\[\?\(@\.type=="(\w+)"\)\]\.(status|message)$')
    columns = version(kind)["additionalPrinterColumns"]
    assert len({column["name"] for column in columns}) == len(columns)
    for column in columns:
        path = column["jsonPath"]
        found = condition.match(path)
        if found:
            assert (
                getattr(custom_resources, re.sub(r"(?<!^)(?=[A-Z])", "_", found[1]).upper())
                == found[1]
            )
        else:
            assert path in paths or path == ".metadata.creationTimestamp"


@pytest.mark.parametrize("part", ["spec", "status"])
@pytest.mark.parametrize("kind", KINDS)
def test_schema_and_values_have_the_same_fields_and_limits(kind: str, part: str) -> None:
    (model,), components = msgspec.json.schema_components([KINDS[kind]])
    resource = components[model["$ref"].rpartition("/")[2]]
    differences = compare(
        schema(kind)["properties"][part], resource["properties"][part], components, part
    )
    assert [*differences] == []


LIMITS = (
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"),
    "format",
)


def compare(
    there: Mapping[str, Any], model: Mapping[str, Any], components: Mapping[str, Any], path: str
) -> Iterator[str]:
    """Where a schema of ours and that of a value differ, in words."""
    model = resolved(model, components)
    if there.get("x-kubernetes-int-or-string"):
        return
    if "enum" in model:
        if {*there["enum"]} != {*model["enum"]}:
            yield f"{path}: {there['enum']} and {model['enum']}"
        return
    if there["type"] != model["type"]:
        yield f"{path}: {there['type']} and {model['type']}"
    for limit in LIMITS:
        hers, ours = there.get(limit), model.get(limit)
        if limit == "format" and hers == "int64":
            continue
        if limit == "maxLength" and there.get("format") == "date-time":
            continue
        if hers != ours:
            yield f"{path}: {limit} {hers} and {ours}"
    if "properties" in there:
        yield from compare_fields(there, model, components, path)
    elif "additionalProperties" in there:
        below = there["additionalProperties"], model["additionalProperties"]
        yield from compare(*below, components, f"{path}{{}}")
    elif "items" in there:
        yield from compare(there["items"], model["items"], components, f"{path}[]")


def compare_fields(
    there: Mapping[str, Any], model: Mapping[str, Any], components: Mapping[str, Any], path: str
) -> Iterator[str]:
    hers, ours = there["properties"], model["properties"]
    if hers.keys() != ours.keys():
        yield f"{path}: only one has {sorted(hers.keys() ^ ours.keys())}"
    if {*there.get("required", [])} != {*model.get("required", [])}:
        yield f"{path}: required {there.get('required')} and {model.get('required')}"
    for name in hers.keys() & ours.keys():
        yield from compare(hers[name], ours[name], components, f"{path}.{name}")


def resolved(model: Mapping[str, Any], components: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without a reference, and without the null of what may be left out."""
    if "$ref" in model:
        return resolved(components[model["$ref"].rpartition("/")[2]], components)
    choices = [item for item in model.get("anyOf", []) if item != {"type": "null"}]
    return resolved(choices[0], components) if len(choices) == 1 else model


POLICY = {"selector": {"sparkApplications": {"names": ["a"]}}}
KARPENTER = {
    "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
    "requirements": [{"key": "k", "operator": "Exists"}],
}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("RecoveryPolicy", POLICY),
        ("RecoveryPolicy", {"selector": {"drivers": {"labelSelector": {}}}}),
        ("RecoveryPolicy", {**POLICY, "planning": {}, "guards": {}, "correlated": {}}),
        ("RecoveryClass", {}),
        ("RecoveryClass", {"limits": {}, "fencing": {}, "sidecar": {}, "detection": {}}),
        (
            "RecoveryClass",
            {"sidecar": {"store": {"addresses": ["a:1"], "secretRef": {"name": "s"}}}},
        ),
        (
            "RecoveryClass",
            {"provisioning": [{"name": "n", "provider": "Karpenter", "karpenter": KARPENTER}]},
        ),
        (
            "RecoveryClass",
            {
                "provisioning": [
                    {
                        "name": "n",
                        "provider": "ProvisioningRequest",
                        "provisioningRequest": {"className": "c"},
                        "limits": {},
                    }
                ]
            },
        ),
        (
            "RecoveryClass",
            {
                "provisioning": [
                    {
                        "name": "n",
                        "provider": "ClusterAPI",
                        "clusterAPI": {
                            "machineDeployments": [
                                {"namespace": "s", "name": "n", "replicasMax": 1}
                            ],
                            "kubeconfigSecretRef": {"namespace": "s", "name": "n"},
                        },
                    }
                ]
            },
        ),
        (
            "Recovery",
            {
                "application": {"kind": "Driver", "name": "a"},
                "incident": 1,
                "policyName": "p",
                "className": "c",
            },
        ),
    ],
)
def test_defaults_of_schema_and_values_are_the_same(kind: str, spec: dict[str, Any]) -> None:
    given = {"metadata": {"name": "n"}, "spec": spec}
    filled = {
        "metadata": {"name": "n"},
        "spec": defaulted(spec, schema(kind)["properties"]["spec"]),
    }
    assert msgspec.convert(filled, KINDS[kind]) == msgspec.convert(given, KINDS[kind])


def defaulted(value: Any, node: Mapping[str, Any]) -> Any:
    """A value with the schema's defaults, as the API server fills them in."""
    if isinstance(value, list):
        return [defaulted(item, node["items"]) for item in value]
    if not isinstance(value, Mapping) or "properties" not in node:
        return value
    below = node["properties"]
    defaults = {name: field["default"] for name, field in below.items() if "default" in field}
    return {name: defaulted(item, below[name]) for name, item in {**defaults, **value}.items()}


def examples() -> list[dict[str, Any]]:
    """Every example of docs/resources.md."""
    text = (ROOT / "docs" / "resources.md").read_text()
    return [yaml.safe_load(found) for found in PRINTED.findall(text)]


def paths_of(value: Any, node: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The schema's paths that a value shows; a key of a mapping is its `{}`."""
    yield path
    if isinstance(value, list):
        for item in value:
            yield from paths_of(item, node["items"], f"{path}[]")
    elif isinstance(value, Mapping) and "additionalProperties" in node:
        yield f"{path}{{}}"
    elif isinstance(value, Mapping):
        for name, item in value.items():
            assert name in node["properties"], f"{path}.{name} is no field"
            yield from paths_of(item, node["properties"][name], f"{path}.{name}")


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_shown_in_the_documentation(kind: str) -> None:
    shown = {
        path
        for example in examples()
        if example["kind"] == kind
        for part in ("spec", "status")
        for path in paths_of(example.get(part, {}), schema(kind)["properties"][part], f".{part}")
    }
    assert {path for path, _ in walk(schema(kind)) if path} - shown == set()


@pytest.mark.parametrize("example", examples(), ids=lambda example: example["metadata"]["name"])
def test_every_example_is_read_and_its_status_is_written_as_it_stands(
    example: dict[str, Any],
) -> None:
    resource = msgspec.convert(example, KINDS[example["kind"]])
    expected = example.get("status")
    if expected is None:
        return
    match resource:
        case recovery_policy.RecoveryPolicy():
            assert recovery_policy.to_status(resource.status) == expected
        case recovery_class.RecoveryClass():
            assert recovery_class.to_status(resource.status, resource.spec) == expected
        case recovery_resource.Recovery():
            assert recovery_resource.to_status(resource.status) == expected


def test_every_phase_and_reason_of_resources_is_explained() -> None:
    text = (ROOT / "docs" / "resources.md").read_text()
    for reason in ResourceReason:
        assert f"| `{custom_resources.camel_case(reason)}` | {reason.meaning} |" in text
    for phase in schema("Recovery")["properties"]["status"]["properties"]["phase"]["enum"]:
        assert f"| `{phase}` |" in text
    assert {*recovery_resource.ENDED} == {"Recovered", "Abandoned"}


@pytest.mark.parametrize("kind", KINDS)
def test_lines_of_a_definition_can_be_read(kind: str) -> None:
    for number, line in enumerate((ROOT / "crds" / FILES[kind]).read_text().splitlines(), start=1):
        assert len(line) <= 100 or "matches(" in line, f"{FILES[kind]}:{number} is too long"
