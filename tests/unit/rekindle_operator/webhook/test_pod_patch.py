"""Which operations a pod gets: the sidecar as it should be, and nothing that is there already."""

from typing import Any

import pytest
import spark_objects as objects
from hypothesis import given
from hypothesis import strategies as st
from injection_world import STORE, driver, new, patched, terms
from spark_objects import Body

from rekindle_operator.cluster.pods import SIDECAR, PodSeen, pod_seen
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.webhook import pod_patch
from rekindle_operator.webhook.injection_spec import ExecutorTerms, InjectionRefusal
from rekindle_sidecar.sidecar_main import _options as container_options
from rekindle_sidecar.sidecar_options import SidecarOptions
from rekindle_testing.operator_builders import make_class

ZONE_A = Domain("topology.kubernetes.io/zone", "a")
NOT_IN_A = {"key": ZONE_A.key, "operator": "NotIn", "values": ["a"]}
SECURED = make_class(
    sidecar={
        "store": {
            "addresses": list(STORE.addresses),
            "secretRef": {"name": "zk", "key": "password"},
            "caSecretRef": {"name": "zk-ca"},
        }
    }
)
LABEL = {"key": "pool", "operator": "In", "values": ["spark"]}


def sidecar_of(pod: Body) -> Body:
    found: Body = pod["spec"]["initContainers"][0]
    return found


def environment(container: Body) -> dict[str, Any]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


def test_a_driver_gets_a_native_sidecar_that_it_waits_for() -> None:
    container = sidecar_of(patched(driver(), terms()))
    assert (container["name"], container["restartPolicy"]) == (SIDECAR, "Always")
    assert container["command"] == ["rekindle-sidecar"]
    probe = container["startupProbe"]
    assert probe["exec"]["command"] == ["rekindle-sidecar", "--probe"]
    assert probe["periodSeconds"] == 1
    assert environment(container) == {
        "REKINDLE_ZOOKEEPER": "zk-0.zk:2181,zk-1.zk:2181",
        "REKINDLE_SIDECAR_SOCKET": "/run/rekindle/sidecar.sock",
        "REKINDLE_NAMESPACE": "flights",
        "REKINDLE_APPLICATION": "flights",
        "REKINDLE_SESSION_SECONDS": "10",
        "REKINDLE_METRICS_HOST": {"fieldRef": {"fieldPath": "status.podIP"}},
        "REKINDLE_METRICS_PORT": "9465",
    }
    assert container["resources"] == {
        "requests": {"cpu": "20m", "memory": "64Mi"},
        "limits": {"memory": "192Mi"},
    }


def test_the_sidecar_understands_what_it_is_told() -> None:
    told = environment(sidecar_of(patched(driver(), terms(class_=SECURED))))
    told["REKINDLE_METRICS_HOST"] = "10.0.0.7"  # by the kubelet
    assert container_options(told) == SidecarOptions(
        zookeeper="zk-0.zk:2181,zk-1.zk:2181",
        namespace="flights",
        application="flights",
        socket="/run/rekindle/sidecar.sock",
        secret_file="/run/rekindle-secret/secret",
        ca_file="/run/rekindle-ca/ca.crt",
        session_seconds=10.0,
        host="10.0.0.7",
        port=9465,
    )


def test_the_spark_container_finds_the_socket_and_the_name() -> None:
    pod = patched(driver(containers=[objects.container("logs"), spark()]), terms())
    beside, container = pod["spec"]["containers"]
    assert "env" not in beside
    assert environment(container) == {
        "REKINDLE_SIDECAR_SOCKET": "/run/rekindle/sidecar.sock",
        "REKINDLE_NAMESPACE": "flights",
        "REKINDLE_APPLICATION": "flights",
    }
    assert container["volumeMounts"] == [{"name": "rekindle", "mountPath": "/run/rekindle"}]
    assert sidecar_of(pod)["volumeMounts"] == [
        {"name": "rekindle", "mountPath": "/run/rekindle"},
        {
            "name": "rekindle-no-token",
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            "readOnly": True,
        },
    ]
    assert pod["spec"]["volumes"] == [
        {"name": "rekindle", "emptyDir": {"sizeLimit": "1Mi"}},
        {"name": "rekindle-no-token", "emptyDir": {"sizeLimit": "1Mi"}},
    ]


def test_the_stores_secret_is_mounted_into_the_sidecar_alone() -> None:
    pod = patched(driver(), terms(class_=SECURED))
    *_, volume, authority = pod["spec"]["volumes"]
    assert authority["secret"] == {
        "secretName": "zk-ca",
        "defaultMode": 0o444,
        "items": [{"key": "ca.crt", "path": "ca.crt"}],
    }
    assert volume["secret"] == {
        "secretName": "zk",
        "defaultMode": 0o444,
        "items": [{"key": "password", "path": "secret"}],
    }
    container = sidecar_of(pod)
    assert environment(container)["REKINDLE_SECRET_FILE"] == "/run/rekindle-secret/secret"
    assert environment(container)["REKINDLE_CA_FILE"] == "/run/rekindle-ca/ca.crt"
    mounts = [mount["name"] for mount in container["volumeMounts"]]
    assert mounts == ["rekindle", "rekindle-no-token", "rekindle-secret", "rekindle-ca"]
    assert [mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]] == ["rekindle"]


@pytest.mark.parametrize(
    ("of_container", "of_pod", "user", "not_root"),
    [
        pytest.param({}, {}, 185, True, id="Spark's own images"),
        pytest.param({}, {"runAsUser": 1000}, 1000, True, id="the pod's"),
        pytest.param({"runAsUser": 2000}, {"runAsUser": 1000}, 2000, True, id="the container's"),
        pytest.param({"runAsUser": 0}, {"runAsUser": 1000}, 0, False, id="root"),
    ],
)
def test_the_sidecar_runs_as_the_driver_does_and_may_nothing_else(
    of_container: Body, of_pod: Body, user: int, not_root: bool
) -> None:
    pod = driver(containers=[spark(securityContext=of_container)], securityContext=of_pod)
    assert sidecar_of(patched(pod, terms()))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": not_root,
        "runAsUser": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_what_the_pod_has_stays_after_ours() -> None:
    container = spark(
        env=[{"name": "A", "value": "1"}, {"name": "REKINDLE_APPLICATION", "value": "wrong"}],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )
    pod = driver(
        containers=[container],
        initContainers=[objects.container("fetch")],
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    made = patched(pod, terms())["spec"]
    assert [item["name"] for item in made["initContainers"]] == [SIDECAR, "fetch"]
    assert [item["name"] for item in made["volumes"]] == ["data", "rekindle", "rekindle-no-token"]
    (container,) = made["containers"]
    assert [item["mountPath"] for item in container["volumeMounts"]] == ["/data", "/run/rekindle"]
    names = [item["name"] for item in container["env"]]
    assert (names[-1], len(names)) == ("A", 4)
    assert environment(container)["REKINDLE_APPLICATION"] == "flights"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        pytest.param(
            {"volumes": [{"name": "rekindle", "emptyDir": {}}]},
            "the driver has a volume rekindle of its own; give that another name",
            id="volume",
        ),
        pytest.param(
            {
                "containers": [
                    objects.container(
                        "spark-kubernetes-driver",
                        volumeMounts=[{"name": "own", "mountPath": "/run/rekindle/"}],
                    )
                ]
            },
            "the driver mounts a volume at /run/rekindle; mount that elsewhere",
            id="path",
        ),
        pytest.param({"containers": []}, "the pod has no container", id="no container"),
    ],
)
def test_what_would_make_the_pod_invalid_is_not_added(spec: Body, sentence: str) -> None:
    found = pod_patch.patch(driver(**spec), terms())
    assert isinstance(found, InjectionRefusal)
    assert sentence in found.sentence


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"hostNetwork": True}, id="the node's network"),
        pytest.param(
            {"containers": [objects.container("main", ports=[{"containerPort": 9465}])]}, id="taken"
        ),
    ],
)
def test_without_a_port_that_is_free_for_certain_there_are_no_metrics(spec: Body) -> None:
    container = sidecar_of(patched(driver(**spec), terms()))
    assert "ports" not in container
    assert not any("METRICS" in name for name in environment(container))


@pytest.mark.parametrize("where", ["initContainers", "containers"])
def test_a_sidecar_that_is_there_stays_as_it_is(where: str) -> None:
    pod = driver()
    pod["spec"].setdefault(where, []).append(objects.container(SIDECAR))
    assert pod_patch.patch(pod, terms()) == ()


def test_the_registry_sees_the_sidecar_of_a_patched_pod() -> None:
    pod = patched(driver(), terms())
    pod["metadata"] |= {"uid": "u", "namespace": "flights"}
    seen = pod_seen(pod)
    assert isinstance(seen, PodSeen)
    assert seen.sidecar == "starting"
    assert seen.cpu_millis == 1020


@pytest.mark.parametrize(
    ("affinity", "required"),
    [
        pytest.param(None, [{"matchExpressions": [NOT_IN_A]}], id="none"),
        pytest.param(
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            [{"matchExpressions": [NOT_IN_A]}],
            id="preferred only",
        ),
        pytest.param(
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [LABEL]},
                            {"matchFields": [LABEL]},
                            {},
                        ]
                    }
                }
            },
            [
                {"matchExpressions": [LABEL, NOT_IN_A]},
                {"matchFields": [LABEL], "matchExpressions": [NOT_IN_A]},
                {},
            ],
            id="alternatives",
        ),
    ],
)
def test_executors_avoid_domains_in_each_alternative(
    affinity: Body | None, required: list[Body]
) -> None:
    pod = new(objects.submitted_executor(1), {})
    others = {"podAntiAffinity": {"x": 1}}
    pod["spec"]["affinity"] = {**others, **(affinity or {})}
    pod["metadata"]["annotations"] = {"x": "y"}
    whole = patched(pod, ExecutorTerms((ZONE_A,)))
    assert whole["metadata"]["annotations"] == {"x": "y", "rekindle.dev/kept-off": str(ZONE_A)}
    made = whole["spec"]["affinity"]
    found = made["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert found == {"nodeSelectorTerms": required}
    assert made["podAntiAffinity"] == {"x": 1}


def test_executors_are_told_their_node_whether_there_is_an_incident_or_not() -> None:
    for avoided in ((), (ZONE_A,)):
        made = patched(new(objects.submitted_executor(1), {}), ExecutorTerms(avoided))
        (container,) = made["spec"]["containers"]
        wanted = {"REKINDLE_NODE": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        assert environment(container) == wanted
        assert ("affinity" in made["spec"]) is bool(avoided)


names = st.sampled_from(["REKINDLE_NODE", "REKINDLE_APPLICATION", "A", "B"])
variables = st.lists(st.fixed_dictionaries({"name": names, "value": st.just("1")}), max_size=3)
requirements = st.lists(st.sampled_from([NOT_IN_A, LABEL]), max_size=2)
alternatives = st.lists(st.fixed_dictionaries({"matchExpressions": requirements}), max_size=3)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@given(env=variables, terms_there=alternatives, is_driver=st.booleans())
def test_a_pod_that_comes_again_gets_nothing_more(
    env: list[Body], terms_there: list[Body], is_driver: bool
) -> None:
    pod = driver() if is_driver else new(objects.submitted_executor(1), {})
    pod["spec"]["containers"][0]["env"] = env
    pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms_there}}}
    what = terms() if is_driver else ExecutorTerms((ZONE_A,))
    once = patched(pod, what)
    assert pod_patch.patch(once, what) == ()


def spark(**more: Any) -> Body:
    return objects.container("spark-kubernetes-driver", **more)


def test_on_openshift_the_sidecar_has_no_user_but_that_of_the_range() -> None:
    def user(scc: str, of_container: Body) -> object:
        pod = driver(containers=[spark(securityContext=of_container)])
        pod["metadata"]["annotations"] = {"openshift.io/scc": scc}
        return sidecar_of(patched(pod, terms()))["securityContext"].get("runAsUser")

    assert user("restricted-v2", {"runAsUser": 1000680000}) == 1000680000
    assert user("restricted-v2", {}) is None
    assert user("nonroot-v2", {}) == 185
