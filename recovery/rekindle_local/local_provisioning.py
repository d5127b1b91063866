"""The cluster's half of a coordinator's provider: lists running nodes, and starts requested ones.

    cluster ──workers──► nodes.json ──► coordinator
    demo    ──driver───► driver.json       │
    callbacks ◄── at their moments ◄── requests/

Nodes that are asked for come one by one, as machines do: the first `first_seconds` after its
request, each other `every_seconds` after the one before. Which nodes are down, and how one is
started, is the owner's to say; it calls `check` to learn of a start that failed.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rekindle.model.errors import RunError
from rekindle.protocol.store_paths import Place
from rekindle_local import cluster_folder
from rekindle_local.cluster_folder import Process, RequestFile

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
        (self.directory / cluster_folder.REQUESTS).mkdir(parents=True, exist_ok=True)
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
                found = None if process_id is None else cluster_folder.process(process_id)
                if found is not None:
                    self._known[node] = found
            content = cluster_folder.NodesFile(nodes=self._known, domains=dict(self.domains))
            cluster_folder.replace(self.directory / cluster_folder.NODES, content)

    def publish_driver(self, place: Place, process_id: int) -> None:
        """Say which process is the driver now; RunError when it has ended already."""
        found = cluster_folder.process(process_id)
        if found is None:
            raise RunError(
                where=f"driver of {place}",
                what=f"process {process_id} has ended",
                remedy="see its log",
            )
        content = cluster_folder.DriverFile(application=str(place), process=found)
        cluster_folder.replace(self.directory / cluster_folder.DRIVER, content)

    def step(self, now: float) -> None:
        """Take in new requests, and start what is due at `now` (seconds of any clock)."""
        for path in sorted((self.directory / cluster_folder.REQUESTS).glob("*.json")):
            if path.name not in self._handled:
                self._handled.add(path.name)
                self._take(cluster_folder.read(path, RequestFile), now)
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
