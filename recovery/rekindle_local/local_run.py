"""Runs a user's pipeline on a cluster of this machine: `rekindle run FILE.py --local N`.

ZooKeeper, coordinator, sidecar, Spark's master and workers, and the driver are processes of their
own, as they would be elsewhere. All of them and all that they wrote but for the checkpoint store
are gone at the end. `rekindle_cli.commands.run` finds this by an entry point.

    start ─► wait for nodes ─► running ─(kill_after)─► nodes killed ─► they come back ─► ...
    first Ctrl-C: the driver ends at a savepoint; second Ctrl-C or SIGTERM, and any before the
    driver has opened its store: everything ends at once
"""

import errno
import os
import random
import re
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from rekindle.model.errors import InputError, RunError
from rekindle.model.sentences import counted
from rekindle.protocol.store_paths import Place
from rekindle_cli import cli_options, run_view
from rekindle_cli.jsonl_tail import EventFile
from rekindle_cli.local_request import LocalRequest
from rekindle_cli.run_view import RunDisplay
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.local_control_plane import LocalControlPlane
from rekindle_local.local_provisioning import Provisioning
from rekindle_local.port_reservation import hold_port
from rekindle_local.spark_cluster import MASTER_HOST, LocalCluster
from rekindle_spark.spark import jvm_build
from rekindle_spark.store.checkpoint_store import SAVEPOINT_REQUEST
from rekindle_spark.user_code import print_forwarding
from rekindle_store import store_files

POLL_SECONDS = 0.1
EXECUTOR_MEGABYTES = 512
# What a node and everything beside the nodes take, measured with pipelines of a few small states.
NODE_MEBIBYTES, OTHERS_MEBIBYTES = 900, 1_600
# Ports of the loopback host that a node and everything beside the nodes may hold at once.
NODE_PORTS, OTHERS_PORTS = 8, 32
# For logs, shuffle files and libraries that are unpacked; they are gone when the run ends.
TEMPORARY_MEBIBYTES = 200
# A node that was killed comes back like one that a cloud brings.
FIRST_SECONDS, EVERY_SECONDS = 8.0, 5.0
# What the coordinator says and the driver does not.
OF_COORDINATOR = ("coordinator-started", "plan", "nodes-requested")


def perform(request: LocalRequest, view: RunDisplay) -> None:
    """Run the pipeline to its end, or until the user interrupts it twice.

    Raises `InputError` before anything is started, `RunError` when the run fails.
    """
    check_memory(request.nodes)
    check_ports(request.nodes)
    check_temporary()
    with held(request.store):
        _perform(request, view)


def _perform(request: LocalRequest, view: RunDisplay) -> None:
    directory = Path(tempfile.mkdtemp(prefix="rekindle-run-"))
    try:
        with cli_options.interruptible(), _Run.open(request, view, directory) as run:
            run.follow()
    except RunError:
        view.say(f"what all processes printed is kept in {directory}")
        raise
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def held(store: str) -> Iterator[None]:
    """Keep other local runs off a store that is a folder: the newer one would fence the older.

    Names of sockets stand for the folder, which need not be there yet. The kernel frees them when
    this process ends, however it ends; where it gives none, nobody is kept off. Raises InputError
    while another run has one.
    """
    folder = store_files.folder(store)
    with ExitStack() as names:
        for digest in [] if folder is None else _digests(folder):
            try:
                name = names.enter_context(socket.socket(socket.AF_UNIX))
                name.bind(f"\0rekindle-local-run-{digest}")
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    continue
                raise InputError(
                    where=f"checkpoint store {store}",
                    what="another `rekindle run --local` runs on it",
                    remedy="end that one with Ctrl-C, or name another place with --store",
                ) from error
        yield


def _digests(folder: Path) -> Iterator[str]:
    """What stands for a folder: each folder above it that is there, and the way from there. The
    next one alone would be another once the folder is made, and paths alone are the same in
    containers that share a network."""
    real = Path(os.path.realpath(folder))
    for place in reversed((real, *real.parents)):
        try:
            found = place.stat()
        except OSError:
            return
        way = os.fsencode(f"{found.st_dev} {found.st_ino} {real.relative_to(place)}")
        yield blake2b(way, digest_size=16).hexdigest()


def check_memory(nodes: int) -> None:
    """Refuse more nodes than the free memory of this machine holds."""
    needed = OTHERS_MEBIBYTES + nodes * NODE_MEBIBYTES
    free = free_mebibytes()
    if free is not None and needed > free:
        fitting = max(0, int(free - OTHERS_MEBIBYTES) // NODE_MEBIBYTES)
        remedy = f"give --local {fitting}" if fitting else "free some memory"
        raise InputError(
            where=f"--local {nodes}",
            what=f"needs about {needed / 1024:.1f} GiB of memory, and {free / 1024:.1f} are free",
            remedy=remedy,
        )


def check_ports(nodes: int) -> None:
    """Refuse more nodes than this machine has free ports for.

    A daemon that finds no free port looks for one until its start takes too long.
    """
    needed = OTHERS_PORTS + nodes * NODE_PORTS
    with ExitStack() as ports:
        for number in range(needed):
            try:
                ports.enter_context(hold_port(MASTER_HOST))
            except OSError as error:
                remedy = "end what holds ports, or widen /proc/sys/net/ipv4/ip_local_port_range"
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    remedy = "raise the limit of open files with ulimit -n"
                raise InputError(
                    where=MASTER_HOST,
                    what=f"{number} ports can be opened, about {needed} are needed "
                    f"({error.strerror})",
                    remedy=remedy,
                ) from error


def check_temporary() -> None:
    """Refuse a folder for temporary files that is nearly full: processes would wait for room."""
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise InputError(
            where="temporary folder",
            what=str(error.strerror),
            remedy="make room in one of them, or let TMPDIR name a folder that may be written",
        ) from error
    free = shutil.disk_usage(folder).free >> 20
    if free < TEMPORARY_MEBIBYTES:
        raise InputError(
            where=f"temporary folder {folder}",
            what=f"has {free} MiB of room, and a run needs about {TEMPORARY_MEBIBYTES}",
            remedy="make room there, or let TMPDIR name another folder",
        )


def free_mebibytes() -> float | None:
    """Return the memory that processes may still take; None where the kernel does not say."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else None


@dataclass(slots=True)
class _Run:
    """The processes of one run, and what has become of them."""

    request: LocalRequest
    view: RunDisplay
    cluster: LocalCluster
    control: LocalControlPlane
    provisioning: Provisioning
    driver: DriverProcess
    log: EventFile
    interrupts: int = 0
    asked: bool = False
    has_store: bool = False
    recovered_at: float | None = None
    killed: bool = False
    _rng: random.Random = field(default_factory=lambda: random.Random(1))

    @classmethod
    @contextmanager
    def open(cls, request: LocalRequest, view: RunDisplay, directory: Path) -> Iterator["_Run"]:
        """Start everything; end it in the end, whatever happens."""
        place = Place("local", application_name(request.pipeline))
        driver = DriverProcess(directory, place=request.store)
        cluster = LocalCluster(
            nodes=request.nodes,
            cpu_quota=None,
            directory=directory / "cluster",
            class_path=[Path(jvm_build.path())],
            on_change=lambda: provisioning.publish(cluster.leaders()),
        )
        provisioning = _provisioning(cluster, driver, directory, place)
        nodes = counted(request.nodes, "node")
        view.say(f"starting {nodes}, ZooKeeper and a coordinator on this machine")
        with ExitStack() as stack:
            stack.callback(view.stop)
            view.start()
            with run_view.repeated(view.refresh):
                view.await_next(f"Spark's master and {nodes}")
                stack.enter_context(cluster)
                view.await_next("ZooKeeper, the coordinator and the sidecar")
                control = stack.enter_context(
                    LocalControlPlane(
                        directory=directory / "control",
                        cluster=directory / "provisioning",
                        socket=cluster.temporary / "sidecar.sock",
                        place=place,
                        console=request.console,
                    )
                )
            address = control.zookeeper.connect_string
            view.note("see more with", f"rekindle status {place} --zookeeper {address}")
            run = cls(request, view, cluster, control, provisioning, driver, EventFile(driver.log))
            stack.callback(driver.end)
            stack.callback(provisioning.close)
            stack.callback(view.stop)  # before all of that ends, which takes a while
            stack.enter_context(_interrupts(run.interrupt))
            provisioning.start()
            view.await_next("the driver, which starts Spark")
            run.start_driver(_settings_file(request, directory), place)
            yield run

    def start_driver(self, settings: Path, place: Place) -> None:
        """Start the driver of the pipeline, and say to the coordinator which process it is."""
        conf = {**self.cluster.spark_options(EXECUTOR_MEGABYTES), **self.request.conf}
        self.driver.start(
            Path(self.request.pipeline),
            self.cluster.master_url,
            settings,
            conf,
            sidecar=(self.control.socket, place),
        )
        assert self.driver.process is not None
        self.provisioning.publish_driver(place, self.driver.process.pid)

    def follow(self) -> None:
        """Show what happens, and kill nodes at their moment, until the driver has ended."""
        while not self.driver.ended:
            self._take_events()
            self._kill_when_due()
            self.provisioning.check()
            self.view.refresh()
            # Until the driver has its store there is nothing that a savepoint could keep.
            if self.interrupts > 1 or (self.interrupts and not self.has_store):
                raise KeyboardInterrupt
            if self.interrupts and not self.asked:
                self._end_in_order()
            time.sleep(POLL_SECONDS)
        self._take_events()
        self.driver.check()

    def interrupt(self) -> None:
        """Count a Ctrl-C; `follow` acts on it."""
        self.interrupts += 1

    def _end_in_order(self) -> None:
        self.asked = True
        run_view.ask_to_end(
            lambda: store_files.at(self.request.store).put({SAVEPOINT_REQUEST: b""}), self.view
        )

    def _take_events(self) -> None:
        for record in self.driver.fresh_events():
            if not self.has_store:
                self.view.await_next(run_view.HOSTS)
            self.has_store = True
            if record["kind"] == "recovered" and self.recovered_at is None:
                self.recovered_at = time.monotonic()
            self.view.show(record)
        for record in self.control.events.fresh():
            if record["kind"] in OF_COORDINATOR:
                self.view.show(record)
        self._show_prints()

    def _show_prints(self) -> None:
        """Show what users' functions print: the log is gone once the run is over."""
        for line in self.log.fresh_lines():
            if line.startswith(print_forwarding.PREFIX.encode()):
                self.view.say(line.decode(errors="replace"))

    def _kill_when_due(self) -> None:
        wanted = self.request.kill_after_seconds
        if wanted is None or self.killed or self.recovered_at is None:
            return
        if time.monotonic() - self.recovered_at < wanted:
            return
        names = [node.name for node in self.cluster.nodes]
        victims = self._rng.sample(names, self.request.kill)
        self.killed = True
        self.view.say(
            f"killing {len(victims)} of {counted(len(names), 'node')}: {', '.join(sorted(victims))}"
        )
        self.cluster.kill(victims)


def application_name(pipeline: str) -> str:
    """Return the name of an application for a pipeline file: its stem, with safe characters."""
    stem = Path(pipeline.partition(":")[0]).stem
    return re.sub(r"[^a-z0-9-]+", "-", stem.lower()).strip("-")[:50] or "pipeline"


def _provisioning(
    cluster: LocalCluster, driver: DriverProcess, directory: Path, place: Place
) -> Provisioning:
    """What brings back nodes, and the driver, when the coordinator asks for them."""

    def restart_driver() -> None:
        driver.start_again()
        assert driver.process is not None
        provisioning.publish_driver(place, driver.process.pid)

    provisioning = Provisioning(
        directory=directory / "provisioning",
        down=lambda: [name for name, leader in cluster.leaders().items() if leader is None],
        start_worker=cluster.start_worker,
        restart_driver=restart_driver,
        first_seconds=FIRST_SECONDS,
        every_seconds=EVERY_SECONDS,
    )
    return provisioning


def _settings_file(request: LocalRequest, directory: Path) -> Path:
    """Write the settings with which the driver runs: the user's, and the size of this cluster.

    Where the user says nothing, a node has its share of this machine's CPU.
    """
    said: dict[str, Any] = {}
    if request.settings is not None:
        said = yaml.safe_load(request.settings.read_text(encoding="utf-8")) or {}
    share = 100.0 * (os.cpu_count() or 1) / request.nodes
    runtime = {"node_cpu_percent": max(1.0, share), **(said.get("runtime") or {})}
    runtime["nodes_expected"] = request.nodes
    path = directory / "settings.yaml"
    path.write_text(yaml.safe_dump({"version": 1, **said, "runtime": runtime}, sort_keys=False))
    return path


@contextmanager
def _interrupts(take: Callable[[], None]) -> Iterator[None]:
    """Inside, SIGINT calls `take` in place of raising KeyboardInterrupt."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        take()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
