"""One performance of a peer: prepares it, runs the scenario, writes what was seen.

    DIR/  where there was a failure, the report that `rekindle verify` checks
          run/  driver and machines: logs, checkpoints

Nodes come back through the provisioning that brings Rekindle's, which asks a second later, for it
has to notice the loss first. So does the coordinator of a peer that is protected. Called by `bench
recovery`, `bench peer` and `bench protect`.
"""

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rekindle import report
from rekindle.protocol.store_paths import Place
from rekindle_local import failure_schedule, local_provisioning
from rekindle_local.demo.demo_evidence import commit, machine
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.flights import flight_data
from rekindle_local.local_control_plane import LocalControlPlane
from rekindle_local.local_nodes import LocalNodes
from rekindle_local.local_provisioning import Provisioning
from rekindle_local.spark_cluster import LocalCluster
from rekindle_peers import peer_evidence, peer_starters
from rekindle_peers.peer_scenario import PeerScenario, PeerTrial
from rekindle_peers.peer_starters import NodeSize, PeerWork, WorkProtection
from rekindle_peers.peer_table import PEERS, Peer

PLACE = Place("bench", "flights")

Show = Callable[[dict[str, Any]], None]
# CPU seconds of a driver, of its nodes and of its control plane, by what they were for.
Meter = Callable[[DriverProcess, LocalNodes, LocalControlPlane | None], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class PeerOutcome:
    """What came of a trial: whether lag was bounded, and only then was there a failure; by query
    how fast it grew before (seconds per second); the rate that the slowest query kept up with, 0
    where it has put out nothing; the report of the failure; the cores used before it, by what for,
    where a `Meter` was given."""

    sustained: bool
    growths: dict[str, float]
    kept_up_rows_per_second: float
    quota_enforced: bool
    report: dict[str, Any] | None
    cpu_shares: Mapping[str, float] = field(default_factory=dict)


def perform(
    name: str, trial: PeerTrial, directory: Path, show: Show, meter: Meter | None = None
) -> PeerOutcome:
    """Run a peer of the table in an empty directory. Nothing is left running.

    Raises RunError when a phase takes too long, or the driver fails.
    """
    peer = PEERS[name]
    run_directory = directory / "run"
    run_directory.mkdir()
    files = flight_data.prepare(directory / "input")
    size = NodeSize(trial.nodes, trial.cpu_quota, trial.slots or peer.slots)
    machines = peer_starters.machines(peer.contender, size, run_directory / "cluster")
    up = {node.name for node in machines.nodes}
    provisioning = _provisioning(trial, machines, run_directory / "provisioning", up)
    with ExitStack() as stack:
        stack.enter_context(machines)
        control = _control_plane(machines, run_directory, stack) if peer.is_protected else None
        work = PeerWork(
            directory / "input",
            trial.names,
            machines,
            trial.trigger_seconds,
            None if control is None else WorkProtection(control.socket, PLACE, trial.priorities),
        )
        ask = _asking(provisioning) if control is None else _leave_to_coordinator
        driver = peer_starters.start(
            peer.contender, work, run_directory / "driver", trial.rows_per_second
        )
        scenario = PeerScenario(trial, peer, machines, driver, ask, provisioning.check, show, up)
        if meter is not None:
            scenario.cpu = partial(meter, driver, machines, control)
        try:
            provisioning.start()
            scenario.run()
        finally:
            provisioning.close()
            driver.end()
        enforced = machines.quota_enforced
    written = _write(directory, peer, scenario, files, enforced)
    shutil.rmtree(run_directory / "cluster" / "scratch", ignore_errors=True)
    return PeerOutcome(
        scenario.sustained,
        scenario.growths,
        scenario.kept_up_rows_per_second,
        enforced,
        written,
        scenario.cpu_shares,
    )


def _control_plane(
    machines: LocalNodes, run_directory: Path, stack: ExitStack
) -> LocalControlPlane:
    """A coordinator and a sidecar, which run until `stack` is left."""
    assert isinstance(machines, LocalCluster), "protection on other machines than Spark's"
    control = LocalControlPlane(
        directory=run_directory / "control",
        cluster=run_directory / "provisioning",
        socket=machines.temporary / "sidecar.sock",
        place=PLACE,
    )
    return stack.enter_context(control)


def _leave_to_coordinator(count: int) -> None:
    """The coordinator asks for as many."""


def _provisioning(
    trial: PeerTrial, machines: LocalNodes, directory: Path, up: set[str]
) -> Provisioning:
    order = failure_schedule.return_order([node.name for node in machines.nodes], trial.seed)

    def start_worker(node: str) -> None:
        machines.start_worker(node)
        up.add(node)

    return Provisioning(
        directory=directory,
        down=lambda: [name for name in order if machines.leaders()[name] is None],
        start_worker=start_worker,
        restart_driver=lambda: None,
        first_seconds=trial.first_return_seconds,
        every_seconds=trial.return_every_seconds,
    )


def _asking(provisioning: Provisioning) -> Callable[[int], None]:
    """Who asks for nodes as a coordinator does."""
    asked: list[int] = []

    def ask(count: int) -> None:
        asked.append(count)
        request = local_provisioning.RequestFile(
            identity=str(len(asked)),
            application=str(PLACE),
            what="nodes",
            count=count,
            outside_domains=(),
            reason="",
        )
        path = local_provisioning.request_path(provisioning.directory, PLACE, request.identity)
        local_provisioning.create(path, request)

    return ask


def _write(
    directory: Path, peer: Peer, scenario: PeerScenario, files: dict[str, Any], enforced: bool
) -> dict[str, Any] | None:
    """The report; None of a run that had no failure."""
    trial = scenario.trial
    if not scenario.sustained:
        return None
    run = peer_evidence.PeerRun(
        records=scenario.records,
        store=scenario.driver.store,
        failure_at=scenario.failure_at,
        files=files,
        priorities=trial.priorities,
        facts=_facts(peer, trial, enforced),
    )
    return peer_evidence.write(directory, run, peer.tables)


def _facts(peer: Peer, trial: PeerTrial, enforced: bool) -> report.RunFacts:
    return report.RunFacts(
        commit=commit(),
        seed=trial.seed,
        machine=machine(),
        strategy="restart",
        engine=peer.contender,
        buffering="none",
        ordering="none",
        nodes=trial.nodes,
        quota_enforced=enforced,
        cpu_quota=trial.cpu_quota,
    )
