"""A driver of any release, as far as its sidecar and a coordinator can tell; run as a script.

    release_driver.py SOCKET APPLICATION

It runs with one release's packages on its path, so it uses only what both have. A line `lose NODE`
on its input takes a node away; after each plan it prints which partitions run where, as JSON.
"""

import json
import select
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from rekindle import protocol
from rekindle.protocol import (
    Acknowledgement,
    CheckpointReport,
    Handshake,
    NodeSeen,
    PlanOrder,
    ProgressReport,
    StatisticsReport,
    TopologyReport,
)


def either(new: str, old: str) -> Any:
    """A module, or MODULE:NAME of one, by its name now or by that of the release before."""
    for name in (new, old):
        module, _, attribute = name.partition(":")
        with suppress(ModuleNotFoundError):
            found = import_module(module)
            return getattr(found, attribute) if attribute else found
    raise ImportError(f"this release has neither {new} nor {old}")


directive_acceptance = either(
    "rekindle.coordination.directive_acceptance", "rekindle.coordination.following"
)
AcceptedDirectives = either(
    "rekindle.coordination.directive_acceptance:AcceptedDirectives",
    "rekindle.coordination.following:Following",
)
graph = either("rekindle.model.topology", "rekindle.topology")
TopologyOperator = either("rekindle.model.topology:TopologyOperator", "rekindle.topology:Operator")
Policy = either("rekindle.model.settings:Policy", "rekindle.settings:Policy")
SidecarClient = either(
    "rekindle_spark.control.sidecar_client:SidecarClient", "rekindle_spark.sidecar:Sidecar"
)

NODES = ("n1", "n2", "n3")
TOPOLOGY = graph.Topology(
    operators=(TopologyOperator("source", 2), TopologyOperator("counts", 2)),
    edges=(("source", "counts"),),
    queries=(graph.Query("busiest", "counts", 4),),
)
LOOK_SECONDS, REPORT_SECONDS = 0.05, 1.0


class Driver:
    """What runs where, and what has been said."""

    def __init__(self, socket: str, application: str) -> None:
        hello = Handshake(
            oldest=protocol.VERSION_OLDEST,
            newest=protocol.VERSION,
            namespace="team",
            application=application,
            generation=1,
        )
        self.contact = SidecarClient(Path(socket), hello)
        self.following = AcceptedDirectives(1)
        self.nodes = {node: NodeSeen(incarnation="1.0", capacity_percent=100.0) for node in NODES}
        self.placement: dict[str, str] = {}
        self.resident: dict[str, str] = {}
        self.sequence = 0

    def run(self) -> None:
        """Until the input ends."""
        self.contact.start()
        self._begin()
        reported_at = 0.0
        while True:
            if select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
                line = sys.stdin.readline()
                if not line:
                    break
                self._lose(line.split()[1])
                reported_at = 0.0
            if any(self._obey(directive) for directive in self.contact.directives()):
                reported_at = 0.0
            if time.monotonic() - reported_at > REPORT_SECONDS:
                reported_at = time.monotonic()
                self._report()
        self.contact.stop()

    def _begin(self) -> None:
        costs = dict.fromkeys(graph.partitions(TOPOLOGY), 10.0)
        self.contact.report(
            TopologyReport(
                generation=1,
                sequence=0,
                program="skew",
                topology=TOPOLOGY,
                policy=Policy(),
                nodes_expected=len(NODES),
            )
        )
        self.contact.report(StatisticsReport(generation=1, sequence=1, costs=costs))
        self.contact.report(CheckpointReport(generation=1, sequence=1, epoch=1, at=time.time()))

    def _lose(self, node: str) -> None:
        del self.nodes[node]
        kept = {name: held for name, held in self.placement.items() if held != node}
        runs = graph.runnable(TOPOLOGY, kept)
        self.resident |= {name: held for name, held in kept.items() if name not in runs}
        self.resident = {name: held for name, held in self.resident.items() if held != node}
        self.placement = {name: held for name, held in kept.items() if name in runs}

    def _obey(self, directive: protocol.Directive) -> bool:
        if directive_acceptance.is_early(self.following, directive):
            return False
        self.following, why = directive_acceptance.take(self.following, directive)
        self.contact.looked_at(self.following.directive)
        self.contact.acknowledge(
            Acknowledgement(
                sequence=directive.sequence,
                generation=1,
                outcome="refused" if why else "done",
                epoch=1,
                plan_epoch=self.following.plan_epoch,
                text=why,
            )
        )
        if not why and isinstance(directive.order, PlanOrder):
            self.placement |= directive.order.placement
            self.resident = {n: h for n, h in self.resident.items() if n not in self.placement}
            print(json.dumps(self.placement), flush=True)
        return True

    def _report(self) -> None:
        self.sequence += 1
        self.contact.report(
            ProgressReport(
                generation=1,
                sequence=self.sequence,
                nodes=dict(self.nodes),
                placement=dict(self.placement),
                live=tuple(self.placement),
                resident=dict(self.resident),
                plan_epoch=self.following.plan_epoch,
                directive=self.following.directive,
                epoch=self.sequence,
            )
        )


if __name__ == "__main__":
    Driver(sys.argv[1], sys.argv[2]).run()
