"""Pods on real nodes reach each other, services and the API server; this host reaches them."""

import urllib.request
from typing import Any

import pytest
from busybox_pods import Pods

from testbed.cluster.node_cluster import NodeCluster
from testbed.cluster.node_configuration import NodeSpec
from testbed.node_objects import ZONE
from testbed.plane_components import SERVICE_ADDRESSES

# Asked often enough that each of three servers answers once, but for a chance of 1 in 60,000.
ASKED = 30
# The address of a name, and the page of a server. Of a static busybox only these two programs do
# without parts of the C library that are not in it.
ASKING = (
    "found() { nslookup -type=a $1 | awk '/^Name/ {n=1} n && /^Address/ {print $2}'; }; "
    "page() { printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 10 $1 $2 | grep server-; }"
)


def read_page(address: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}:8080/", timeout=10) as answer:
        return answer.read().decode().strip()


@pytest.fixture
def three(cluster: NodeCluster, core: Any) -> tuple[str, ...]:
    """Three nodes in two zones."""
    del core  # which removes them
    return cluster.add(3, zones=("a", "b"))


def test_pods_reach_each_other_by_address_and_by_the_name_of_their_service(
    core: Any, pods: Pods, three: tuple[str, ...]
) -> None:
    zones = {one.metadata.name: one.metadata.labels[ZONE] for one in core.list_node().items}
    assert [zones[name] for name in three] == ["a", "b", "a"]
    addresses = [pods.serve(f"server-{node}", node=node) for node in three]
    servers = [f"server-{node}" for node in three]
    assert [read_page(address) for address in addresses] == servers, "from this host"
    core.create_namespaced_service(
        pods.namespace,
        {
            "metadata": {"name": "servers"},
            "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    )
    asking = "; ".join(f"page {address} 8080" for address in addresses)
    found = f"service=$(found servers.{pods.namespace}.svc.cluster.local)"
    until = "until page $service 80 > /dev/null; do sleep 0.2; done"
    often = f"for i in $(seq {ASKED}); do page $service 80; done"
    server = (
        "nc -w 10 $(found kubernetes.default.svc.cluster.local) 443 < /dev/null && echo reached"
    )
    for node in three:
        script = f"{ASKING}; {asking}; {found}; {until}; {often}; {server}"
        said = pods.run(f"client-{node}", script, node=node)
        assert said[:3] == servers
        assert set(said[3:-1]) == set(servers)
        assert said[-1] == "reached"


def test_a_name_that_is_none_is_refused_at_once(pods: Pods, three: tuple[str, ...]) -> None:
    script = "nslookup nobody.example. || echo refused; cat /etc/resolv.conf"
    said = pods.run("client", script, node=three[0])
    assert "refused" in said
    assert f"nameserver {SERVICE_ADDRESSES.partition('/')[0][:-1]}10" in said


def test_a_node_has_what_its_spec_says(cluster: NodeCluster, core: Any) -> None:
    taint = {"key": "only", "value": "some", "effect": "NoSchedule"}
    spec = NodeSpec(cores=0.5, memory_mib=512, labels={"pool": "small"}, taints=[taint])
    (name,) = cluster.add(1, spec, zones=("c",))
    node = core.read_node(name)
    assert node.status.allocatable["cpu"] == "500m"
    assert node.status.allocatable["memory"].endswith("Ki")
    assert abs(int(node.status.allocatable["memory"][:-2]) / 1024 - 512) < 1
    assert node.metadata.labels["pool"] == "small"
    assert node.metadata.labels[ZONE] == "c"
    assert "only" in {taint.key for taint in node.spec.taints}


def test_a_pod_that_outgrows_its_ephemeral_storage_is_evicted_and_no_other(
    pods: Pods, three: tuple[str, ...]
) -> None:
    pods.start("small", "while :; do sleep 1; done", node=three[0])
    script = "head -c 40000000 /dev/zero > /tmp/much; while :; do sleep 1; done"
    pods.start("greedy", script, node=three[0], limits={"ephemeral-storage": "8Mi"})
    assert pods.await_phase("greedy", "Failed").status.reason == "Evicted"
    assert pods.read("small").status.phase == "Running"
