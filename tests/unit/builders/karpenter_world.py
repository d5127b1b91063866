"""A cluster with whole applications, and the provider that makes claims for their nodes."""

from collections.abc import Mapping
from typing import Any

import provider_world
import spark_objects as objects
from gated_world import GATE, KARPENTER, World, executor
from operator_world import tell

from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_resource import NodeRequest
from rekindle_operator.applications import wanted_nodes
from rekindle_operator.provisioning import NodeDemand, remains
from rekindle_operator.provisioning.node_provisioner import by_place


class KarpenterWorld(World):
    """After each turn requests for nodes are carried out, and what became of them is told with the
    next one. The test plays Karpenter: each node has room for one executor."""

    def __init__(self, **more: Any) -> None:
        self.claims = provider_world.World(provider_world.KARPENTER)
        self.told: Mapping[Place, Mapping[int, tuple[NodeRequest, ...]]] = {}
        super().__init__(provisioning=(KARPENTER,), **more)
        tell(self.known.registry, objects.node("drivers", "2"))

    @property
    def requested(self) -> int:
        """How many nodes were ever requested."""
        return self.claims.counted("NodeClaim")

    def rows_of(self, place: Place) -> Mapping[int, tuple[NodeRequest, ...]]:
        return self.told.get(place, {})

    def turn(self, seconds: float = 1.0) -> None:
        super().turn(seconds)
        self.claims.now = 1_795_000_000.0 + self.now
        self.claims.lost = set(self.lost)
        open_ = {item.metadata.uid for _, item in self.known.open_recoveries()}
        self.claims.demands = {demand.incident: demand for demand in self.shell.demands}
        for incident, class_name in remains(self.claims.standing(), provider_world.HOME).items():
            if incident.uid not in open_:
                over = NodeDemand(incident, class_name, self.claims.limits, over=True)
                self.claims.demands.setdefault(incident, over)
        self.told = by_place(self.claims.settle().requests)

    def another_begins(self) -> None:
        """Another operator acts, and knows what Recoveries say."""
        self.shell, self.told = self.operator(), {}

    def come(self, node: str, application: str = "", **more: Any) -> None:
        """A node for the oldest claim without one, of that application if it is said."""
        claim = next(
            item
            for item in self.claims.all("NodeClaim")
            if "status" not in item
            and application in item["metadata"]["labels"]["rekindle.dev/application"]
        )
        self.claims.bring(claim, node)
        tell(self.known.registry, objects.node(node, "2", **more))

    def lose_executor(self, name: str, node: str, number: int) -> None:
        """A node is lost, and Spark has replaced that executor there, half a minute later."""
        self.lose(node)
        self.turn()
        self.remade(name, GATE, number=number + 1)
        self.turn(wanted_nodes.USED_SECONDS)

    def place(self, name: str, node: str) -> None:
        """An executor whose gate is lifted gets a node that has come."""
        self.turn()
        number = next(
            int(pod["metadata"]["labels"]["spark-exec-id"])
            for pod in self.pods.values()
            if pod["metadata"]["name"].startswith(f"{name}-")
            and pod["spec"].get("schedulingGates") == []
            and pod["status"]["phase"] == "Pending"
        )
        self.see(executor(name, number, node=node))
        self.turn()
