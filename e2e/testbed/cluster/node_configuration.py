"""What containerd, kubelet, kube-proxy and CoreDNS read.

Paths are those on a node, where /run, /var/lib and /var/log are its own (machine_namespaces.py).
image_template.py, cluster_node.py and cluster_dns.py write the texts to files.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from testbed.cluster.containerd_images import PAUSE
from testbed.cluster.machine_names import DOMAIN, GROUP, NAME_SERVICE, PODS, SWITCH, MachineNames
from testbed.node_objects import ZONE

_CONTAINERD = "/run/containerd/containerd.sock"
READY_PORT = 8181
# Kept free for what is not a pod: the nodes share this machine's memory.
MEMORY_LEFT_MIB = 100


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What the scheduler finds on a node: `cores` and `memory_mib` for pods, labels, taints.

    With `quota_cores` all that is on it gets no more CPU than that; otherwise the machine's is
    everybody's.
    """

    cores: float = 1.0
    memory_mib: int = 2048
    pods: int = 60
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    quota_cores: float | None = None


def containerd(plugins: Path, networks: Path) -> str:
    """TOML of containerd; `plugins` holds CNI's programs, `networks` the description of one."""
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "{_CONTAINERD}"

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  # Root without CAP_SYS_RESOURCE may not lower the score: every sandbox would fail with "EOF".
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE}"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "{networks}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""


def pod_network(pods: IPv4Network) -> str:
    """CNI's list of plugins: each pod has a link of its own to its node.

    Not a bridge: on one, two pods of a node would talk past the node's own address translation
    unless the kernel's bridge filter is loaded, and services would answer from the wrong address.
    """
    ranges = [[{"subnet": str(pods)}]]
    addresses = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    plugin = {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": addresses}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]})


def machine_mib() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def kubelet(place: MachineNames, spec: NodeSpec, authority: Path) -> str:
    """YAML of a kubelet; what this machine has beyond the node's `spec` is reserved."""
    cores = os.cpu_count() or 1
    reserved = {
        "cpu": f"{max(0, round((cores - spec.cores) * 1000))}m",
        "memory": f"{max(0, machine_mib() - MEMORY_LEFT_MIB - spec.memory_mib)}Mi",
    }
    return _dumped(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": str(place.address),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority)},
            },
            "authorization": {"mode": "Webhook"},
            "readOnlyPort": 0,
            "clusterDNS": [str(NAME_SERVICE)],
            "clusterDomain": DOMAIN,
            "resolvConf": str(place.folder / "settings" / "resolv.conf"),
            "containerRuntimeEndpoint": f"unix://{_CONTAINERD}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{GROUP}/{place.name}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "maxPods": spec.pods,
            "systemReserved": reserved,
            "enforceNodeAllocatable": [],
            # Disk and inodes are the whole machine's: nobody is to be evicted, and no image to be
            # removed, because others have filled it. A pod's own limit holds all the same.
            "evictionHard": {"memory.available": f"{MEMORY_LEFT_MIB}Mi"},
            "imageGCHighThresholdPercent": 100,
            "volumeStatsAggPeriod": "15s",
            "registerWithTaints": [dict(taint) for taint in spec.taints],
        }
    )


def kubelet_arguments(place: MachineNames, spec: NodeSpec) -> list[str]:
    """What a kubelet is told on its command line."""
    labels = {**spec.labels, **({ZONE: spec.zone} if spec.zone else {})}
    pairs = ",".join(f"{key}={value}" for key, value in labels.items())
    return [
        f"--hostname-override={place.name}",
        f"--node-ip={place.address}",
        *([f"--node-labels={pairs}"] if pairs else []),
    ]


def proxy(name: str, kubeconfig: Path) -> str:
    """YAML of the kube-proxy of a node."""
    return _dumped(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "hostnameOverride": name,
            "mode": "iptables",
            "clusterCIDR": str(PODS),
            "oomScoreAdj": 0,
            "iptables": {"localhostNodePorts": False},
            # These limits are the machine's, and not a node's to change.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
    )


def corefile(kubeconfig: Path) -> str:
    """CoreDNS's: names of the cluster; every other name is said not to exist, at once."""
    return f"""{DOMAIN}:53 in-addr.arpa:53 {{
    bind {SWITCH}
    errors
    ready {SWITCH}:{READY_PORT}
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
}}
.:53 {{
    bind {SWITCH}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def _dumped(record: Mapping[str, Any]) -> str:
    # Only here: `clean` has to do without what is installed for Rekindle.
    import yaml

    told: str = yaml.safe_dump(record, sort_keys=False)
    return told
