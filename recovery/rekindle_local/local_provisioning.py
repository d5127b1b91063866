"""A local cluster's provider of nodes, in two processes: the cluster's half and the coordinator's.

    cluster ──workers──► nodes.json ──► coordinator
    demo    ──driver───► driver.json       │
    callbacks ◄── at their moments ◄── requests/

Nodes that are asked for come one by one, as machines do: the first `first_seconds` after its
request, each other `every_seconds` after the one before. Which nodes are down, and how one is
started, is the owner's to say; it calls `check` to learn of a start that failed.
"""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from rekindle import protocol
from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.model.errors import RunError
from rekindle.protocol import Heartbeat
from rekindle.protocol.store_paths import Place
from rekindle_local import process_sets

# The folder through which a local cluster and its coordinator, two processes, know of each other.
#
#     nodes.json       the newest process of every node ever started, and its failure domain
#     driver.json      the present process of the driver
#     requests/*.json  what a coordinator asks for, one file for each request, never changed
#
# Files appear whole, by a rename or a link. That a file names a process does not mean that it
# runs: `is_gone` asks the kernel.

NODES, DRIVER, REQUESTS = "nodes.json", "driver.json", "requests"

Kind = TypeVar("Kind")


class Process(msgspec.Struct, frozen=True):
    """A process, for ever: `start` is in ticks since the machine's start."""

    process_id: int
    start: int


class NodesFile(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes.json`: by node its newest process, killed or not, and its failure domain."""

    version: Literal[1] = 1
    nodes: dict[str, Process]
    domains: dict[str, str] = {}


class DriverFile(msgspec.Struct, frozen=True, kw_only=True):
    """`driver.json`: the driver of `application` ("NAMESPACE/APPLICATION")."""

    version: Literal[1] = 1
    application: str
    process: Process


class RequestFile(msgspec.Struct, frozen=True, kw_only=True):
    """A request: `count` "nodes", or the "driver" of `application` again."""

    version: Literal[1] = 1
    identity: str
    application: str
    what: Literal["nodes", "driver"]
    count: int
    outside_domains: tuple[str, ...]
    reason: str


def process(process_id: int) -> Process | None:
    """The process that has this id now, if there is one."""
    start = process_sets.start_ticks(process_id)
    return None if start is None else Process(process_id, start)


def is_gone(known: Process) -> bool:
    """Whether a process has ended; another one with its id does not count."""
    return process_sets.start_ticks(known.process_id) != known.start


def request_path(directory: Path, place: Place, identity: str) -> Path:
    """Where a request lies; a plus is in no name, so the parts cannot run into each other."""
    name = f"{place.namespace}+{place.application}+{identity}.json"
    return directory / REQUESTS / name


def read(path: Path, kind: type[Kind]) -> Kind | None:
    """What a file holds; None when it is not there, InputError when it holds something else."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return protocol.decode(data, kind, str(path))


def replace(path: Path, content: msgspec.Struct) -> None:
    """Write a file, whatever was there. Raises OSError."""
    written = _write_beside(path, content)
    os.replace(written, path)


def create(path: Path, content: msgspec.Struct) -> None:
    """Write a file unless it is there. Raises OSError."""
    written = _write_beside(path, content)
    try:
        os.link(written, path)
    except FileExistsError:
        return
    finally:
        written.unlink()


def _write_beside(path: Path, content: msgspec.Struct) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    written.write_bytes(protocol.encode(content))
    return written


LOOK_SECONDS = 0.1
START_SECONDS_MAX = 150.0


def arrivals(
    now: float, newest: float | None, count: int, first_seconds: float, every_seconds: float
) -> list[float]:
    """When `count` nodes come that are asked for at `now`; `newest` is when the last of those that
    were asked for before comes. Seconds."""
    first = now + first_seconds
    if newest is not None:
        first = max(first, newest + every_seconds)
    return [first + number * every_seconds for number in range(count)]


@dataclass(slots=True)
class Provisioning:
    """One folder. `down` gives the nodes that can be started, those to be started first in front;
    `start_worker` starts one and may take its time; `restart_driver` gets the driver back.
    `domains` are the failure domains of nodes."""

    directory: Path
    down: Callable[[], Sequence[str]]
    start_worker: Callable[[str], None]
    restart_driver: Callable[[], None]
    first_seconds: float = 10.0
    every_seconds: float = 6.0
    domains: Mapping[str, str] = field(default_factory=dict)
    _known: dict[str, Process] = field(default_factory=dict)
    _handled: set[str] = field(default_factory=set)
    _coming: list[float] = field(default_factory=list)
    _newest: float | None = None
    _starting: dict[str, threading.Thread] = field(default_factory=dict)
    _errors: list[BaseException] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look for requests."""
        (self.directory / REQUESTS).mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._look, name="provisioning", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more, and wait for the starts that are under way."""
        self._ending.set()
        for thread in (self._thread, *self._starting.values()):
            if thread is not None:
                thread.join(START_SECONDS_MAX)

    def check(self) -> None:
        """Raise what went wrong behind the owner's back."""
        if self._errors:
            raise self._errors[0]

    def publish(self, leaders: Mapping[str, int | None]) -> None:
        """Say which process each node has; of one that was killed, its last stays."""
        with self._lock:
            for node, process_id in leaders.items():
                found = None if process_id is None else process(process_id)
                if found is not None:
                    self._known[node] = found
            content = NodesFile(nodes=self._known, domains=dict(self.domains))
            replace(self.directory / NODES, content)

    def publish_driver(self, place: Place, process_id: int) -> None:
        """Say which process is the driver now; RunError when it has ended already."""
        found = process(process_id)
        if found is None:
            raise RunError(
                where=f"driver of {place}",
                what=f"process {process_id} has ended",
                remedy="see its log",
            )
        content = DriverFile(application=str(place), process=found)
        replace(self.directory / DRIVER, content)

    def step(self, now: float) -> None:
        """Take in new requests, and start what is due at `now` (seconds of any clock)."""
        for path in sorted((self.directory / REQUESTS).glob("*.json")):
            if path.name not in self._handled:
                self._handled.add(path.name)
                self._take(read(path, RequestFile), now)
        due = [moment for moment in self._coming if moment <= now]
        self._coming = [moment for moment in self._coming if moment > now]
        for _ in due:
            self._start_one()

    def _look(self) -> None:
        while not self._ending.wait(LOOK_SECONDS):
            try:
                self.step(time.monotonic())
            except Exception as error:
                self._errors.append(error)

    def _take(self, request: RequestFile | None, now: float) -> None:
        if request is None:
            return
        if request.what == "driver":
            self._run("driver", self.restart_driver)
            return
        moments = arrivals(now, self._newest, request.count, self.first_seconds, self.every_seconds)
        self._coming += moments
        self._newest = max(moments, default=self._newest)

    def _start_one(self) -> None:
        """Start the first node that is down and not on its way; none when all are there."""
        under_way = {name for name, thread in self._starting.items() if thread.is_alive()}
        for node in self.down():
            if node not in under_way:
                self._run(node, partial(self.start_worker, node))
                return

    def _run(self, name: str, action: Callable[[], None]) -> None:
        def run() -> None:
            try:
                action()
            except BaseException as error:
                self._errors.append(error)

        self._starting[name] = threading.Thread(target=run, name=f"start-{name}", daemon=True)
        self._starting[name].start()


# The coordinator's half: processes of this machine, through the cluster's folder.
#
# The cluster lives in another process, the demo's; `Provisioning` is its half. What the
# folder says runs is checked against the kernel's own list each time.

# a process that started so much later than a heartbeat was written is another one
SINCE_SECONDS = 2.0
# nodes of one failure die one after another: a plan made in between would count on some of them
SETTLE_SECONDS = 0.5


@dataclass(slots=True)
class LocalProvider:
    """The cluster of one folder."""

    directory: Path
    _asked: set[Path] = field(default_factory=set)
    _nodes: NodesFile | None = None
    _read: tuple[int, int] | None = None
    _gone: frozenset[str] = frozenset()
    _gone_since: float = 0.0
    _told: frozenset[str] = frozenset()

    def news(self) -> None:
        """Nothing tells of processes that end."""

    def request(self, place: Place, identity: str, request: NodeRequestOrder) -> None:
        """Leave a request in the folder, once."""
        path = request_path(self.directory, place, identity)
        if path in self._asked:
            return
        content = RequestFile(
            identity=identity,
            application=str(place),
            what="driver" if request.what == "driver" else "nodes",
            count=request.count,
            outside_domains=tuple(request.outside_domains),
            reason=str(request.reason),
        )
        create(path, content)
        self._asked.add(path)

    def gone_nodes(self, place: Place) -> frozenset[str]:
        """Nodes whose worker has ended, once no other has for a moment."""
        del place  # every application of the cluster has the same nodes
        nodes, now = self._present().nodes, time.monotonic()
        gone = frozenset(name for name, known in nodes.items() if is_gone(known))
        if gone != self._gone:
            self._gone, self._gone_since = gone, now
        if now - self._gone_since >= SETTLE_SECONDS:
            self._told = gone
        return self._told & gone

    def domains(self, place: Place) -> Mapping[str, str]:
        """As the folder says; every application of the cluster has the same nodes."""
        del place
        return self._present().domains

    def notices(self, place: Place, recorded: Mapping[str, LossNotice]) -> Mapping[str, LossNotice]:
        """None: workers of a local cluster go unannounced."""
        del place, recorded
        return {}

    def exists(self, place: Place) -> bool:
        """Whether the cluster's driver, if there is one, is its."""
        return self._published_gone(place) is False

    def driver_gone(self, place: Place, heartbeat: Heartbeat | None, generation: int) -> bool:
        """Whether no process that could be the newest driver is left, and one was known."""
        found = [self._published_gone(place)]
        if heartbeat is not None and heartbeat.generation >= generation:
            found.append(_is_gone(heartbeat))
        known = [gone for gone in found if gone is not None]
        return bool(known) and all(known)

    def _present(self) -> NodesFile:
        """What `nodes.json` says, read again when it was written since."""
        path = self.directory / NODES
        try:
            stat = path.stat()
        except FileNotFoundError:
            return NodesFile(nodes={})
        version = (stat.st_mtime_ns, stat.st_ino)
        if self._nodes is None or version != self._read:
            self._nodes = read(path, NodesFile) or NodesFile(nodes={})
            self._read = version
        return self._nodes

    def _published_gone(self, place: Place) -> bool | None:
        driver = read(self.directory / DRIVER, DriverFile)
        if driver is None or driver.application != str(place):
            return None
        return is_gone(driver.process)


def _is_gone(heartbeat: Heartbeat) -> bool | None:
    """Whether the driver of a heartbeat has ended; None where that cannot be known from here."""
    if not heartbeat.process_id:
        return None
    if heartbeat.host not in (socket.gethostname(), "localhost", "127.0.0.1"):
        return False
    started_at = process_sets.started_at(heartbeat.process_id)
    return started_at is None or started_at > heartbeat.since + SINCE_SECONDS
