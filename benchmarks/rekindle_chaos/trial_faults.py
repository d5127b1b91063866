"""Does the harm of a trial, each fault at its time, and ends what lasts.

    due(now) -> what is to be done now: begins of faults, and ends of those that last

A killed node is back when its fault ends, a killed driver at once, and one whose place was taken
must end by itself. Faults may overlap: who is down already stays so, who is back is left alone.
"""

import heapq
import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import msgspec

from rekindle.model.errors import RunError
from rekindle_chaos import file_damage, trial_generator
from rekindle_chaos.late_puts import LatePut
from rekindle_chaos.link_faults import ClusterLinks
from rekindle_chaos.trial_brokers import TrialBrokers
from rekindle_chaos.trial_pipeline import LOOKUP, RAISE
from rekindle_chaos.trials import ChaosTrial, Fault
from rekindle_local import process_sets, stored_records
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.local_control_plane import LocalControlPlane
from rekindle_local.spark_cluster import LocalCluster

SLOW_STOPPED_SECONDS, SLOW_RUNNING_SECONDS = 0.4, 0.1
RETRY_SECONDS = 1.0
NEED_A_DRIVER = ("store-away", "usurp-driver", "late-put", "lookup-away")
# Behind the input a fault that needs some calm waits no longer for it. A slow machine works for
# long on what has piled up, and a fault that never begins shows nothing.
CALM_SECONDS_MAX = 120.0
CLOCK_SECONDS = 3_600.0
AWAY_SECONDS = 4.0
HOST = b"rekindle_spark.executor.host"
OF_NODES = {
    kind: nodes
    for kind, (nodes, _) in trial_generator.known(processes=True, links=True, kafka=True).items()
}
START_AGAIN = "start again: checkpoint"

Action = Callable[[], None]


@dataclass(slots=True)
class Harm:
    """One trial's faults on its machines. `started` is called after another driver was started;
    `done` counts the faults that have begun, by kind. `is_calm` says that all queries run, as far
    as is known. Times are seconds since all was live."""

    trial: ChaosTrial
    cluster: LocalCluster
    driver: DriverProcess
    control: LocalControlPlane | None
    traps: Path
    started: Action
    links: ClusterLinks | None = None
    brokers: TrialBrokers | None = None
    done: dict[str, int] = field(default_factory=dict)
    is_calm: bool = True
    _lasts_until: float = 0.0
    _calm_by: float = 0.0
    _damaged: int = 0
    _generation_before: int = 0
    _coming: list[tuple[float, int, Action]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)
    _starts: list[threading.Thread] = field(default_factory=list)
    _superseded: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _errors: list[BaseException] = field(default_factory=list)
    _kills: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._calm_by = self.trial.seconds + CALM_SECONDS_MAX
        for fault in self.trial.faults:
            self._plan(fault.at, partial(self._begin, fault))

    @property
    def is_over(self) -> bool:
        """Whether all faults have ended, and all that was to come back is back."""
        starting = any(thread.is_alive() for thread in self._starts)
        stopped = all(older.poll() is not None for older in self._superseded)
        return not self._coming and not starting and stopped

    def proceed(self, now: float) -> None:
        """Do what is due. Raises what went wrong behind the caller's back."""
        while self._coming and self._coming[0][0] <= now:
            heapq.heappop(self._coming)[2]()
        if self._errors:
            raise self._errors[0]

    def _plan(self, at: float, action: Action) -> None:
        heapq.heappush(self._coming, (at, next(self._numbers), action))

    def _begin(self, fault: Fault) -> None:
        if fault.kind in NEED_A_DRIVER and not self._driver_works():
            self._put_off(fault)
            return
        if fault.kind in trial_generator.BROKER_KINDS and not self._are_brokers_whole():
            self._put_off(fault)
            return
        if fault.kind == "lookup-away":
            if self._is_quiet(fault.at):
                self._begin_to_leave_out(fault)
            elif fault.at < self._calm_by:
                self._put_off(fault)
            return
        # What is run again has to find what it has found before: it would be no dead letter.
        (self.traps / LOOKUP).unlink(missing_ok=True)
        end = fault.at + fault.seconds
        self._lasts_until = max(self._lasts_until, end)
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
        if OF_NODES[fault.kind]:
            self._harm_nodes(fault, [self.cluster.nodes[n].name for n in fault.nodes], end)
        else:
            self._harm_driver(fault, end)

    def _harm_nodes(self, fault: Fault, names: list[str], end: float) -> None:
        match fault.kind:
            case "kill-node" | "kill-nodes" | "kill-most":
                for name in names:
                    self._kills[name] = self._kills.get(name, 0) + 1
                self.cluster.kill(names)
                for place, name in enumerate(names):
                    self._plan(end + 1.5 * place, partial(self._start, name))
            case "silence-node" | "silence-nodes":
                for name in names:
                    self._stop(name)
                    self._plan(end, partial(self.cluster.continue_processes, name))
            case "slow-node":
                self._slow(names[0], fault.at, end)
            case "kill-host":
                self._kill_host(names[0])
            case "flip-byte":
                self._flip(fault, *names)
            case "cut-link":
                assert self.links is not None
                self.links.cut(names)
                self._plan(end, partial(self.links.join, names))
            case _:
                raise AssertionError(fault)

    def _harm_driver(self, fault: Fault, end: float) -> None:
        """Harm the driver, its store or what it runs, all nodes, the control plane, or a broker."""
        match fault.kind:
            case "kill-driver":
                self._again()
            case "usurp-driver":
                self._usurp(end)
            case "damage-record":
                self._damage_record()
            case "store-away":
                self.driver.store.rename(self._away)
                self._plan(end, self._bring_store_back)
            case "silence-driver":
                self._signal_driver(signal.SIGSTOP)
                self._plan(end, partial(self._signal_driver, signal.SIGCONT))
            case "raise":
                (self.traps / RAISE).touch()
            case "late-put":
                LatePut(
                    fault, self.driver, self.traps, self._plan, self._succeed, self._again
                ).begin()
            case "slow-store":
                self._set_trap("slow-store", "", end)
            case "clock":
                self._turn_clock(fault.what, end)
            case "driver-isolated":
                for node in self.cluster.nodes:
                    self._stop(node.name)
                    self._plan(end, partial(self.cluster.continue_processes, node.name))
            case "kill-broker" | "silence-broker":
                self._harm_broker(fault, int(fault.what) - 1, end)
            case _:
                kind, _, part = fault.kind.partition("-")
                self._harm_control_plane(kind, part, end)

    def _are_brokers_whole(self) -> bool:
        """Whether one of them may be lost: what is acknowledged is on two of three."""
        return self.brokers is not None and self.brokers.is_whole()

    def _harm_broker(self, fault: Fault, index: int, end: float) -> None:
        brokers = self.brokers
        assert brokers is not None
        if fault.kind == "kill-broker":
            brokers.kill(index)
            back = partial(brokers.start_again, index)
            self._plan(end, partial(self._in_background, back))
        else:
            brokers.stop(index)
            self._plan(end, partial(brokers.proceed, index))

    def _put_off(self, fault: Fault) -> None:
        later = msgspec.structs.replace(fault, at=fault.at + RETRY_SECONDS)
        self._plan(later.at, partial(self._begin, later))

    def _harm_control_plane(self, kind: str, part: str, end: float) -> None:
        control = self.control
        assert control is not None
        daemon = getattr(control, part)
        if kind == "kill":
            control.kill(daemon)
            start = control.start_coordinator if part == "coordinator" else control.start_sidecar
            self._plan(end, partial(self._in_background, start))
        else:
            control.stop(daemon)
            self._plan(end, partial(control.proceed, daemon))

    def _start(self, name: str) -> None:
        self._in_background(partial(self._start_worker, name))

    def _start_worker(self, name: str) -> None:
        """Start it if it is down; one that is killed as it starts has another start coming."""
        kills = self._kills.get(name)
        try:
            if self.cluster.leaders()[name] is None:
                self.cluster.start_worker(name)
        except RunError:
            if self._kills.get(name) == kills:
                raise

    def _stop(self, name: str) -> None:
        with suppress(RunError):  # one that is just being started may not stand still
            self.cluster.stop_processes(name)

    def _slow(self, name: str, begin: float, end: float) -> None:
        """Stands still most of the time: slow, and not silent."""
        at = begin
        while at < end:
            self._plan(at, partial(self._stop, name))
            self._plan(at + SLOW_STOPPED_SECONDS, partial(self.cluster.continue_processes, name))
            at += SLOW_STOPPED_SECONDS + SLOW_RUNNING_SECONDS
        self._plan(end + SLOW_STOPPED_SECONDS, partial(self.cluster.continue_processes, name))

    def _kill_host(self, name: str) -> None:
        found = [pid for pid in self.cluster.processes(name) if HOST in _command(pid)]
        process_sets.signal_all(found, signal.SIGKILL)

    def _driver_works(self) -> bool:
        """Whether the newest driver has written, and no other is left: one that starts would begin
        anew without its store, or take the place of the one that was to take its own."""
        if any(older.poll() is None for older in self._superseded):
            return False
        newest = stored_records.newest_cut(self.driver.store)
        return newest is not None and newest["generation"] > self._generation_before

    def _bring_store_back(self) -> None:
        with suppress(FileNotFoundError):
            self._away.rename(self.driver.store)

    def _start_driver(self) -> None:
        """Start another driver; it would begin anew in a store that is not there."""
        self._bring_store_back()
        generations = (self.driver.store / "generations").glob("*.json")
        self._generation_before = max((int(path.stem) for path in generations), default=0)
        self.is_calm = False
        self.driver.start_again()
        self.started()

    @property
    def _away(self) -> Path:
        return self.driver.store.with_name("store-away")

    def _again(self) -> None:
        """The driver dies, another one starts."""
        self.driver.kill()
        self._start_driver()

    def _succeed(self) -> None:
        """Another driver takes the place of one that stands still, which later ends by itself."""
        older = self.driver.process
        assert older is not None
        self._start_driver()
        self._superseded.append(older)

    def _usurp(self, end: float) -> None:
        self._signal_driver(signal.SIGSTOP)
        older = self.driver.process
        assert older is not None
        self._succeed()
        self._plan(end, partial(_signal_group, older.pid, signal.SIGCONT))

    def _damage_record(self) -> None:
        self.driver.kill()
        self._bring_store_back()
        file_damage.cut_checkpoint(self.driver.store)
        self._start_driver()

    def _flip(self, fault: Fault, node: str, reader: str) -> None:
        """Change bits of exchanged rows on a node, some of which another has to read again; or of
        a state from which the next driver is to start: it ends for that, and one after it goes on
        from the checkpoint before."""
        rng = random.Random(f"{self.trial.seed} {fault.at}")
        if fault.what == "exchange":
            file_damage.flip_exchange(self.cluster.disk(node), rng)
            self._kill_host(reader)
            return
        self.driver.kill()
        self._bring_store_back()
        self._damaged += file_damage.flip_state(self.driver.store, rng)
        self._start_driver()

    def mends(self, error: RunError) -> bool:
        """Whether a driver has ended as it is to end for a damage that was done, and another one
        has been started as its last words ask for."""
        if not self._damaged or START_AGAIN not in str(error):
            return False
        self._damaged -= 1
        self._start_driver()
        return True

    def _turn_clock(self, what: str, end: float) -> None:
        """Turn the clock of drivers by an hour, for one that runs or one that starts then."""
        way, _, start = what.partition("-")
        seconds = CLOCK_SECONDS if way == "ahead" else -CLOCK_SECONDS
        self._set_trap("clock", f"{seconds}", end)
        if start:
            self._again()

    def _set_trap(self, name: str, content: str, end: float) -> None:
        trap = self.traps / name
        trap.write_text(content)
        self._plan(end, partial(trap.unlink, missing_ok=True))

    def _begin_to_leave_out(self, fault: Fault) -> None:
        """Once what is looked up is back, what has been run since the last checkpoint is run again,
        of a node or of all."""
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
        end = fault.at + fault.seconds
        self._set_trap(LOOKUP, "", end)
        harm = Fault(end, "kill-driver")
        if fault.what == "node":
            harm = Fault(end, "kill-node", fault.nodes, AWAY_SECONDS)
        self._plan(end, partial(self._begin, harm))

    def _is_quiet(self, at: float) -> bool:
        """Whether nothing lasts, and all queries run: nothing is being run again."""
        return self.is_calm and at > self._lasts_until

    def _signal_driver(self, number: signal.Signals) -> None:
        assert self.driver.process is not None
        _signal_group(self.driver.process.pid, number)

    def _in_background(self, action: Action) -> None:
        def act() -> None:
            try:
                action()
            except BaseException as error:
                self._errors.append(error)

        self._starts.append(threading.Thread(target=act, daemon=True))
        self._starts[-1].start()

    def end(self) -> None:
        """Let everything that stands still go on, and bring back what is down."""
        self._bring_store_back()
        if self.links is not None:
            self.links.join_all()
        for node in self.cluster.nodes:
            self.cluster.continue_processes(node.name)
        self._signal_driver(signal.SIGCONT)
        for older in self._superseded:
            _signal_group(older.pid, signal.SIGKILL)
        for thread in self._starts:
            thread.join(timeout=60)
        for node in self.cluster.nodes:
            self._start_worker(node.name)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, number)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
