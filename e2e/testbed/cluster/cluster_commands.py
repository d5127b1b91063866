"""`python -m testbed cluster`: a cluster of real nodes for a person to look at, and to harm.

`up` stays in the foreground, and with it everything ends; the other commands are orders to it. What
they do with nodes is node_cluster.py's.
"""

import argparse
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.model.errors import InputError
from rekindle_cli import cli_options
from testbed import process_owners, test_programs
from testbed.cluster import cluster_cleanup, cluster_lock, control_socket, kernel_limits
from testbed.cluster.control_socket import Order
from testbed.cluster.image_template import kept_folder
from testbed.cluster.machine_names import NODES_MAX, ClusterFolders
from testbed.cluster.node_configuration import NodeSpec

if TYPE_CHECKING:
    from testbed.cluster.node_cluster import NodeCluster


END_SECONDS_MAX = 120.0
EXAMPLE = "Example: python -m testbed cluster up --nodes 3 --zones a,b"
# Orders about nodes, by the name of the cluster's method.
ORDERS = {
    "kill": "lose nodes: no packet leaves them any more, and all on them is dead",
    "revive": "switch killed machines on again, with empty disks",
    "cut": "cut nodes off the network, alive",
    "heal": "let them be reached again",
    "stop-kubelet": "kill the kubelets of nodes, whose pods run on",
    "start-kubelet": "start them again",
    "remove": "end nodes, and delete their Node objects",
}
ADD = "add"


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `cluster` with all that is below it."""
    cluster = commands.add_parser("cluster", help="a cluster of real nodes (root)", epilog=EXAMPLE)
    below = cluster.add_subparsers(required=True, metavar="COMMAND")
    up = below.add_parser("up", help="start a cluster, print its kubeconfig, and stay")
    up.add_argument("--nodes", type=int, default=1, metavar="N", help="how many nodes (1)")
    up.add_argument("--images", default="", metavar="A.tar,B.tar", help="archives of images")
    up.add_argument("--grace", type=float, default=50, metavar="S", help="seconds to Unknown (50)")
    up.add_argument("--directory", type=Path, metavar="DIR", help="where it lies")
    up.add_argument("--shared", type=Path, metavar="DIR", help="a folder that all nodes see")
    up.set_defaults(command=_up)
    add = below.add_parser("add", help="add nodes to it")
    add.add_argument("nodes", type=int, metavar="N", help="how many")
    add.set_defaults(command=_add)
    for command in (up, add):
        command.add_argument("--zones", default="", metavar="A,B", help="taken in turn")
        command.add_argument("--cores", type=float, default=1.0, help="of a node, for pods (1)")
        command.add_argument("--memory-mib", type=int, default=2048, help="the same (2048)")
    for name, text in ORDERS.items():
        order = below.add_parser(name, help=text)
        order.add_argument("nodes", nargs="+", metavar="NODE", help="as kubectl get nodes has it")
        order.set_defaults(command=_send, order=name)
    for name, text, run in (
        ("down", "end the cluster", _down),
        ("clean", "remove whatever one that was killed has left", _clean),
    ):
        below.add_parser(name, help=text).set_defaults(command=run)


def _up(given: argparse.Namespace) -> None:
    # Only here: the official client takes more than a second to import.
    from testbed.cluster.node_cluster import NodeCluster

    cli_options.check_range("--nodes", given.nodes, 0, NODES_MAX)
    cli_options.check_range("--grace", given.grace, 1, 86_400)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = NodeCluster(
        directory=given.directory or default_directory(),
        images=[Path(name) for name in given.images.split(",") if name],
        shared=given.shared,
        node_grace_seconds=given.grace,
    )
    with ExitStack() as stack:
        stack.enter_context(cluster)
        desk = control_socket.ControlSocket(
            cluster_lock.orders_socket(), lambda order: _carry_out(cluster, order)
        )
        stack.enter_context(desk)
        if given.nodes:
            _carry_out(cluster, _order_to_add(given))
        print(f"export KUBECONFIG={cluster.plane.kubeconfig}", flush=True)
        test_programs.say(f"the cluster is up; all nodes share the folder {cluster.shared}")
        test_programs.say("Ctrl-C, or `python -m testbed cluster down`, ends it")
        with suppress(KeyboardInterrupt):
            while True:
                desk.serve()


def _add(given: argparse.Namespace) -> None:
    cli_options.check_range("N", given.nodes, 1, NODES_MAX)
    print(control_socket.send(cluster_lock.orders_socket(), _order_to_add(given)))


def _send(given: argparse.Namespace) -> None:
    order = {"order": given.order, "nodes": given.nodes}
    print(control_socket.send(cluster_lock.orders_socket(), order))


def _down(_: argparse.Namespace) -> None:
    owner = cluster_lock.owner()
    if owner == 0:
        raise InputError(
            where=cluster_lock.WHERE,
            what=f"{process_owners.described(owner)} begins one, or cleans up",
            remedy="look again in a moment",
        )
    if owner is None:
        raise InputError(
            where=cluster_lock.WHERE,
            what="none runs here",
            remedy="start one with `up`; `clean` removes what a killed one has left",
        )
    process_owners.end(
        owner,
        lambda: cluster_lock.owner() is None,
        seconds_max=END_SECONDS_MAX,
        remedy="kill it, then `python -m testbed cluster clean`",
    )


def _clean(_: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        raise InputError(where=cluster_lock.WHERE, what="needs root", remedy="run this as root")
    with cluster_lock.claimed():
        record = cluster_lock.read()
        ours = default_directory()
        directories = [ours, *([] if record is None else [record.directory])]
        left = cluster_cleanup.find(map(ClusterFolders, directories), kept_folder(), logs=True)
        cluster_cleanup.remove(left)
        if record is not None:
            kernel_limits.put_back(record.instances)
        with suppress(OSError):  # what is not ours stays in it; one that was named stays anyway
            ours.rmdir()
        cluster_lock.forget()
    print(f"removed: {left or 'nothing, there was nothing left'}")


def default_directory() -> Path:
    """Where a cluster lies that was given no folder."""
    return test_programs.cache_folder(os.environ) / "cluster"


def _order_to_add(given: argparse.Namespace) -> Order:
    return {
        "order": ADD,
        "count": given.nodes,
        "zones": given.zones.split(","),
        "cores": given.cores,
        "memory_mib": given.memory_mib,
    }


def _carry_out(cluster: "NodeCluster", order: Order) -> str:
    """Do what is ordered; what to say of it."""
    name = order["order"]
    if name == ADD:
        spec = NodeSpec(cores=order["cores"], memory_mib=order["memory_mib"])
        return f"Ready: {', '.join(cluster.add(order['count'], spec, zones=order['zones']))}"
    does: dict[str, Callable[..., None]] = {
        "kill": cluster.kill,
        "revive": cluster.revive,
        "cut": cluster.cut,
        "heal": cluster.heal,
        "stop-kubelet": cluster.stop_kubelet,
        "start-kubelet": cluster.start_kubelet,
        "remove": cluster.remove,
    }
    does[name](*order["nodes"])
    return f"{name}: {', '.join(order['nodes'])}"
