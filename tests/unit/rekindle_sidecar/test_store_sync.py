"""A round of a sidecar at the store, where the namespace's quota is used up."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from store_in_memory import ConnectionInMemory, SentRead, SharedStore

from rekindle import protocol
from rekindle.model.errors import RunError
from rekindle.protocol import Acknowledgement, Handshake, Heartbeat, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_sidecar.sidecar_session import SidecarSession
from rekindle_sidecar.store_sync import ACKS_KEPT, DriverHeartbeat, ReportDelivery, StoreSync
from rekindle_zookeeper import Connection

PLACE = Place("team", "flights")


class Line:
    """A connection that stays open."""

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default or name


@dataclass(eq=False)
class FullNamespace(ConnectionInMemory):
    """It takes nothing but heartbeats; `swept` says how often pieces were looked for."""

    swept: int = 0

    def transact(
        self,
        expected: Mapping[str, int | None],
        writes: Mapping[str, bytes],
        *,
        ephemeral: bool = False,
    ) -> dict[str, int]:
        if not ephemeral:
            raise RunError(where="store", what="the quota is used up", remedy="remove something")
        return super().transact(expected, writes)

    def sweep(self, folder: str, seen: Mapping[str, int]) -> dict[str, int]:
        self.swept += 1
        return super().sweep(folder, seen)


def acks(connection: ConnectionInMemory) -> int:
    return len(connection.children(PLACE.path(store_paths.ACKS)))


async def a_round(connection: FullNamespace) -> SidecarSession:
    loop, line = asyncio.get_running_loop(), Line()
    desk = SidecarSession(PLACE, 10.0, clock=loop.time, wall_clock=loop.time)
    sync = StoreSync(cast(Connection, connection), desk)
    hello = Handshake(
        oldest=1, newest=1, namespace=PLACE.namespace, application=PLACE.application, generation=1
    )
    desk.handshake(protocol.encode(hello), line, 1)
    topology = {"operators": [], "edges": [], "queries": []}
    report = {"kind": "topology", "generation": 1, "sequence": 0, "program": "p"}
    whole = {**report, "topology": topology, "policy": {}, "nodes_expected": 1}
    desk.report(msgspec.json.encode(whole), line)
    sync._tidy_at = sync._sweep_at = loop.time()
    await sync._round()
    return desk


def test_retention_makes_room_in_a_namespace_where_nothing_can_be_written() -> None:
    """Otherwise it would stay full."""
    connection = FullNamespace(SharedStore())
    connection.shared.store.watchers.append(connection.notice)
    for number in range(1, ACKS_KEPT + 51):
        ack = Acknowledgement(sequence=number, generation=1, outcome="done", epoch=1, plan_epoch=1)
        path = PLACE.path(store_paths.ACKS, store_paths.numbered(number))
        connection.shared.store.transact({}, {path: protocol.encode(ack)}, None)
    desk = asyncio.run(a_round(connection))
    assert desk.held.holds(store_paths.TOPOLOGY), "the report waits"
    assert connection.swept == 1
    assert acks(connection) == ACKS_KEPT


def directive(order: str) -> bytes:
    return msgspec.json.encode({"sequence": 5, "generation": 1, "after": 0, "order": order})


async def around_a_restored_store(connection: ConnectionInMemory) -> list[bytes]:
    """What a driver may be given of directive 5 before and after an older copy took the place of
    the store, in which the coordinator has given its number again."""
    loop, path = asyncio.get_running_loop(), PLACE.path(store_paths.DIRECTIVES, "0000000005")
    connection.put(path, directive("of the store that was lost"))
    desk = SidecarSession(PLACE, 10.0, clock=loop.time, wall_clock=loop.time)
    sync = StoreSync(cast(Connection, connection), desk)
    await sync._round()
    found = [envelope.data for envelope in desk.inbox.values() if envelope]
    connection.reachable = False
    connection.shared.store.records.pop(path)
    other = connection.shared.connect()
    other.put(path, directive("of the copy"))
    connection.mend()
    await asyncio.sleep(0)
    await sync._round()
    return [bytes(one) for one in (*found, *(it.data for it in desk.inbox.values() if it))]


def test_a_directive_of_a_store_that_is_an_older_copy_by_now_is_read_anew() -> None:
    shared = SharedStore()
    given = asyncio.run(around_a_restored_store(shared.connect()))
    assert given == [directive("of the store that was lost"), directive("of the copy")]


@dataclass(eq=False)
class RestoredWhileRead(ConnectionInMemory):
    """The store becomes an older copy while the answer to the first read of `path` is under way."""

    path: str = ""
    copy: bytes = b""

    def get(self, path: str, sent: SentRead | None = None) -> tuple[bytes, int] | None:
        found = super().get(path, sent)
        if path == self.path and self.copy:
            self.shared.store.records.pop(path)
            self.shared.connect().put(path, self.copy)
            self.copy = b""
            self.mend()
        return found


async def two_rounds(connection: ConnectionInMemory) -> list[bytes]:
    """What a driver may be given behind them."""
    loop = asyncio.get_running_loop()
    desk = SidecarSession(PLACE, 10.0, clock=loop.time, wall_clock=loop.time)
    sync = StoreSync(cast(Connection, connection), desk)
    await sync._round()
    await sync._round()
    return [bytes(one.data) for one in desk.inbox.values() if one]


def test_a_directive_that_is_read_while_the_connection_changes_is_read_again() -> None:
    path = PLACE.path(store_paths.DIRECTIVES, "0000000005")
    connection = RestoredWhileRead(SharedStore(), path=path, copy=directive("of the copy"))
    connection.put(path, directive("of the store that was lost"))
    assert asyncio.run(two_rounds(connection)) == [directive("of the copy")]


def topology(generation: int) -> bytes:
    return msgspec.json.encode({"generation": generation, "sequence": 0, "program": "p"})


def test_a_record_that_is_read_while_all_is_forgotten_is_read_again() -> None:
    path = PLACE.path(store_paths.TOPOLOGY)
    connection = RestoredWhileRead(SharedStore(), path=path, copy=topology(1))
    connection.put(path, topology(2))
    delivery = ReportDelivery(cast(Connection, connection), PLACE)
    connection.on_change(delivery.forget)
    found = [delivery.topology(), delivery.topology()]
    assert [one and one.generation for one in found] == [2, 1]


def test_a_sidecar_takes_no_heartbeat_along_that_another_has_made() -> None:
    """The driver has gone from here, and a newer one has begun at another sidecar."""
    shared, path = SharedStore(), PLACE.path(store_paths.HEARTBEAT)
    sidecars = [
        DriverHeartbeat(cast(Connection, FullNamespace(shared)), PLACE) for _ in ("older", "newer")
    ]
    for generation, sidecar in enumerate(sidecars, 1):
        wanted = Heartbeat(generation=generation, since=1.0)
        assert sidecar.keep(wanted, store="s", arriving=True).up
    older, newer = sidecars
    assert older.keep(None, store="s", arriving=False).newer == 2
    assert shared.connect().get(path) is not None
    newer.keep(None, store="s", arriving=False)
    assert shared.connect().get(path) is None
