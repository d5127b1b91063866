"""CoreDNS, which answers for the names of services.

It runs on the switch, so that no loss of nodes takes it away, and is the only endpoint of the
Service that pods ask. node_cluster.py calls it.
"""

import urllib.error
import urllib.request
from pathlib import Path

from kubernetes import client

from rekindle.model.errors import RunError
from rekindle_local import process_sets
from testbed.cluster import node_configuration
from testbed.cluster.machine_names import NAME_SERVICE, SWITCH
from testbed.cluster.machine_namespaces import NamespacedMachine
from testbed.cluster.node_configuration import READY_PORT
from testbed.test_programs import COREDNS

START_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 2.0
_NAMESPACE = "kube-system"
_SERVICE = "kube-dns"


def start_name_service(
    machine: NamespacedMachine, program: Path, kubeconfig: Path, api_client: client.ApiClient
) -> None:
    """Start CoreDNS on a machine and make its Service; returns when names are answered.

    Raises `RunError`, naming the log, when it does not come up.
    """
    corefile = machine.settings / "Corefile"
    corefile.write_text(node_configuration.corefile(kubeconfig))
    machine.start_program(COREDNS, program, "-conf", corefile)
    _publish(api_client)
    process_sets.await_condition(
        lambda: _is_ready() or machine.has_ended(COREDNS),
        limit_seconds=START_SECONDS_MAX,
        interval_seconds=0.1,
    )
    if not _is_ready():
        raise RunError(
            where=str(machine.log(COREDNS)), what="CoreDNS does not serve", remedy="read this log"
        )


def _publish(api_client: client.ApiClient) -> None:
    ports = [("dns", "UDP"), ("dns-tcp", "TCP")]
    service = client.V1Service(
        metadata=client.V1ObjectMeta(name=_SERVICE),
        spec=client.V1ServiceSpec(
            cluster_ip=str(NAME_SERVICE),
            ports=[client.V1ServicePort(name=name, protocol=kind, port=53) for name, kind in ports],
        ),
    )
    endpoints = client.V1EndpointSlice(
        metadata=client.V1ObjectMeta(
            name=_SERVICE, labels={"kubernetes.io/service-name": _SERVICE}
        ),
        address_type="IPv4",
        endpoints=[client.V1Endpoint(addresses=[str(SWITCH)])],
        ports=[
            client.DiscoveryV1EndpointPort(name=name, protocol=kind, port=53)
            for name, kind in ports
        ],
    )
    client.CoreV1Api(api_client).create_namespaced_service(_NAMESPACE, service)
    client.DiscoveryV1Api(api_client).create_namespaced_endpoint_slice(_NAMESPACE, endpoints)


def _is_ready() -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    page = f"http://{SWITCH}:{READY_PORT}/ready"
    try:
        with opener.open(page, timeout=ANSWER_SECONDS_MAX) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
