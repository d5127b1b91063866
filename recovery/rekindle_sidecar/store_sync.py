"""The sidecar's rounds: everything that it does at the store, one thing after the other.

    rest ──► heartbeat ──► retention ──► reports ──► acknowledgements ──► directives ──► leader ──┐
     ▲                                                                                            │
     └───────────────────────── nothing is asked that is known ───────────────────────────────────┘

A round is woken by requests of the driver and by watches, and is due twice a second for what only
time brings. Requests wait for none of it: each step runs on a thread, and only its outcome comes
back to the event loop. When the store does not answer, all that is known of it is forgotten.

The store does not grow with every plan: of directives and acknowledgements the unacknowledged ones
are kept, and the newest `ACKS_KEPT` others, for people who ask what happened. Numbers grow through
all generations of an application, so those of earlier ones are lower. The heartbeat belongs to the
sidecar's session, and goes with it. Reports are written only over older ones. Retention comes
before them: a namespace that has used up its quota can write nothing until something has gone.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rekindle import protocol
from rekindle.model.errors import InputError, RekindleError
from rekindle.protocol import Heartbeat, store_paths
from rekindle_sidecar import held_records
from rekindle_sidecar.held_records import (
    HeldReport,
    Inbox,
    Precedence,
    PresentRecords,
    Stamp,
)
from rekindle_sidecar.json_log import tell
from rekindle_sidecar.sidecar_session import SidecarSession
from rekindle_zookeeper import Conflict, Connection, StoreUnreachable


class ReportDelivery:
    """What it has read and written it remembers until `forget`; the store checks each time that it
    is still so."""

    def __init__(self, connection: Connection, place: store_paths.Place) -> None:
        self._connection = connection
        self._place = place
        self._known: dict[str, tuple[int | None, Stamp | None]] = {}

    def forget(self) -> None:
        """Read everything again: the store was away, or others have written."""
        self._known = {}

    def topology(self) -> Stamp | None:
        """The stamp of the topology in the store."""
        return self._standing(store_paths.TOPOLOGY)[1]

    def write(self, report: HeldReport) -> tuple[Precedence, Stamp | None]:
        """Write a report if it is newer; what was decided, and the stamp that stands now. Raises
        Conflict when somebody else has written it, or the topology, meanwhile."""
        path = self._place.path(report.name)
        version, standing = self._standing(report.name)
        decided = held_records.compare(standing, report.stamp)
        if decided in (Precedence.FENCED, Precedence.FOREIGN):
            self.forget()  # no driver ends for what has been removed since it was read
            version, standing = self._standing(report.name)
            decided = held_records.compare(standing, report.stamp)
        if decided is not Precedence.WRITE:
            return decided, standing
        topology = self._place.path(store_paths.TOPOLOGY)
        expected = {topology: self._standing(store_paths.TOPOLOGY)[0], path: version}
        known = self._known
        try:
            versions = self._connection.transact(expected, {path: report.data})
        except Conflict:
            self.forget()
            raise
        known[report.name] = (versions[path], report.stamp)
        return decided, report.stamp

    def acknowledge(self, sequence: int, data: bytes) -> None:
        """Write an acknowledgement, unless there is one."""
        path = self._place.path(store_paths.ACKS, store_paths.numbered(sequence))
        try:
            self._connection.transact({path: None}, {path: data})
        except Conflict:
            return

    def _standing(self, name: str) -> tuple[int | None, Stamp | None]:
        """Version and stamp of a record, as they were when it was last looked at."""
        known = self._known  # `forget` may replace it while this thread reads
        if name not in known:
            found = self._connection.get(self._place.path(name))
            stamp = None if found is None else held_records.stamp_of(found[0])
            known[name] = (None if found is None else found[1], stamp)
        return known[name]


@dataclass(frozen=True, slots=True)
class HeartbeatOutcome:
    """`up`: a heartbeat of this generation stands; `newer`: the generation that does instead;
    `foreign`: the generation of a driver with another checkpoint store that does."""

    up: bool
    newer: int = 0
    foreign: int = 0


class DriverHeartbeat:
    """Of one application, made by this sidecar."""

    def __init__(self, connection: Connection, place: store_paths.Place) -> None:
        self._connection = connection
        self._path = place.path(store_paths.HEARTBEAT)
        self._made: Heartbeat | None = None

    def keep(self, wanted: Heartbeat | None, *, store: str, arriving: bool) -> HeartbeatOutcome:
        """Bring about what is wanted, as far as a newer driver's heartbeat allows. `store` is the
        checkpoint store of the driver here; `arriving`: it has introduced itself since the last
        time."""
        found = self._connection.get(self._path)
        standing = None if found is None else _decoded(found[0], self._path)
        newer = 0 if standing is None else standing.generation
        if wanted is None:
            # a driver that was here and is away takes only its own heartbeat along
            if found is not None and standing is not None and standing == self._made:
                self._connection.remove(self._path, found[1])
                newer = 0
            # before a driver has come nobody knows whether that one counts for it
            if standing is not None and (
                not store or held_records.are_foreign(standing.store, store)
            ):
                newer = 0
            return HeartbeatOutcome(up=False, newer=newer)
        decided = held_records.compare_heartbeats(standing, wanted, arriving)
        if decided is Precedence.FOREIGN:
            return HeartbeatOutcome(up=False, foreign=newer)
        if decided is Precedence.WRITE:
            self._made = wanted
            expected = {self._path: None if found is None else found[1]}
            self._connection.transact(
                expected, {self._path: protocol.encode(wanted)}, ephemeral=True
            )
        return HeartbeatOutcome(up=decided is not Precedence.FENCED, newer=newer)


def present_records(connection: Connection, place: store_paths.Place) -> PresentRecords:
    """Read heartbeat and topology of an application."""
    path = place.path(store_paths.HEARTBEAT)
    heartbeat = connection.get(path)
    topology = connection.get(place.path(store_paths.TOPOLOGY))
    return PresentRecords(
        None if heartbeat is None else _decoded(heartbeat[0], path),
        None if topology is None else held_records.stamp_of(topology[0]),
    )


def _decoded(data: bytes, path: str) -> Heartbeat | None:
    """None for what nobody can read."""
    try:
        return protocol.decode(data, Heartbeat, path)
    except InputError:
        return None


ACKS_KEPT = 200


def choose(
    directives: Mapping[int, int], acks: Iterable[int], generation: int
) -> tuple[set[int], set[int]]:
    """Numbers of the directives (number -> generation) and of the acknowledgements that may go
    while a driver of `generation` is there."""
    earlier = {number for number, of in directives.items() if of < generation}
    ours = [number for number, of in directives.items() if of >= generation]
    last = min(ours) - 1 if ours else max(earlier, default=0)
    known = sorted(acks)
    old = {number for number in known if number <= last}
    kept = [number for number in known if number > last]
    old |= set(kept[:-ACKS_KEPT])
    return earlier | (old & set(directives)), old


def tidy(connection: Connection, place: store_paths.Place, inbox: Inbox, generation: int) -> int:
    """Remove what may go; the number of records that went."""
    directives = {held.sequence: held.generation for held in inbox.values() if held is not None}
    acks = store_paths.numbers(connection.children(place.path(store_paths.ACKS)))
    old_directives, old_acks = choose(directives, acks, generation)
    for folder, numbers in ((store_paths.DIRECTIVES, old_directives), (store_paths.ACKS, old_acks)):
        for number in sorted(numbers):
            connection.remove(place.path(folder, store_paths.numbered(number)))
    return len(old_directives) + len(old_acks)


REST_SECONDS = 0.5
RETRY_SECONDS = 1.0
TIDY_SECONDS = 60.0
SWEEP_SECONDS = 600.0


class StoreSync:
    """Of one sidecar. Made on the event loop; `run` is its life."""

    def __init__(self, connection: Connection, desk: SidecarSession) -> None:
        self._connection = connection
        self._desk = desk
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._deliveries = ReportDelivery(connection, desk.place)
        self._heartbeats = DriverHeartbeat(connection, desk.place)
        self._heartbeat_known = False
        self._wanted: object = None
        # Directives that were read over this connection. Behind another one the store may be an
        # older copy, with other directives under the same numbers.
        self._read: Inbox = {}
        self._directives_known = self._leader_known = False
        self._led = True
        self._ending = False
        self._failure = ""
        self._retry_at = 0.0
        self._tidy_at = self._loop.time() + TIDY_SECONDS
        self._sweep_at = self._loop.time() + SWEEP_SECONDS
        self._left: dict[str, int] = {}
        desk.wake = self._woken.set
        desk.look = self._look
        connection.on_change(self._from_elsewhere(self._connection_changed))
        connection.watch(
            desk.place.path(store_paths.HEARTBEAT), self._from_elsewhere(self._heartbeat_changed)
        )
        connection.watch(
            desk.place.path(store_paths.DIRECTIVES), self._from_elsewhere(self._directives_changed)
        )
        connection.watch(store_paths.ELECTION, self._from_elsewhere(self._leader_changed))

    async def run(self) -> None:
        """Rounds until `end` is called, and a last one after it."""
        while not self._ending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REST_SECONDS):
                    await self._woken.wait()
            self._woken.clear()
            await self._round()

    def end(self) -> None:
        """Let `run` return."""
        self._ending = True
        self._woken.set()

    async def _round(self) -> None:
        """Do whatever there is to do, unless the store is away."""
        if self._connection.reachable and self._loop.time() >= self._retry_at:
            try:
                await self._sweep()
                if self._desk.wanted_heartbeat() is None:
                    # that its run has ended counts before that the driver is away
                    await self._deliver()
                await self._keep_heartbeat()
                await self._tidy()
                await self._deliver()
                await self._fetch()
                await self._look_for_leader()
                self._failure = ""
            except Conflict:  # with another sidecar: look again
                self._heartbeat_known = False
                self._woken.set()
            except RekindleError as error:
                self._fail(str(error))
        self._tell_reachable()
        self._tell_led()

    async def _look(self) -> PresentRecords | None:
        """Read what stands in the store now; None where it does not answer."""
        if not self._connection.reachable:
            return None
        try:
            return await asyncio.to_thread(present_records, self._connection, self._desk.place)
        except RekindleError as error:
            tell("store-fails", text=str(error))
            return None

    async def _keep_heartbeat(self) -> None:
        desk = self._desk
        wanted, arriving = desk.wanted_heartbeat(), desk.arriving
        if self._heartbeat_known and wanted == self._wanted and not arriving:
            return
        # what happens from here on is news
        self._heartbeat_known, self._wanted, desk.arriving = True, wanted, False
        try:
            outcome = await asyncio.to_thread(
                self._heartbeats.keep, wanted, store=desk.store, arriving=arriving
            )
        except BaseException:
            self._heartbeat_known, desk.arriving = False, desk.arriving or arriving
            raise
        if outcome.newer:
            desk.fence(outcome.newer)
        if outcome.foreign:
            desk.refuse_store(outcome.foreign, is_there=True)
        self._tell_heartbeat(outcome.up)

    async def _deliver(self) -> None:
        desk = self._desk
        # whether another driver is there is looked at first, in the round that a handshake asks for
        if not len(desk.held) or desk.arriving:
            return
        topology = await asyncio.to_thread(self._deliveries.topology)
        while (report := desk.held.next(topology)) is not None:
            held = desk.held
            decided, standing = await asyncio.to_thread(self._deliveries.write, report)
            if decided is Precedence.FENCED and standing is not None:
                desk.fence(standing.generation)
            if decided is Precedence.FOREIGN and standing is not None:
                desk.refuse_store(standing.generation, is_there=False)
                return
            held.settled(report)
            if report.name == store_paths.TOPOLOGY:
                topology = standing
        for sequence, data in list(desk.held.acks.items()):
            held = desk.held
            await asyncio.to_thread(self._deliveries.acknowledge, sequence, data)
            held.acknowledged(sequence)
        if topology is None or topology.generation < desk.generation:
            desk.miss_topology()

    async def _fetch(self) -> None:
        if self._directives_known:
            return
        self._directives_known = True
        desk, known = self._desk, self._read
        try:
            found = await asyncio.to_thread(
                held_records.fetch_directives, self._connection, desk.place, known
            )
        except BaseException:
            self._directives_known = False
            raise
        if self._read is not known:
            return  # over a connection that is gone: read again over the new one
        self._read = found
        desk.refill(found)

    async def _look_for_leader(self) -> None:
        """See whether a coordinator takes part in the election. A store that does not let us look
        has one that made it so."""
        if self._leader_known:
            return
        self._leader_known = True
        try:
            found = await asyncio.to_thread(self._connection.children, store_paths.ELECTION)
        except StoreUnreachable:
            self._leader_known = False
            raise
        except RekindleError as error:
            tell("election-closed", text=str(error)[:200])
            found = [""]
        self._desk.note_leader(there=bool(found))

    async def _tidy(self) -> None:
        desk, now = self._desk, self._loop.time()
        if now >= self._tidy_at and desk.heartbeat_up:
            self._tidy_at = now + TIDY_SECONDS
            went = await asyncio.to_thread(
                tidy, self._connection, desk.place, desk.inbox, desk.generation
            )
            if went:
                tell("tidied", records=went)

    async def _sweep(self) -> None:
        desk, now = self._desk, self._loop.time()
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            self._left = await asyncio.to_thread(
                self._connection.sweep, desk.place.path(), self._left
            )

    def _fail(self, text: str) -> None:
        if text != self._failure:
            tell("store-fails", text=text)
        self._failure = text
        self._retry_at = self._loop.time() + RETRY_SECONDS
        self._forget()

    def _forget(self) -> None:
        self._heartbeat_known = self._directives_known = self._leader_known = False
        self._deliveries.forget()

    def _tell_reachable(self) -> None:
        reachable = self._connection.reachable and not self._failure
        if reachable != self._desk.store_reachable:
            self._desk.store_reachable = reachable
            tell("store-reachable" if reachable else "store-unreachable")

    def _tell_led(self) -> None:
        if self._desk.led != self._led:
            self._led = self._desk.led
            tell("led" if self._led else "nobody-leads")
            self._desk.ring()

    def _tell_heartbeat(self, up: bool) -> None:
        if up != self._desk.heartbeat_up:
            self._desk.heartbeat_up = up
            tell("heartbeat-up" if up else "heartbeat-down", generation=self._desk.generation)

    def _connection_changed(self) -> None:
        self._forget()
        self._read = {}
        self._retry_at = 0.0
        if self._connection.session is None:
            self._tell_heartbeat(False)
        self._tell_reachable()

    def _heartbeat_changed(self) -> None:
        self._heartbeat_known = False

    def _directives_changed(self) -> None:
        self._directives_known = False

    def _leader_changed(self) -> None:
        self._leader_known = False

    def _from_elsewhere(self, note: Callable[[], None]) -> Callable[[], None]:
        """For callbacks from other threads: note it on the event loop, and wake."""

        def called() -> None:
            note()
            self._woken.set()

        def call() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before the connection
                self._loop.call_soon_threadsafe(called)

        return call
