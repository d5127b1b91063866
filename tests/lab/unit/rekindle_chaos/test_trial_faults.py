"""Faults of a trial on machines that only note what is done to them: each begins, and is over."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from rekindle.model.errors import RunError
from rekindle_chaos import trial_generator
from rekindle_chaos.trial_faults import START_AGAIN, Harm
from rekindle_chaos.trial_pipeline import LOOKUP
from rekindle_chaos.trials import Fault
from rekindle_local.local_nodes import LocalNode
from rekindle_spark.store.checkpoint_store import CheckpointStore

KINDS = [
    (kind, what)
    for kind in trial_generator.known(processes=False, links=True, kafka=True)
    for what in dict.fromkeys(trial_generator.WHAT.get(kind, ("",)))
    if kind != "late-put"  # which waits for a driver of its own: test_hindrances
]
# Kinds after which nobody but the driver is started again, or stands still.
STARTS_A_DRIVER = {"kill-driver", "usurp-driver", "damage-record"}


@dataclass
class Cluster:
    """Four nodes; `done` is what was done to which of them."""

    disks: Path
    nodes: tuple[LocalNode, ...] = tuple(map(LocalNode, range(4)))
    done: list[tuple[str, str]] = field(default_factory=list)
    down: set[str] = field(default_factory=set)

    def kill(self, names: list[str]) -> None:
        self.done += [("kill", name) for name in names]
        self.down |= set(names)

    def start_worker(self, name: str) -> None:
        self.done.append(("start", name))
        self.down.discard(name)

    def leaders(self) -> dict[str, int | None]:
        return {node.name: None if node.name in self.down else 1 for node in self.nodes}

    def stop_processes(self, name: str) -> None:
        self.done.append(("stop", name))

    def continue_processes(self, name: str) -> None:
        self.done.append(("continue", name))

    def processes(self, name: str) -> list[int]:
        self.done.append(("processes", name))
        return []

    def disk(self, name: str) -> Path:
        return self.disks / name


@dataclass
class Driver:
    """A process that sleeps, on a store as drivers leave it."""

    store: Path
    starts: int = 0
    process: Any = None

    def start_again(self) -> None:
        self.starts += 1
        store = CheckpointStore(self.store)
        store.open(float(self.starts))
        store.log_offsets(self.starts, {"offsets": {}})
        content = {"bytes": {"a": 50}, "older": {}, "program": "p"}
        store.complete_checkpoint(self.starts, content)
        (self.store / f"checkpoints/{self.starts}").mkdir(exist_ok=True)
        (self.store / f"checkpoints/{self.starts}/a.state").write_bytes(bytes(50))
        self.process = subprocess.Popen(["sleep", "600"], start_new_session=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Links:
    """`done` is what was done to which link."""

    done: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def cut(self, names: list[str]) -> None:
        self.done.append(("cut", tuple(names)))

    def join(self, names: list[str]) -> None:
        self.done.append(("join", tuple(names)))


@dataclass
class Brokers:
    """Three, of which none is whole while one is harmed."""

    done: list[tuple[str, int]] = field(default_factory=list)

    def is_whole(self) -> bool:
        return len(self.done) % 2 == 0

    def kill(self, index: int) -> None:
        self.done.append(("kill", index))

    def start_again(self, index: int) -> None:
        self.done.append(("start", index))

    def stop(self, index: int) -> None:
        self.done.append(("stop", index))

    def proceed(self, index: int) -> None:
        self.done.append(("proceed", index))


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    found, processes = Driver(tmp_path / "store"), []
    for _ in range(3):
        found.start_again()
        processes.append(found.process)
        found.kill()
    found.start_again()
    yield found
    for process in [*processes, found.process]:
        process.kill()
        process.wait()


def harm_of(tmp_path: Path, driver: Driver, *faults: Fault) -> Harm:
    (tmp_path / "traps").mkdir()
    trial = msgspec.structs.replace(trial_generator.draw(1), faults=faults)
    cluster, links, brokers = Cluster(tmp_path), Links(), Brokers()
    for node in cluster.nodes:
        cluster.disk(node.name).mkdir()
        (cluster.disk(node.name) / "shuffle_1_2_0.data").write_bytes(bytes(50))
    traps = tmp_path / "traps"
    return Harm(trial, cluster, driver, None, traps, lambda: None, links, brokers)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "what"), KINDS)
def test_each_fault_begins_and_is_over_with_all_that_it_has_set(
    tmp_path: Path, driver: Driver, kind: str, what: str
) -> None:
    older = driver.process
    count, longest = trial_generator.known(processes=False, links=True, kafka=True)[kind]
    fault = Fault(1.0, kind, tuple(range(count)), min(longest, 3.0), what)
    harm = harm_of(tmp_path, driver, fault)
    harm.proceed(0.5)
    assert not harm.done
    harm.proceed(1.0)
    assert harm.done == {kind: 1}
    if older is not driver.process:  # it would end when it finds that it was superseded
        older.kill()
        older.wait()
    for now in range(2, 12):
        harm.proceed(float(now))
    for thread in harm._starts:
        thread.join(timeout=10)
    harm.proceed(12.0)
    assert harm.is_over
    assert driver.store.is_dir()
    left = {path.name for path in (tmp_path / "traps").iterdir()}
    assert left == ({"raise"} if kind == "raise" else set())
    cluster = cast(Cluster, harm.cluster)
    assert not cluster.down
    started = driver.starts - 4
    drivers = kind in STARTS_A_DRIVER or what in ("driver", "state") or what.endswith("start")
    assert started == int(drivers)


def test_links_are_cut_and_joined(tmp_path: Path, driver: Driver) -> None:
    harm = harm_of(tmp_path, driver, Fault(1.0, "cut-link", (0, 2), 3.0))
    harm.proceed(2.0)
    links = cast(Links, harm.links)
    assert links.done == [("cut", ("127.0.0.2", "127.0.0.4"))]
    harm.proceed(4.0)
    assert links.done[1:] == [("join", ("127.0.0.2", "127.0.0.4"))]


def test_a_second_broker_is_harmed_once_the_first_one_is_back(
    tmp_path: Path, driver: Driver
) -> None:
    killed = Fault(1.0, "kill-broker", (), 3.0, "2")
    harm = harm_of(tmp_path, driver, killed, Fault(2.0, "silence-broker", (), 2.0, "3"))
    brokers = cast(Brokers, harm.brokers)
    harm.proceed(3.5)
    assert brokers.done == [("kill", 1)]
    harm.proceed(4.0)
    for thread in harm._starts:
        thread.join(timeout=10)
    for now in range(5, 9):
        harm.proceed(float(now))
    assert brokers.done == [("kill", 1), ("start", 1), ("stop", 2), ("proceed", 2)]
    assert harm.done == {"kill-broker": 1, "silence-broker": 1}


def test_exchanged_rows_of_one_node_are_damaged_and_the_host_of_another_dies(
    tmp_path: Path, driver: Driver
) -> None:
    harm = harm_of(tmp_path, driver, Fault(1.0, "flip-byte", (1, 3), 0.0, "exchange"))
    harm.proceed(2.0)
    cluster = cast(Cluster, harm.cluster)
    files = sorted(tmp_path.glob("127.0.0.*/shuffle_1_2_0.data"))
    assert [path.parent.name for path in files if any(path.read_bytes())] == ["127.0.0.3"]
    assert cluster.done == [("processes", "127.0.0.5")]


def test_a_driver_is_started_again_once_for_a_state_that_was_damaged(
    tmp_path: Path, driver: Driver
) -> None:
    ended = RunError(where="the driver", what=f"ended: {START_AGAIN} 2", remedy="see")
    harm = harm_of(tmp_path, driver, Fault(1.0, "flip-byte", (1, 3), 0.0, "state"))
    assert not harm.mends(ended)
    harm.proceed(2.0)
    assert any(any(path.read_bytes()) for path in driver.store.glob("checkpoints/*/a.state"))
    starts = driver.starts
    assert not harm.mends(RunError(where="the driver", what="ended", remedy="see"))
    assert harm.mends(ended)
    assert driver.starts == starts + 1
    assert not harm.mends(ended)


def test_what_is_looked_up_goes_away_only_where_nothing_is_run_again(
    tmp_path: Path, driver: Driver
) -> None:
    away = Fault(1.0, "lookup-away", (0,), 5.0, "node")
    harm = harm_of(tmp_path, driver, away, Fault(4.0, "kill-node", (1,), 1.0))
    harm.is_calm = False
    harm.proceed(1.5)
    assert not harm.done
    harm.is_calm = True
    harm.proceed(2.5)
    assert (tmp_path / "traps" / LOOKUP).exists()
    harm.proceed(4.0)
    assert not (tmp_path / "traps" / LOOKUP).exists(), "what is run again finds it"
    assert harm.done == {"lookup-away": 1, "kill-node": 1}
