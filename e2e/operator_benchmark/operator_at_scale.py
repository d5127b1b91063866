"""The operator over a large cluster: what it costs at rest, how soon it plans after failures.

Real API server, real ZooKeeper, the real operator; nodes are leases, drivers are records, no pod
runs. Three failures, one after the other: drivers that find an executor gone; two nodes; and the
rest of a zone, that is a fifth of all nodes. Seconds count from the moment from which there was
nothing to wait for: a lease has expired two intervals after it was renewed last, and the operator
can say so two intervals after it has seen that. The simulated cluster runs on the same machine and
takes most of it, so what the operator has waited for a CPU is measured beside them.

The store is as the chart sets it up: TLS, a secret, a locked root and the rights of each namespace
on its own records.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from operator_benchmark import cluster_layout, operator_bars
from operator_benchmark.benchmark_drivers import BenchmarkDrivers
from operator_benchmark.cluster_layout import ClusterSize
from operator_benchmark.cluster_objects import Crowd
from operator_benchmark.operator_process import OperatorProcess
from rekindle.model.errors import RunError
from rekindle.protocol.store_paths import Place
from rekindle_bench import bar_results
from rekindle_local import process_sets
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import Connection, Encryption, connect
from testbed.control_plane import ControlPlane
from testbed.test_programs import CONTROLLER_MANAGER, SCHEDULER

DEFINITIONS = Path(__file__).parents[2] / "crds"
HOME = "default"
LEASE_INTERVALS = 2
HEAP_MEGABYTES = 1_024
STORE_HOST = "127.0.1.1"
SECRET_BYTES = 32
REST_SECONDS = 60.0
SETTLE_SECONDS = 10.0
WAIT_SECONDS_MAX = 300.0
# An operator that finds the records of a thousand applications gives each its namespace's rights.
REST_SECONDS_MAX = 900.0
REPORTS_MAX = 50
# a few have always just reported
WAITING_MAX = 10
SMALL_LOSS = 2
# The others would collect garbage and evict pods, which is not what is measured.
CONTROLLERS = "--controllers=serviceaccount-controller,node-lifecycle-controller"


@dataclass(frozen=True, slots=True)
class ScaleSettings:
    """Leases are renewed every `lease_seconds`: 10 with real kubelets, more where the machine
    cannot carry so many renewals, which the operator does not see either way. With `plain` the
    store has neither TLS nor rights."""

    size: ClusterSize
    lease_seconds: int = 10
    plain: bool = False
    rest_seconds: float = REST_SECONDS


@dataclass(frozen=True, slots=True)
class ScaleWorld:
    """All that runs."""

    settings: ScaleSettings
    crowd: Crowd
    drivers: BenchmarkDrivers
    operator: OperatorProcess
    console: Console

    def check(self) -> None:
        """Raises an error of the operator or of a driver."""
        self.operator.check()
        self.drivers.check()


def measure(settings: ScaleSettings, directory: Path, command: str) -> bool:
    """Measure it all, write `operator.json`; whether all bars are met."""
    console = Console(highlight=False)
    store = "a plain store" if settings.plain else "a store with TLS and rights"
    console.print(f"{settings.size}, leases of {settings.lease_seconds} s, {store}")
    with _world(settings, directory, console) as world:
        figures: dict[str, Any] = {
            "nodes": settings.size.nodes,
            "pods": settings.size.pods,
            "policies": settings.size.policies,
            "executors": settings.size.executors,
            "queries": settings.size.queries,
            "lease_seconds": settings.lease_seconds,
            "plain_store": settings.plain,
        }
        for step in (_rest, _reports, _small_loss, _large_loss):
            found = step(world)
            console.print(found)
            figures |= found
        figures["resident_megabytes_max"] = world.operator.resident_megabytes_max
        figures["renewals_late_seconds_max"] = world.crowd.late_seconds_max
    rows = operator_bars.operator_bars(figures, str(settings.size), command)
    bar_results.write(directory / "operator.json", figures, rows)
    for row in rows:
        print(f"bar {row.bar} value {row.value} met {'yes' if row.met else 'no'}")
    print(operator_bars.last_line(rows))
    return all(row.met for row in rows)


@contextmanager
def _world(settings: ScaleSettings, directory: Path, console: Console) -> Iterator[ScaleWorld]:
    lease = settings.lease_seconds
    with ExitStack() as stack:
        control_plane = stack.enter_context(
            ControlPlane(
                directory=directory / "control-plane",
                node_grace_seconds=5.0 * lease,
                arguments={CONTROLLER_MANAGER: [CONTROLLERS]},
            )
        )
        control_plane.kill(SCHEDULER)
        files = StoreFiles() if settings.plain else _store_files(control_plane, directory)
        zookeeper = stack.enter_context(
            LocalZookeeper(
                directory=directory / "zookeeper",
                heap_megabytes=HEAP_MEGABYTES,
                certificate=files.certificate,
            )
        )
        crowd = stack.enter_context(Crowd(control_plane, lease))
        connection = connect(
            zookeeper.connect_string,
            secret_file=files.secret,
            encryption=Encryption.of(files.authority),
            deadline_seconds=30.0,
        )
        stack.callback(connection.close)
        drivers = _populate(settings, crowd, connection, console)
        stack.callback(drivers.close)
        console.print("starting the operator")
        began = time.monotonic()
        operator = stack.enter_context(
            OperatorProcess(
                directory / "operator",
                *("--store", zookeeper.connect_string, "--namespace", HOME),
                *("--kubeconfig", str(control_plane.kubeconfig)),
                *files.options,
            )
        )
        world = ScaleWorld(settings, crowd, drivers, operator, console)
        _await_rest(world)
        console.print(f"at work after {time.monotonic() - began:.0f} s")
        yield world


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """What makes the store as secure as the chart does; all of it, or nothing."""

    secret: Path | None = None
    certificate: Path | None = None
    authority: Path | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """Of the operator."""
        if self.secret is None:
            return ()
        return (
            *("--store-secret-file", str(self.secret), "--store-ca-file", str(self.authority)),
            *("--namespace-credentials", "--lock-store-root"),
        )


def _store_files(control_plane: ControlPlane, directory: Path) -> StoreFiles:
    shown = control_plane.serving_certificate(STORE_HOST)
    folder = directory / "store-files"
    folder.mkdir(parents=True)
    secret, certificate = folder / "secret", folder / "server.pem"
    secret.write_text(secrets.token_urlsafe(SECRET_BYTES))
    parts = (Path(shown.key), Path(shown.certificate))
    certificate.write_bytes(b"".join(part.read_bytes() for part in parts))
    return StoreFiles(secret, certificate, control_plane.authority)


def _populate(
    settings: ScaleSettings, crowd: Crowd, connection: Connection, console: Console
) -> BenchmarkDrivers:
    size = settings.size
    sparks = cluster_layout.applications(size)
    crowd.define(yaml.safe_load(path.read_text()) for path in sorted(DEFINITIONS.glob("*.yaml")))
    steps: dict[str, Callable[[], None]] = {
        "nodes": partial(crowd.add_nodes, size),
        "policies": partial(crowd.add_resources, size),
        "applications' pods": partial(crowd.add_spark, sparks),
        "other pods": partial(crowd.add_others, size),
    }
    for what, fill in steps.items():
        began = time.monotonic()
        fill()
        console.print(f"{what}: {time.monotonic() - began:.0f} s")
    drivers = BenchmarkDrivers(connection, sparks, size.queries)
    drivers.write()
    drivers.start()
    return drivers


def _await_rest(world: ScaleWorld) -> None:
    """Until the operator leads, has read every application, and has written what it has to: where
    the store has rights also those of each application's records."""
    secured = 0 if world.settings.plain else world.settings.size.policies

    def rests() -> bool:
        found = world.operator.metrics()
        return (
            found.get("rekindle_operator_leader") == 1
            and found["rekindle_coordinator_applications"] == world.settings.size.policies
            and found["rekindle_coordinator_applications_waiting"] <= WAITING_MAX
            and not found["rekindle_operator_api_writes"]
            and len({line["application"] for line in world.operator.lines("records-secured")})
            >= secured
        )

    there = process_sets.await_condition(rests, limit_seconds=REST_SECONDS_MAX, interval_seconds=1)
    if not there:
        raise RunError(
            where="the operator", what="does not come to rest", remedy=f"see {world.operator.log}"
        )


def _rest(world: ScaleWorld) -> dict[str, Any]:
    """CPU and memory while drivers only report."""
    time.sleep(SETTLE_SECONDS)
    world.console.print(f"at rest for {world.settings.rest_seconds:.0f} s")
    began, cpu, reports = time.monotonic(), world.operator.cpu_seconds, world.drivers.reports
    time.sleep(world.settings.rest_seconds)
    seconds = time.monotonic() - began
    return {
        "cores_at_rest": (world.operator.cpu_seconds - cpu) / seconds,
        "reports_per_second": (world.drivers.reports - reports) / seconds,
        "resident_megabytes": world.operator.resident_megabytes,
    }


def _reports(world: ScaleWorld) -> dict[str, Any]:
    """Seconds from a report of a lost executor to the plan, one application after the other."""
    count = max(1, min(REPORTS_MAX, world.settings.size.policies // 4))
    world.console.print(f"{count} drivers lose an executor each")
    found = []
    for item in world.drivers.all[-count:]:
        began = world.drivers.lose_executor(item)
        planned = _await_plans(world, [item.place], began)
        found.append(planned[item.place] - began if planned else float("nan"))
    return {"report_to_plan_seconds": operator_bars.spread(found)}


def _small_loss(world: ScaleWorld) -> dict[str, Any]:
    """From the expiry of the leases of two nodes to a Recovery that names a plan."""
    lost = world.settings.size.lost[:SMALL_LOSS]
    world.console.print(f"losing {len(lost)} nodes")
    expired, hit = _lose(world, lost)
    place = hit[0]
    since = expired - world.settings.lease_seconds
    planned = _await_plans(world, [place], since)
    told = _await_recovery(world, place, since)
    suspected = _suspected_at(world, place, lost)
    return {
        "expiry_to_plan_seconds": planned.get(place, float("nan")) - expired,
        "expiry_to_recovery_seconds": told - expired,
        "expiry_seen_to_recovery_seconds": told - suspected,
        "recovery_waited_seconds": world.operator.waited_seconds(suspected, told),
    }


def _large_loss(world: ScaleWorld) -> dict[str, Any]:
    """From the expiry of the leases of all other nodes of a zone to the last plan."""
    time.sleep(SETTLE_SECONDS)
    lost = world.settings.size.lost[SMALL_LOSS:]
    world.console.print(f"losing {len(lost):,} nodes")
    cpu = world.operator.cpu_seconds
    expired, hit = _lose(world, lost)
    since = expired - world.settings.lease_seconds
    planned = _await_plans(world, hit, since)
    after = [at - expired for at in planned.values()]
    found = {
        "nodes_lost": len(lost),
        "applications_hit": len(hit),
        "applications_planned": len(planned),
        "first_plan_seconds": min(after, default=float("nan")),
        "all_plans_seconds": max(after, default=float("nan")),
        "all_plans_waited_seconds": world.operator.waited_seconds(
            expired, max(planned.values(), default=expired)
        ),
    }
    told = _await_all_told(world, hit, since)
    return {
        **found,
        "all_told_seconds": told - expired,
        "cpu_seconds_of_the_large_loss": world.operator.cpu_seconds - cpu,
    }


def _lose(world: ScaleWorld, nodes: tuple[str, ...]) -> tuple[float, list[Place]]:
    """When the last lease has expired (since 1970), and the applications that are hit."""
    hit = world.drivers.fall_silent(frozenset(nodes))
    renewed = world.crowd.lose(nodes).timestamp()
    return renewed + LEASE_INTERVALS * world.settings.lease_seconds, hit


def _await_plans(world: ScaleWorld, places: list[Place], since: float) -> dict[Place, float]:
    """The first plan of each since a moment; those that came within the limit."""
    wanted = {str(place): place for place in places}
    found: dict[Place, float] = {}

    def complete() -> bool:
        world.check()
        for line in world.operator.lines("plan"):
            place = wanted.get(line["application"])
            if place is not None and line["at"] >= since:
                found.setdefault(place, line["at"])
        return len(found) == len(wanted)

    interval = 0.1 if len(places) == 1 else 1.0
    process_sets.await_condition(
        complete, limit_seconds=WAIT_SECONDS_MAX, interval_seconds=interval
    )
    return found


def _await_recovery(world: ScaleWorld, place: Place, since: float) -> float:
    """When (since 1970) a Recovery of an application was seen with a plan made since a moment."""

    def told() -> bool:
        world.check()
        return str(place) in _told(world.crowd.recoveries(place.namespace), since)

    seen = process_sets.await_condition(told, limit_seconds=WAIT_SECONDS_MAX, interval_seconds=0.05)
    return time.time() if seen else float("nan")


def _suspected_at(world: ScaleWorld, place: Place, nodes: tuple[str, ...]) -> float:
    """When (since 1970) the last of these nodes was suspected: its lease had not
    changed for two intervals since the operator saw it change last."""
    moments = [
        datetime.fromisoformat(row["suspectedAt"]).timestamp()
        for item in world.crowd.recoveries(place.namespace)
        if item["spec"]["application"]["name"] == place.application
        for row in item.get("status", {}).get("lostNodes", ())
        if row["name"] in nodes and "suspectedAt" in row
    ]
    return max(moments, default=float("nan"))


def _await_all_told(world: ScaleWorld, places: list[Place], since: float) -> float:
    """The same of all of them."""

    def told() -> bool:
        world.check()
        return {str(place) for place in places} <= _told(world.crowd.recoveries(), since)

    seen = process_sets.await_condition(told, limit_seconds=WAIT_SECONDS_MAX, interval_seconds=2.0)
    return time.time() if seen else float("nan")


def _told(recoveries: list[cluster_layout.Body], since: float) -> set[str]:
    """The applications of those that tell of a plan made since a moment: of an earlier failure
    there are some already, and one that is not over goes on in the same Recovery."""
    return {
        f"{item['metadata']['namespace']}/{item['spec']['application']['name']}"
        for item in recoveries
        for plan in item.get("status", {}).get("plans", ())
        if datetime.fromisoformat(plan["at"]).timestamp() >= since
    }
