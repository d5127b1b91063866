"""What the chart renders, and which values it refuses; no cluster is asked."""

import base64
import difflib
import inspect
import json
import os
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_commands import CHART, EVERYTHING, NAMESPACE, RELEASE, ROOT, Helm, Object, pick

import rekindle
from rekindle_operator.controller import store_certificate
from rekindle_operator.controller.operator_main import operate
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_operator.webhook import webhook_configuration, webhook_server
from rekindle_operator.webhook.webhook_main import serve

GOLDEN = ROOT / "tests" / "golden" / "chart"
# Set to anything, it has the snapshots written anew.
WRITE = "REKINDLE_WRITE_SNAPSHOTS"
METRIC = re.compile(r"\brekindle_(?:operator|coordinator)_\w+")
MADE_SECRET = re.compile(r"(?m)^(  secret: )[A-Za-z0-9+/=]{40,}$")
WORKLOADS = ("Deployment", "StatefulSet", "Job")
REPLICATED = WORKLOADS[:2]
KEY = "-----BEGIN EC PRIVATE KEY-----\na2V5\n-----END EC PRIVATE KEY-----\n"
PEM = "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"
OTHER_PEM = PEM.replace("bm8=", "eWVz")
SECRET_OF_CLASS = "recoveryClass.spec.sidecar.store.secretRef.name=theirs"


def expressions(renderer: Helm) -> dict[str, str]:
    """Every query of alerts and dashboard, by the alert's or the panel's name."""
    objects = renderer.objects("-f", EVERYTHING)
    (group,) = pick(objects, "PrometheusRule", "rekindle")["spec"]["groups"]
    alerts = {rule["alert"]: rule["expr"] for rule in group["rules"]}
    panels = json.loads(pick(objects, "ConfigMap", "rekindle-dashboard")["data"]["rekindle.json"])
    return alerts | {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in panels["panels"]
        for target in panel["targets"]
    }


def test_helm_finds_nothing_to_complain_about(renderer: Helm) -> None:
    renderer.do("lint", "--strict", CHART)
    renderer.do("lint", "--strict", CHART, "-f", EVERYTHING)


@pytest.mark.parametrize(
    ("snapshot", "arguments"),
    [("default", []), ("everything", ["-f", EVERYTHING])],
)
def test_the_manifests_are_those_of_the_snapshot(
    renderer: Helm, snapshot: str, arguments: list[object]
) -> None:
    file = GOLDEN / f"{snapshot}.yaml"
    # where no cluster is asked, each rendering has another one
    rendered = MADE_SECRET.sub(r"\1made-when-installed", renderer.template(*arguments))
    if os.environ.get(WRITE):
        file.write_text(rendered, encoding="utf-8")
    kept = file.read_text(encoding="utf-8")
    changed = difflib.unified_diff(
        kept.splitlines(), rendered.splitlines(), str(file.name), "rendered", lineterm=""
    )
    assert kept == rendered, "\n".join(
        [*changed, f"if that is meant, run the test again with {WRITE}=1, and look at git diff"]
    )


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        (["operator.replica=3"], ["/operator", "additional properties 'replica' not allowed"]),
        (["operators.replicas=3"], ["additional properties 'operators' not allowed"]),
        (["operator.replicas=0"], ["/operator/replicas", "got 0, want 1"]),
        (["operator.replicas=two"], ["/operator/replicas", "got string, want integer"]),
        (["zookeeper.replicas=2"], ["/zookeeper/replicas", "must be one of 1, 3, 5"]),
        (["zookeeper.userId=0"], ["/zookeeper/userId", "got 0, want 1"]),
        (["failureDomainKeys=null"], ["missing property 'failureDomainKeys'"]),
        (["failureDomainKeys={}"], ["/failureDomainKeys", "got 0, want 1"]),
        (["webhook.timeoutSeconds=60"], ["/webhook/timeoutSeconds", "got 60, want 30"]),
        (
            ["zookeeper.enabled=false"],
            ["there is no coordination store: give the HOST:PORT", "zookeeper.enabled=true"],
        ),
        (["store.addresses={a:2181}"], ["store.addresses names a ZooKeeper, and", "installs"]),
        (
            ["zookeeper.enabled=false", "store.addresses={a:2181,b}"],
            ['store.addresses[1] is "b": write it like zookeeper-0.zookeeper.data.svc:2281'],
        ),
        (
            ["zookeeper.enabled=false", "store.addresses={a:2281}"],
            [
                "reached by TLS: name the Secret",
                "in store.authority.secret",
                "store.plaintext=true",
            ],
        ),
        (["store.authority.secret=theirs"], ["store.authority.secret is for the TLS of an exist"]),
        (
            ["zookeeper.tls.certManager=true", "zookeeper.tls.secret=ours"],
            ["both give the servers a certificate: leave one of them out"],
        ),
        (
            ["zookeeper.tls.issuerRef.name=ours"],
            ["zookeeper.tls.issuerRef is for cert-manager: set zookeeper.tls.certManager=true"],
        ),
        (
            ["store.plaintext=true", "zookeeper.tls.plaintextPort=true"],
            ["zookeeper.tls is of the chart's own ZooKeeper with TLS"],
        ),
        (
            ["zookeeper.tls.duration=soon"],
            ['zookeeper.tls.duration is "soon": write it like 2160h'],
        ),
        (
            ["operator.resources.limits.memory=lots"],
            ['operator.resources.limits.memory is "lots": write it like 500m or 256Mi'],
        ),
        (["image.digest=latest"], ['image.digest is "latest": write it like sha256:']),
        (["operator.extraArguments={port}"], ["operator.extraArguments[0]", "--NAME=VALUE"]),
        (["priorityClass.name="], ["priorityClass.create needs priorityClass.name"]),
        (
            ["monitoring.prometheusRule.runbookUrl=runbooks"],
            ["monitoring.prometheusRule.runbookUrl", "https://"],
        ),
        (
            ["webhook.certificates.issuerRef.name=ours"],
            ["issuerRef is for cert-manager", "certManager=true"],
        ),
        (
            [
                "recoveryClass.spec.provisioning[0].provider=Karpenter",
                "recoveryClass.spec.provisioning[0].name=machines",
            ],
            ["provider Karpenter, which the operator may not use: set provisioning.karpenter=true"],
        ),
        (
            ["recoveryClass.spec.fencing.mode=DeleteNode", "image.digest=x"],
            ["set fencing.deleteNode=true", "image.digest"],
        ),
        (
            ["recoveryClass.spec.fencing.certainty={MachineGone}"],
            ["set fencing.certainty.machineGone=true"],
        ),
        (["recoveryClass.spec.taints.suspectedNodes=NoSchedule"], ["set taints=true"]),
        (["recoveryClass.spec.nodeDeletion.enabled=true"], ["set nodeDeletion=true"]),
        (
            ["recoveryClass.create=false", "recoveryClass.spec.paused=true"],
            ["recoveryClass.spec is of a class that recoveryClass.create=false does not make"],
        ),
        (
            [
                "store.open=true",
                "recoveryClass.spec.sidecar.store.addresses={a:1}",
                SECRET_OF_CLASS,
            ],
            ["gives drivers a secret that the operator has not: set store.secret.name"],
        ),
        (
            ["zookeeper.heapMegabytes=4096"],
            ["zookeeper.heapMegabytes is 4096", "limits.memory is 512Mi"],
        ),
        (
            ["operator.resources.requests.memory=2Gi"],
            ["operator.resources.requests.memory is 2Gi, above limits.memory, which is 768Mi"],
        ),
        *(
            ([f"operator.resources.requests.memory={text}"], ["requests.memory is", "above"])
            for text in ("1Ei", "0.5Ei", "1Pi", "1E", "1e9", "+1e9", "1.e9", "900000000000m")
        ),
        (["zookeeper.resources.limits.cpu=50m"], ["requests.cpu is 100m, above", "50m"]),
        (["zookeeper.image.tag="], ["give zookeeper.image.tag or zookeeper.image.digest"]),
        (["image.tag=a b"], ['image.tag is "a b": write it like 0.1.0']),
        (
            ["webhook.certificates.duration=2h", "webhook.certificates.renewBefore=180m"],
            ["webhook.certificates.renewBefore is 180m, which is not within duration, 2h"],
        ),
        (["webhook.certificates.secret=ours"], ["needs webhook.certificates.authority"]),
        ([f"webhook.certificates.authority={PEM}"], ["set webhook.certificates.secret"]),
        (
            ["webhook.certificates.secret=ours", "webhook.certificates.authority=LS0t"],
            ["webhook.certificates.authority holds no certificate", "each from -----BEGIN"],
        ),
        (
            ["webhook.certificates.secret=ours", f"webhook.certificates.authority={KEY}{PEM}"],
            ["webhook.certificates.authority holds a private key", "certificates alone"],
        ),
        (
            ["webhook.certificates.secret=ours", "webhook.certificates.certManager=true"],
            ["both give the webhook a certificate: leave one of them out"],
        ),
        (
            ["webhook.enabled=false", "webhook.certificates.secret=ours"],
            ["secret is of no use without the webhook"],
        ),
        (
            ["webhook.enabled=false", "webhook.certificates.certManager=true"],
            ["certManager=true is of no use without the webhook"],
        ),
        (["webhook.excludedNamespaces={Bad Ns}"], ['webhook.excludedNamespaces[0] is "Bad Ns"']),
        (["failureDomainKeys[0]=bad key"], ['failureDomainKeys[0] is "bad key"']),
        (
            ["console.allowedFrom[0].ipBlock.cidr=10.0.0.0/8"],
            ["console.allowedFrom is of no use without the console: set console.enabled=true"],
        ),
        (["operator.extraArguments={--nope}"], ['operator.extraArguments[0] is "--nope"']),
        (["operator.extraArguments={--store=x:1}"], ["all else has a value of its own"]),
        (["operator.extraArguments={--sidecar-image=x}"], ["give it in webhook.extraArguments"]),
        (["webhook.extraArguments={--port=1}"], ['webhook.extraArguments[0] is "--port=1"']),
        (["webhook.resources.limits.memory=lots"], ["webhook.resources.limits.memory"]),
        (["webhook.replicas=0"], ["/webhook/replicas", "want 1"]),
        (["uninstall.timeoutSeconds=30"], ["/uninstall/timeoutSeconds", "want 60"]),
    ],
    ids=lambda found: found[0] if isinstance(found, list) else None,
)
def test_values_that_cannot_be_meant_are_refused_with_their_place_and_a_remedy(
    renderer: Helm, settings: list[str], messages: list[str]
) -> None:
    said = renderer.refusal(*settings)
    for message in messages:
        assert message in said, said
    assert "nil pointer" not in said
    assert "panic" not in said
    assert "a2V5" not in said, "a key is shown to nobody"


def test_every_value_has_a_default_and_a_place_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(value: Any, known: Any, place: str) -> None:
        if "properties" not in known:
            return
        assert known["additionalProperties"] is False, place
        described = set(known["properties"])
        # An issuer is somebody else's: its fields have no defaults.
        if value != {}:
            assert set(value) == described - {"global"}, place
            for name, part in known["properties"].items():
                if name != "global":
                    compare(value[name], part, f"{place}.{name}")

    compare(values, schema, "values")


def test_a_package_holds_the_definitions_as_they_are(renderer: Helm, tmp_path: Path) -> None:
    renderer.do("package", CHART, "--destination", tmp_path)
    (file,) = tmp_path.glob("*.tgz")
    with tarfile.open(file) as archive:
        found = {
            Path(member.name).name: archive.extractfile(member)
            for member in archive
            if member.name.startswith("rekindle/crds/")
        }
        packed = {name: content.read() for name, content in found.items() if content}
    assert packed == {source.name: source.read_bytes() for source in (ROOT / "crds").glob("*.yaml")}
    assert packed


def test_a_cluster_that_is_too_old_is_refused(renderer: Helm) -> None:
    arguments = ("template", RELEASE, CHART, "--kube-version")
    assert renderer.run(*arguments, "1.30.0")[0] == 0
    code, _, said = renderer.run(*arguments, "1.29.9")
    assert code != 0
    assert "chart requires kubeVersion: >=1.30.0-0" in said


def test_chart_and_program_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == rekindle.__version__


def test_the_webhook_is_the_one_that_the_operator_knows(renderer: Helm) -> None:
    rendered = pick(renderer.objects(), "MutatingWebhookConfiguration", "rekindle")
    service = webhook_configuration.service("rekindle-webhook", NAMESPACE)
    known = webhook_configuration.manifest("rekindle", service, excluded_namespaces=[NAMESPACE])
    assert rendered["webhooks"] == known["webhooks"]


def test_pods_of_whole_applications_wait_where_a_value_says_so(renderer: Helm) -> None:
    objects = renderer.objects("--set", "wholeApplications=true")
    rendered = pick(objects, "MutatingWebhookConfiguration", "rekindle")
    service = webhook_configuration.service("rekindle-webhook", NAMESPACE)
    known = webhook_configuration.manifest(
        "rekindle", service, excluded_namespaces=[NAMESPACE], turns=True
    )
    assert rendered["webhooks"] == known["webhooks"]


@pytest.mark.parametrize("arguments", [[], ["-f", EVERYTHING]], ids=["default", "everything"])
def test_every_pod_is_confined(renderer: Helm, arguments: list[object]) -> None:
    workloads = [found for found in renderer.objects(*arguments) if found["kind"] in WORKLOADS]
    # operator, webhook, ZooKeeper; with everything the Job before an uninstall
    assert len(workloads) == (4 if arguments else 3)
    for workload in workloads:
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_replicas_are_spread_over_the_first_domain_key(renderer: Helm) -> None:
    for found in renderer.objects("-f", EVERYTHING):
        if found["kind"] in REPLICATED:
            (constraint,) = found["spec"]["template"]["spec"]["topologySpreadConstraints"]
            assert constraint["topologyKey"] == "example.com/rack"
            assert constraint["whenUnsatisfiable"] == "DoNotSchedule"
            selected = constraint["labelSelector"]["matchLabels"]
            assert selected.items() <= found["spec"]["template"]["metadata"]["labels"].items()


def test_no_object_of_the_chart_has_a_finalizer(renderer: Helm) -> None:
    for found in renderer.objects("-f", EVERYTHING):
        assert "finalizers" not in found["metadata"], found["metadata"]["name"]


def test_the_release_carries_no_authority_of_the_webhook(renderer: Helm) -> None:
    assert "caBundle:" not in renderer.template()
    assert "caBundle:" not in renderer.template("-f", EVERYTHING)


@pytest.mark.parametrize("said", ["", "Certificate:\n    Data:\n        Version: 3 (0x2)\n"])
def test_a_certificate_of_ones_own_is_mounted_and_its_authority_trusted(
    renderer: Helm, tmp_path: Path, said: str
) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text(said + PEM)
    objects = renderer.objects(
        *("--set", "webhook.certificates.secret=ours"),
        *("--set-file", f"webhook.certificates.authority={authority}"),
    )
    configuration = pick(objects, "MutatingWebhookConfiguration", "rekindle")
    bundles = {item["clientConfig"]["caBundle"] for item in configuration["webhooks"]}
    assert [base64.b64decode(bundle).decode() for bundle in bundles] == [said + PEM]
    assert "annotations" not in configuration["metadata"]
    pod = pick(objects, "Deployment", "rekindle-webhook")["spec"]["template"]["spec"]
    (volume,) = (item for item in pod["volumes"] if "secret" in item)
    assert volume["secret"]["secretName"] == "ours"
    assert "--certificates-folder=/run/secrets/rekindle/webhook" in pod["containers"][0]["args"]
    assert "--no-issue-webhook-certificate" in operator_arguments(objects)
    made = {item["metadata"]["name"] for item in objects if item["kind"] == "Certificate"}
    assert "rekindle-webhook" not in made


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        ("", PEM, "false"),
        (PEM, PEM.replace("\n", "\r\n"), "false"),
        (PEM, OTHER_PEM, "true"),
        (PEM, f"subject=new\n{OTHER_PEM}subject=old\n{PEM}", "false"),
        (OTHER_PEM + PEM, OTHER_PEM, "false"),
    ],
)
def test_the_chart_knows_when_no_certificate_that_is_trusted_would_be_so_any_more(
    renderer: Helm, tmp_path: Path, before: str, after: str, ends: str
) -> None:
    """In a chart of that check alone: what it is given comes from a cluster."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: probe, version: 0.1.0}")
    shutil.copy(CHART / "templates" / "_checks.tpl", tmp_path / "templates")
    probe = tmp_path / "templates" / "probe.yaml"
    probe.write_text('ends: {{ include "rekindle.trustEnds" .Values }}')
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps({"before": before, "after": after}))
    assert f"ends: {ends}\n" in renderer.do("template", "probe", tmp_path)


def test_an_existing_store_is_used_as_it_is_named(renderer: Helm) -> None:
    objects = renderer.objects(
        *("--set", "zookeeper.enabled=false"),
        *("--set", "store.addresses={zk-0.data:2181,zk-1.data:2281}"),
        *("--set", "store.authority.secret=theirs", "--set", "store.authority.key=authorities"),
    )
    assert "--store-ca-file=/run/secrets/rekindle/store-ca/ca.crt" in operator_arguments(objects)
    operator = pick(objects, "Deployment", "rekindle-operator")["spec"]["template"]["spec"]
    (volume,) = [item for item in operator["volumes"] if item["name"] == "store-ca"]
    assert volume["secret"]["secretName"] == "theirs"
    assert volume["secret"]["items"] == [{"key": "authorities", "path": "ca.crt"}]
    assert "--store=zk-0.data:2181,zk-1.data:2281" in operator_arguments(objects)
    allowed = pick(objects, "NetworkPolicy", "rekindle-operator")["spec"]["egress"]
    assert allowed[-1] == {"ports": [{"port": 2181}, {"port": 2281}]}
    assert not [found for found in objects if "zookeeper" in found["metadata"]["name"]]


@pytest.mark.parametrize("ports", [[4040, 4050], []])
def test_the_operator_reaches_uis_of_drivers_at_the_ports_that_are_named(
    renderer: Helm, ports: list[int]
) -> None:
    setting = f"networkPolicy.sparkUiPorts={json.dumps(ports)}"
    objects = renderer.objects("--set-json", setting)
    rules = pick(objects, "NetworkPolicy", "rekindle-operator")["spec"]["egress"]
    named = [{"port": port} for port in ports]
    found = [rule for rule in rules if rule["ports"] == named]
    assert len(found) == bool(ports)
    for rule in found:
        assert all(peer["podSelector"] for peer in rule["to"]), "pods of any kind"


def test_without_the_console_nothing_of_it_is_there(renderer: Helm) -> None:
    assert "console" not in renderer.template()


def test_the_console_is_reached_by_whom_its_value_names_and_nobody_else(renderer: Helm) -> None:
    peer = "console.allowedFrom[0].podSelector.matchLabels.app=proxy"
    named = [{"podSelector": {"matchLabels": {"app": "proxy"}}}]
    for more, expected in (([], []), ([peer], named)):
        settings = [item for value in ["console.enabled=true", *more] for item in ("--set", value)]
        objects = renderer.objects(*settings)
        arguments = operator_arguments(objects)
        assert {"--console-port=8081", "--console-host="} <= set(arguments)
        (port,) = pick(objects, "Service", "rekindle-console")["spec"]["ports"]
        assert port == {"name": "http", "port": 80, "targetPort": "console"}
        rules = pick(objects, "NetworkPolicy", "rekindle-operator")["spec"]["ingress"]
        allowed = [rule["from"] for rule in rules if {"port": 8081} in rule["ports"]]
        assert allowed == ([expected] if expected else [])


def test_without_the_webhook_nothing_of_it_is_left(renderer: Helm) -> None:
    objects = renderer.objects("--set", "webhook.enabled=false")
    assert "--no-webhook" in operator_arguments(objects)
    kinds = {found["kind"] for found in objects}
    assert "MutatingWebhookConfiguration" not in kinds
    names = {found["metadata"]["name"] for found in objects}
    assert not {name for name in names if name.startswith("rekindle-webhook")}
    role = pick(objects, "ClusterRole", "rekindle-operator")
    assert "mutatingwebhookconfigurations" not in json.dumps(role)


def operator_arguments(objects: list[Object]) -> list[str]:
    return arguments_of(objects, "rekindle-operator")


def arguments_of(objects: list[Object], name: str) -> list[str]:
    (container,) = pick(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


def test_every_alert_says_what_is_wrong_and_where_to_read_on(renderer: Helm) -> None:
    (group,) = pick(renderer.objects("-f", EVERYTHING), "PrometheusRule", "rekindle")["spec"][
        "groups"
    ]
    for rule in group["rules"]:
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"].endswith(".")
        runbook = f"https://runbooks.example.com/rekindle#{rule['alert']}"
        assert rule["annotations"]["runbook_url"] == runbook
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_a_runbook_address_with_name_in_it_gets_the_alert_there(renderer: Helm) -> None:
    address = "https://runbooks.example.com/NAME/index.html"
    objects = renderer.objects(
        *("-f", EVERYTHING, "--set", f"monitoring.prometheusRule.runbookUrl={address}")
    )
    (group,) = pick(objects, "PrometheusRule", "rekindle")["spec"]["groups"]
    assert {rule["annotations"]["runbook_url"] for rule in group["rules"]} == {
        f"https://runbooks.example.com/{rule['alert']}/index.html" for rule in group["rules"]
    }


def known_metrics() -> set[str]:
    """Names of the operator's time series."""
    figures = OperatorMetrics()
    webhook_server.make_counter(figures.registry)
    webhook_server.make_gauge(figures.registry)
    families = [*figures.registry.collect()]
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    return {
        family.name + suffix for family in families for suffix in suffixes.get(family.type, ("",))
    }


def test_alerts_and_dashboard_ask_for_metrics_that_there_are(renderer: Helm) -> None:
    known = known_metrics()
    assert len(known) > 20
    for name, expression in expressions(renderer).items():
        unknown = set(METRIC.findall(expression)) - known
        assert not unknown, f"{name}: {unknown}"


def test_the_page_on_installing_names_every_alert_with_its_metric(renderer: Helm) -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `(Rekindle\w+)` \|.*\| `(\w+)` \|$", page, re.MULTILINE))
    (group,) = pick(renderer.objects("-f", EVERYTHING), "PrometheusRule", "rekindle")["spec"][
        "groups"
    ]
    assert table == {rule["alert"]: METRIC.findall(rule["expr"])[0] for rule in group["rules"]}


def test_the_operator_knows_every_option_that_the_chart_gives_it(renderer: Helm) -> None:
    options = {f"--{name.replace('_', '-')}" for name in inspect.signature(operate).parameters}
    for arguments in ([], ["-f", EVERYTHING]):
        given = {
            word.partition("=")[0] for word in operator_arguments(renderer.objects(*arguments))
        }
        assert {word.replace("--no-", "--") for word in given} <= options
    assert "--store" in given
    added = re.findall(r"--[a-z-]+", renderer.refusal("operator.extraArguments={--nope}"))
    assert set(added) - {"--nope", "--debug"} <= options


def test_the_webhook_knows_every_option_that_the_chart_gives_it(renderer: Helm) -> None:
    options = {f"--{name.replace('_', '-')}" for name in inspect.signature(serve).parameters}
    for arguments in ([], ["-f", EVERYTHING]):
        given = arguments_of(renderer.objects(*arguments), "rekindle-webhook")
        assert {word.partition("=")[0] for word in given} <= options
    assert "--certificates-folder=/run/secrets/rekindle/webhook" in given
    added = re.findall(r"--[a-z-]+", renderer.refusal("webhook.extraArguments={--nope}"))
    assert set(added) - {"--nope", "--debug"} <= options


def test_the_operator_serves_no_webhook(renderer: Helm) -> None:
    objects = renderer.objects()
    operator = pick(objects, "Deployment", "rekindle-operator")["spec"]["template"]
    webhook = pick(objects, "Deployment", "rekindle-webhook")["spec"]["template"]
    (container,) = operator["spec"]["containers"]
    assert "webhook" not in {port["name"] for port in container["ports"]}
    rules = pick(objects, "NetworkPolicy", "rekindle-operator")["spec"]["ingress"]
    assert [rule["ports"] for rule in rules] == [[{"port": 8080}]]
    selector = pick(objects, "Service", "rekindle-webhook")["spec"]["selector"]
    assert selector.items() <= webhook["metadata"]["labels"].items()
    assert not selector.items() <= operator["metadata"]["labels"].items()
    (container,) = webhook["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "128Mi"}
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_the_image_runs_as_the_user_of_the_chart(renderer: Helm) -> None:
    pod = pick(renderer.objects(), "Deployment", "rekindle-operator")["spec"]["template"]["spec"]
    user, group = (pod["securityContext"][key] for key in ("runAsUser", "runAsGroup"))
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert f"USER {user}:{group}" in lines
    assert f"CMD {json.dumps(pod['containers'][0]['command'])}" in lines


def store_secrets(objects: list[Object]) -> list[Object]:
    return [item for item in objects if item["kind"] == "Secret"]


def uses_secret(objects: list[Object]) -> bool:
    """Whether the operator has a secret for the store, and the class gives it to drivers."""
    operator = pick(objects, "Deployment", "rekindle-operator")["spec"]["template"]["spec"]
    (container,) = operator["containers"]
    argument = any(item.startswith("--store-secret-file=") for item in container["args"])
    volume = any(item["name"] == "store" for item in operator["volumes"])
    spec = pick(objects, "RecoveryClass", "default").get("spec") or {}
    reference = bool(spec.get("sidecar", {}).get("store", {}).get("secretRef"))
    assert argument == volume == reference
    return argument


def test_the_store_has_a_secret_unless_an_open_one_is_asked_for_by_name(renderer: Helm) -> None:
    first, second = (renderer.objects() for _ in range(2))
    assert uses_secret(first)
    (made,), (again,) = store_secrets(first), store_secrets(second)
    assert made["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    values = [base64.b64decode(item["data"]["secret"]).decode() for item in (made, again)]
    assert all(re.fullmatch(r"[A-Za-z0-9]{40}", value) for value in values)
    assert len(set(values)) == 2  # nobody can know it from the chart
    opened = renderer.objects("--set", "store.open=true")
    assert (store_secrets(opened), uses_secret(opened)) == ([], False)
    named = renderer.objects("--set", "store.secret.name=ours")
    assert (store_secrets(named), uses_secret(named)) == ([], True)


def test_a_store_that_is_open_and_has_a_secret_is_refused(renderer: Helm) -> None:
    said = renderer.refusal("store.open=true", "store.secret.name=ours")
    assert "store.open wants no secret, and store.secret.name gives one" in said


def settings_of(objects: list[Object]) -> dict[str, str]:
    """Of the servers of ZooKeeper."""
    text = pick(objects, "ConfigMap", "rekindle-zookeeper")["data"]["zoo.cfg"]
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in lines}


def ports_of(objects: list[Object]) -> tuple[set[int], set[int]]:
    """Those for clients, of the Service and by the network policy."""
    service = {
        item["port"] for item in pick(objects, "Service", "rekindle-zookeeper")["spec"]["ports"]
    }
    rules = pick(objects, "NetworkPolicy", "rekindle-zookeeper")["spec"]["ingress"]
    return service - {2888, 3888}, {item["port"] for item in rules[0]["ports"]}


def server_secret(objects: list[Object]) -> dict[str, Any]:
    pod = pick(objects, "StatefulSet", "rekindle-zookeeper")["spec"]["template"]["spec"]
    (volume,) = [item for item in pod["volumes"] if item["name"] == "tls"]
    found: dict[str, Any] = volume["secret"]
    return found


def test_all_speak_tls_to_the_charts_zookeeper_unless_plain_text_is_asked_for_by_name(
    renderer: Helm,
) -> None:
    objects = renderer.objects()
    settings = settings_of(objects)
    assert settings["secureClientPort"] == "2281"
    assert settings["clientPortAddress"] == "127.0.0.1", "no plain text from outside of the pod"
    assert (settings["sslQuorum"], settings["ssl.clientAuth"]) == ("true", "none")
    assert ports_of(objects) == ({2281}, {2281})
    arguments = operator_arguments(objects)
    assert "--issue-store-certificate" in arguments
    (store,) = [item for item in arguments if item.startswith("--store=")]
    assert re.findall(r":(\d+)", store) == ["2281"] * 3
    assert server_secret(objects)["secretName"] == store_certificate.SECRET
    paths = {item["path"]: item["key"] for item in server_secret(objects)["items"]}
    assert paths["ca.crt"] == store_certificate.BUNDLE

    for asked in ("store.plaintext=true", "store.open=true"):
        plain = renderer.objects("--set", asked)
        assert not [name for name in settings_of(plain) if "ssl" in name or "secure" in name]
        assert ports_of(plain) == ({2181}, {2181})
        text = yaml.safe_dump_all(plain)
        assert "--issue-store-certificate" not in text
        assert "store.caSecretRef" not in text
        assert "caSecretRef" not in str(pick(plain, "RecoveryClass", "default"))


def test_drivers_of_before_keep_their_port_where_that_is_asked_for(renderer: Helm) -> None:
    objects = renderer.objects(
        *("--set", "zookeeper.tls.plaintextPort=true"),
        *("--set", "zookeeper.tls.betweenServers=false"),
    )
    settings = settings_of(objects)
    assert "clientPortAddress" not in settings
    assert "sslQuorum" not in settings
    assert ports_of(objects) == ({2181, 2281}, {2181, 2281})
    egress = pick(objects, "NetworkPolicy", "rekindle-operator")["spec"]["egress"]
    assert egress[-1]["ports"] == [{"port": 2281}]


@pytest.mark.parametrize(
    ("setting", "secret"),
    [
        ("zookeeper.tls.certManager=true", "rekindle-zookeeper-certificate"),
        ("zookeeper.tls.secret=ours", "ours"),
    ],
)
def test_the_servers_certificate_is_somebody_elses_where_that_is_said(
    renderer: Helm, setting: str, secret: str
) -> None:
    objects = renderer.objects("--set", setting)
    assert server_secret(objects)["secretName"] == secret
    assert {item["key"] for item in server_secret(objects)["items"]} == {
        "tls.crt",
        "tls.key",
        "ca.crt",
    }
    arguments = operator_arguments(objects)
    assert "--store-ca-file=/run/secrets/rekindle/store-ca/ca.crt" in arguments
    assert "--issue-store-certificate" not in arguments
    made = [item for item in objects if item["metadata"]["name"] == "rekindle-zookeeper"]
    certificates = [item["spec"] for item in made if item["kind"] == "Certificate"]
    assert len(certificates) == (secret != "ours")
    for spec in certificates:
        assert (spec["secretName"], spec["privateKey"]["encoding"]) == (secret, "PKCS8")
        assert spec["usages"] == ["server auth", "client auth"]
        assert len(spec["dnsNames"]) == 3
        assert all(name in "".join(arguments) for name in spec["dnsNames"])
