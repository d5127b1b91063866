"""A coordinator's shell, stepped by hand, with applications at rest in a store in memory.

For the tests of the shell: time moves only when they say so.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from store_in_memory import ConnectionInMemory, SharedStore

from rekindle import protocol
from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.model.settings import Policy
from rekindle.protocol import Directive, Heartbeat, Orders, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_bench.application_fleet import Fleet, Member, shape
from rekindle_coordinator.coordinator_health import Metrics
from rekindle_coordinator.coordinator_log import Log
from rekindle_coordinator.coordinator_loop import CoordinatorLoop

TURNS_MAX = 1_000


@dataclass
class Provider:
    """A provider that knows what it is told."""

    gone: frozenset[str] = frozenset()
    driver: bool = False
    there: frozenset[Place] = frozenset()
    trouble: str = ""
    looking: Exception | None = None
    located: dict[str, str] = field(default_factory=dict)
    announced: dict[str, LossNotice] | None = field(default_factory=dict)
    recorded: Mapping[str, LossNotice] = field(default_factory=dict)
    requests: dict[str, NodeRequestOrder] = field(default_factory=dict)

    def request(self, place: Place, identity: str, request: NodeRequestOrder) -> None:
        if self.trouble:
            raise OSError(self.trouble)
        self.requests[f"{place} {identity}"] = request

    def news(self) -> None:
        return None

    def gone_nodes(self, place: Place) -> frozenset[str]:
        del place
        if self.looking is not None:
            raise self.looking
        return self.gone

    def notices(
        self, place: Place, recorded: Mapping[str, LossNotice]
    ) -> Mapping[str, LossNotice] | None:
        del place
        self.recorded = recorded
        return self.announced

    def domains(self, place: Place) -> Mapping[str, str]:
        del place
        return self.located

    def exists(self, place: Place) -> bool:
        return place in self.there

    def driver_gone(self, place: Place, heartbeat: Heartbeat | None, generation: int) -> bool:
        del place, heartbeat, generation
        return self.driver


class World:
    """A store, some applications at rest, and a clock; coordinators that are stepped by hand."""

    def __init__(
        self, applications: int = 1, partition_percent: float = 2.0, **policy: Any
    ) -> None:
        self.shared = SharedStore()
        self.now = 1_000_000.0
        names = [f"a{index}" for index in range(applications)]
        self.fleet = Fleet(
            self.shared.connect(),
            [
                Member(
                    Place("test", name),
                    shape(4),
                    policy=Policy(**policy),
                    partition_percent=partition_percent,
                )
                for name in names
            ],
        )
        self.fleet.write()

    def coordinator(self, provider: Provider | None = None) -> "Coordinator":
        return Coordinator(self, provider)

    @property
    def member(self) -> Member:
        return self.fleet.members[0]

    def lose(self, member: Member, *nodes: int) -> None:
        for node in nodes:
            member.lose(f"{member.place.application}-node-{node}")
        self.fleet.report(member)

    def orders(self, member: Member, orders: Orders) -> None:
        self.fleet.connection.put(member.place.path(store_paths.ORDERS), protocol.encode(orders))

    def directives(self, member: Member, kind: type) -> list[Any]:
        folder = member.place.path(store_paths.DIRECTIVES)
        found = [self.shared.store.get(f"{folder}/{name}") for name in self.names(folder)]
        read = [protocol.decode(item[0], Directive, folder) for item in found if item]
        return [directive for directive in read if isinstance(directive.order, kind)]

    def names(self, folder: str) -> list[str]:
        return self.shared.store.children(folder)


class Coordinator:
    def __init__(self, world: World, provider: Provider | None) -> None:
        self.file = io.StringIO()
        self.connection: ConnectionInMemory = world.shared.connect()
        self.shell = CoordinatorLoop(
            connection=self.connection,
            log=Log(self.file),
            metrics=Metrics(),
            identity="c",
            provider=provider,
            now=lambda: world.now,
        )

    def settle(self) -> None:
        """Step until nothing more is to be done."""
        for _ in range(TURNS_MAX):
            # the shell asks its provider, and a store that was away, only so often
            self.shell._provider_due_at = self.shell._retry_at = 0.0
            self.shell.step()
            if not self.shell._news and not len(self.shell.turns) and not self.shell._listing:
                return
        raise AssertionError("the coordinator never comes to rest")

    def resign(self) -> None:
        """Another one is to lead."""
        candidacy = self.shell._candidacy
        assert candidacy is not None
        candidacy.close()

    @property
    def decisions(self) -> float:
        return (
            self.shell.metrics.registry.get_sample_value("rekindle_coordinator_decisions_total")
            or 0.0
        )

    def lines(self, kind: str) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self.file.getvalue().splitlines()]
        return [record for record in records if record["kind"] == kind]


def settled(world: World, provider: Provider | None = None) -> Coordinator:
    coordinator = world.coordinator(provider)
    coordinator.settle()
    return coordinator
