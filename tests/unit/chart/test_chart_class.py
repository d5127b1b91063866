"""The RecoveryClass `default` of the chart: what its definition would refuse, the chart refuses."""

import json
import os

import pytest
import yaml
from chart_commands import CHART, EVERYTHING, ROOT, Helm, Object, pick
from class_schema import class_schema, class_specification, rules

SCHEMA = CHART / "values.schema.json"
WRITE = "REKINDLE_WRITE_SNAPSHOTS"
PROVIDER = "recoveryClass.spec.provisioning[0]"
SPARE = (f"{PROVIDER}.name=spare", f"{PROVIDER}.provider=ProvisioningRequest")
REQUESTS = (*SPARE, f"{PROVIDER}.provisioningRequest.className=a", "provisioning.karpenter=true")
CLAIMS = (
    *(f"{PROVIDER}.name=claims", f"{PROVIDER}.provider=Karpenter"),
    *(f"{PROVIDER}.karpenter.nodeClassRef.{word}=a" for word in ("group", "kind", "name")),
    *(f"{PROVIDER}.karpenter.requirements[0].key=a", "provisioning.karpenter=true"),
)
SECOND = "recoveryClass.spec.provisioning[1]"
PENDING = (f"{PROVIDER}.name=a", f"{PROVIDER}.provider=PendingPods")
# Settings against each rule of the definition, by a part of its message.
RULES = {
    "provider ProvisioningRequest needs provisioningRequest": SPARE,
    "provider Karpenter needs karpenter": (*PENDING[:1], f"{PROVIDER}.provider=Karpenter"),
    "provider ClusterAPI needs clusterAPI": (*PENDING[:1], f"{PROVIDER}.provider=ClusterAPI"),
    "provider PendingPods takes no limits": (*PENDING, f"{PROVIDER}.limits.nodesAtOnceMax=1"),
    "provisioning has PendingPods twice": (
        *(*PENDING, f"{SECOND}.name=b", f"{SECOND}.provider=PendingPods"),
    ),
    "Exists and DoesNotExist take no values": (
        *(*CLAIMS, f"{PROVIDER}.karpenter.requirements[0].operator=In"),
    ),
    "nodesPerRequestMax is above nodesAtOnceMax": (
        *(*REQUESTS, f"{PROVIDER}.limits.nodesPerRequestMax=21"),
    ),
    "nodesAtOnceMax is above nodesPerIncidentMax": (
        "recoveryClass.spec.limits.nodesPerIncidentMax=1",
    ),
    "backOffSeconds is above backOffSecondsMax": (
        *REQUESTS,
        f"{PROVIDER}.limits.backOffSeconds=601",
    ),
    "fencing needs certainty": ("recoveryClass.spec.fencing.mode=DeleteNode",),
}
# Sums with quantities and ports; docs/install.md says what to do when an installation has failed.
LEFT_TO_THE_API_SERVER = (
    *("a quantity is", "there is no CPU below 0", "less than 1Mi", "a port is"),
    *("limits.cpu is below", "limits.memory is below"),
)


def test_the_schema_of_values_knows_the_class_as_its_definition_does() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    known = schema["properties"]["recoveryClass"]["properties"]
    meant = {
        "description": "spec of the RecoveryClass default; docs/resources.md",
        **class_schema(class_specification()),
    }
    if os.environ.get(WRITE):
        known["spec"] = meant
        SCHEMA.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
    assert known["spec"] == meant, f"crds/ has changed: run the test again with {WRITE}=1"


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        (["foo=1"], ["/recoveryClass/spec", "additional properties 'foo' not allowed"]),
        (["paused=yes"], ["/recoveryClass/spec/paused", "got string, want boolean"]),
        (["approval=Perhaps"], ["/spec/approval", "'Automatic', 'Manual'"]),
        (
            ["provisioning[0].name=a", "provisioning[0].provider=Foo"],
            ["/provisioning/0/provider", "'PendingPods'"],
        ),
        (["provisioning[0].name=A b", "provisioning[0].provider=PendingPods"], ["/0/name"]),
        (["provisioning[0].provider=PendingPods"], ["missing property 'name'"]),
        (["limits.concurrentRecoveriesMax=0"], ["/limits/concurrentRecoveriesMax", "want 1"]),
        (["sidecar.store.addresses={a}"], ["/sidecar/store/addresses/0"]),
        (["fencing.certainty={Approval,Approval}"], ["/fencing/certainty", "items at 0 and 1"]),
    ],
    ids=lambda found: found[0] if isinstance(found, list) else None,
)
def test_fields_that_the_definition_refuses_are_refused_before_anything_is_made(
    renderer: Helm, settings: list[str], messages: list[str]
) -> None:
    said = renderer.refusal(*(f"recoveryClass.spec.{setting}" for setting in settings))
    for message in messages:
        assert message in said, said


@pytest.mark.parametrize("message", RULES)
def test_rules_of_the_definition_are_rules_of_the_chart(renderer: Helm, message: str) -> None:
    assert message in renderer.refusal(*RULES[message])


def test_no_rule_of_the_definition_is_forgotten() -> None:
    known = (*RULES, *LEFT_TO_THE_API_SERVER)
    missing = {
        rule for rule in rules(class_specification()) if not any(part in rule for part in known)
    }
    assert not missing, (
        "a new rule: check it in templates/_class.tpl, or leave it to the API server"
    )


def default_class(objects: list[Object]) -> Object:
    spec: Object = pick(objects, "RecoveryClass", "default").get("spec", {})
    return spec


def test_the_class_gives_drivers_the_credential_of_their_namespace(renderer: Helm) -> None:
    objects = renderer.objects(
        *("--set", "zookeeper.enabled=false", "--set", "store.addresses={zk:2181}"),
        *("--set", "store.secret.name=ours", "--set", "store.secret.key=password"),
        *("--set", "store.authority.secret=theirs"),
    )
    assert default_class(objects)["sidecar"]["store"] == {
        "addresses": ["zk:2181"],
        "secretRef": {"name": "rekindle-credential", "key": "secret"},
        "caSecretRef": {"name": "rekindle-credential", "key": "ca.crt"},
    }


def test_what_the_class_says_of_the_store_stays_as_it_is(renderer: Helm) -> None:
    store = "recoveryClass.spec.sidecar.store"
    objects = renderer.objects(
        *("--set", "store.secret.name=ours", "--set", f"{store}.secretRef.name=theirs"),
        *("--set", f"{store}.addresses={{zk:2181}}", "--set", "recoveryClass.spec.dryRun=true"),
        *("--set", f"{store}.caSecretRef.name=their-ca"),
    )
    said = {"secretRef": {"name": "theirs"}, "caSecretRef": {"name": "their-ca"}}
    assert default_class(objects) == {
        "dryRun": True,
        "sidecar": {"store": {"addresses": ["zk:2181"], **said}},
    }


def test_a_class_of_which_nothing_is_said_has_the_defaults_of_its_definition(
    renderer: Helm,
) -> None:
    assert default_class(renderer.objects("--set", "store.open=true")) == {}


def test_the_page_on_resources_shows_a_class_that_the_chart_takes(
    renderer: Helm, tmp_path: os.PathLike[str]
) -> None:
    page = (ROOT / "docs" / "resources.md").read_text(encoding="utf-8")
    shown = page.rpartition("kind: RecoveryClass\n")[2].partition("\n```")[0]
    spec = yaml.safe_load(shown)["spec"]
    file = os.path.join(tmp_path, "class.yaml")
    with open(file, "w", encoding="utf-8") as values:
        yaml.safe_dump({"recoveryClass": {"spec": spec}}, values)
    assert (
        default_class(renderer.objects("-f", EVERYTHING, "-f", file))["sidecar"] == spec["sidecar"]
    )
