"""Bad objects: each is refused by the API server, with a message that a person understands."""

from collections.abc import Iterator
from typing import Any

import pytest
from namespaces import new_namespace
from resource_requests import Api, Object, assert_refused, class_of, policy, recovery

from testbed.control_plane import ControlPlane

EXISTS = {"key": "tier", "operator": "Exists", "values": ["gold"]}
IN_NOTHING = {"key": "tier", "operator": "In"}
LABELLED = {"matchLabels": {"spark-role": "driver"}}


@pytest.fixture(scope="module")
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """One for all tests: what is refused is not there afterwards."""
    with new_namespace(control_plane) as name:
        yield name


def labels(**selector: Any) -> Object:
    return {"selector": {"sparkApplications": {"labelSelector": selector}}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"selector": {}},
            "the selector selects nothing; give sparkApplications, drivers, or both",
        ),
        (
            {"selector": {"sparkApplications": {}}},
            "sparkApplications needs names, a labelSelector, or both",
        ),
        (
            {"selector": {"drivers": {"labelSelector": {}}}},
            "drivers needs at least one label, such as spark-role: driver",
        ),
        (
            {"selector": {"drivers": {"labelSelector": {"matchExpressions": [EXISTS]}}}},
            "In and NotIn need values; Exists and DoesNotExist take none",
        ),
        (
            {"selector": {"drivers": {"labelSelector": {"matchExpressions": [IN_NOTHING]}}}},
            "In and NotIn need values; Exists and DoesNotExist take none",
        ),
        (
            {"selector": {"sparkApplications": {"groups": ["batch"], "names": ["a"]}}},
            'Unsupported value: "batch"',
        ),
        (
            {"ordering": "adaptive"},
            "buffering always needs ordering always, for repeats must be identical",
        ),
        ({"className": "Gold!"}, "className is the name of a RecoveryClass"),
        ({"strategy": "quick"}, 'Unsupported value: "quick"'),
        (
            {"priorities": [{"query": "q", "priority": 11}]},
            "should be less than or equal to 10",
        ),
        (
            {"priorities": [{"query": "q", "priority": 1}, {"query": "q", "priority": 2}]},
            'Duplicate value: {"query":"q"}',
        ),
        (
            {"priorities": [{"query": "q", "priority": 1, "until": "tomorrow"}]},
            "must be of type date-time",
        ),
        ({"priorities": [{"query": "q"}]}, "Required value"),
        (
            {"lagGoals": [{"query": "q", "seconds": 0}]},
            "should be greater than or equal to 1",
        ),
        (
            {"lagGoals": [{"query": "q", "seconds": 86_401}]},
            "should be less than or equal to 86400",
        ),
        (
            {"lagGoals": [{"query": "q", "seconds": "soon"}]},
            "must be of type integer",
        ),
        (
            {"recovers": "Applications", "lagGoals": [{"query": "q", "seconds": 1}]},
            "whole applications have no lag that could be counted; remove lagGoals",
        ),
        ({"priorities": [{"query": "my query\n", "priority": 1}]}, "the name of a query has up to"),
        ({"priorities": [{"query": "a/b", "priority": 1}]}, "the name of a query has up to"),
        ({"priorities": [{"query": "q" * 101, "priority": 1}]}, "the name of a query has up to"),
        (
            {"selector": {"sparkApplications": {"names": ["No_Such!"]}}},
            "the name of a SparkApplication has small letters",
        ),
        (labels(matchLabels={"bad key!": "x"}), "a label's key is a name"),
        (labels(matchLabels={"a": "bad value!"}), "a label's value has up to 63 letters"),
        (
            labels(matchExpressions=[{**EXISTS, "key": "bad key!", "values": []}]),
            "a label's key is a name",
        ),
        (
            labels(matchExpressions=[{**EXISTS, "operator": "In", "values": ["bad value!"]}]),
            "a label's value has up to 63 letters",
        ),
        (
            {"selector": {"drivers": {"nameLabel": "!", "labelSelector": LABELLED}}},
            "a label's key is a name",
        ),
        ({"failureDomainKeys": ["a", "a"]}, "failureDomainKeys names a label twice"),
        ({"failureDomainKeys": ["not a key"]}, "a failure domain key is the key of a node label"),
        ({"failureDomainKeys": []}, "should have at least 1 items"),
        ({"nodeCpuCapPercent": 4}, "should be greater than or equal to 5"),
        ({"correlated": {"nodesMin": 0}}, "should be greater than or equal to 1"),
        (
            {"guards": {"nodesPerIncidentMax": 3, "nodesAtOnceMax": 4}},
            "nodesAtOnceMax is above nodesPerIncidentMax and could never be reached",
        ),
        ({"guards": {"providers": ["a", "a"]}}, "Duplicate value"),
        ({"approval": "Perhaps"}, 'Unsupported value: "Perhaps"'),
        ({"paused": "yes"}, "must be of type boolean"),
        ({"colour": "red"}, 'unknown field "spec.colour"'),
    ],
)
def test_a_bad_policy_is_refused_in_words(
    api: Api, namespace: str, spec: Object, message: str
) -> None:
    assert_refused(*api.create(policy(namespace, **spec)), message)


def provider(kind: str, **fields: Any) -> Object:
    return {"provisioning": [{"name": "p", "provider": kind, **fields}]}


def karpenter(**fields: Any) -> Object:
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    requirements = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]
    asked = {"nodeClassRef": node_class, "requirements": requirements, **fields}
    return provider("Karpenter", karpenter=asked)


def requests(**limits: int) -> Object:
    return provider("ProvisioningRequest", provisioningRequest={"className": "c"}, limits=limits)


def resources(**given: Any) -> Object:
    return {"sidecar": {"resources": given}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"provisioning": []}, "should have at least 1 items"),
        (provider("Magic"), 'Unsupported value: "Magic"'),
        (provider("Karpenter"), "provider Karpenter needs karpenter, and no other takes it"),
        (
            provider("PendingPods", provisioningRequest={"className": "c"}),
            "provider ProvisioningRequest needs provisioningRequest, and no other takes it",
        ),
        (provider("ClusterAPI"), "provider ClusterAPI needs clusterAPI, and no other takes it"),
        (provider("PendingPods", limits={}), "provider PendingPods takes no limits"),
        (
            {"provisioning": [{"name": "Big One", "provider": "PendingPods"}]},
            "the name of a provider has small letters, digits and -",
        ),
        (
            {"provisioning": [{"name": "p", "provider": "PendingPods"}] * 2},
            'Duplicate value: {"name":"p"}',
        ),
        (karpenter(requirements=[IN_NOTHING]), "Exists and DoesNotExist take no values"),
        (karpenter(requirements=[EXISTS]), "Exists and DoesNotExist take no values"),
        (
            karpenter(expireAfter="soon"),
            "expireAfter is a duration such as 720h or 1h30m, or Never",
        ),
        (requests(nodesPerRequestMax=50), "nodesPerRequestMax is above nodesAtOnceMax"),
        (requests(nodesPerIncidentMax=5), "nodesAtOnceMax is above nodesPerIncidentMax"),
        (requests(backOffSeconds=900), "backOffSeconds is above backOffSecondsMax"),
        (
            {"fencing": {"mode": "DeleteNode"}},
            "fencing needs certainty; say how it is known that a lost node runs nothing any more",
        ),
        (
            {"fencing": {"mode": "DeleteNode", "certainty": []}},
            "fencing needs certainty",
        ),
        ({"fencing": {"mode": "Hope"}}, 'Unsupported value: "Hope"'),
        ({"taints": {"suspectedNodes": "NoExecute"}}, 'Unsupported value: "NoExecute"'),
        ({"limits": {"nodesAtOnceMax": 200}}, "nodesAtOnceMax is above nodesPerIncidentMax"),
        ({"sidecar": {"store": {"addresses": ["zookeeper"]}}}, "an address is HOST:PORT"),
        ({"sidecar": {"store": {"addresses": []}}}, "should have at least 1 items"),
        (
            {"sidecar": {"resources": {"limits": {"memory": "lots"}}}},
            "lots is no quantity; write a number with a unit, such as 64Mi",
        ),
        (resources(requests={"memory": "256Mi"}), "limits.memory is below requests.memory"),
        (resources(requests={"memory": 268_435_456}), "limits.memory is below requests.memory"),
        (resources(limits={"cpu": "10m"}), "limits.cpu is below requests.cpu, which is 20m unless"),
        (
            resources(requests={"cpu": 2}, limits={"cpu": "1900m"}),
            "limits.cpu is below requests.cpu",
        ),
        (resources(limits={"cpu": -1}), "there is no CPU below 0"),
        (resources(requests={"cpu": "-1m"}), "there is no CPU below 0"),
        (resources(limits={"memory": "128m"}), "less than 1Mi is too little"),
        (resources(requests={"memory": 64}), "less than 1Mi is too little"),
        ({"sidecar": {"image": "has space:1"}}, "an image is named without spaces"),
        ({"sidecar": {"image": " lead:1"}}, "an image is named without spaces"),
        (
            {"sidecar": {"store": {"addresses": ["zk:99999"]}}},
            "a port is a number from 1 to 65535",
        ),
        ({"sidecar": {"store": {"addresses": ["zk:0"]}}}, "a port is a number from 1 to 65535"),
        (
            {
                "provisioning": [
                    {"name": "a", "provider": "PendingPods"},
                    {"name": "b", "provider": "PendingPods"},
                ]
            },
            "provisioning has PendingPods twice",
        ),
        ({"detection": {"leaseIntervals": 1}}, "should be greater than or equal to 2"),
    ],
)
def test_a_bad_class_is_refused_in_words(
    api: Api, made: list[Object], spec: Object, message: str
) -> None:
    record = class_of("bad", **spec)
    made.append(record)
    assert_refused(*api.create(record), message)


@pytest.mark.parametrize("memory", [134_217_728, "128Mi", "1e8", "0.5Gi"])
def test_quantities_are_numbers_or_text(api: Api, made: list[Object], memory: Any) -> None:
    record = class_of("quantities", sidecar={"resources": {"limits": {"memory": memory}}})
    made.append(record)
    status, answer = api.create(record)
    assert status == 201, answer["message"]


@pytest.mark.parametrize(
    "given",
    [
        {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": 1, "memory": 1_073_741_824}},
        {"requests": {"cpu": 0, "memory": "0"}},
        {"requests": {"cpu": "1500m", "memory": "1.5Gi"}, "limits": {"memory": "1536Mi"}},
    ],
)
def test_a_sidecar_may_ask_for_as_much_as_it_may_use(
    api: Api, made: list[Object], given: Object
) -> None:
    store = {"addresses": ["zk-0.zk:2181", "[::1]:2181", "192.0.2.1:65535"]}
    record = class_of("fitting", sidecar={"resources": given, "store": store})
    made.append(record)
    status, answer = api.create(record)
    assert status == 201, answer["message"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"incident": 0}, "should be greater than or equal to 1"),
        (
            {"application": {"kind": "SparkApplication", "name": "a"}},
            "a SparkApplication needs its group, and a Driver has none",
        ),
        (
            {"application": {"kind": "Driver", "name": "a", "group": "spark.apache.org"}},
            "a SparkApplication needs its group, and a Driver has none",
        ),
        ({"policyName": None}, "Required value"),
    ],
)
def test_a_bad_recovery_is_refused_in_words(
    api: Api, namespace: str, spec: Object, message: str
) -> None:
    assert_refused(*api.create(recovery(namespace, **spec)), message)
