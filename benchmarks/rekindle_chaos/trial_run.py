"""Runs one trial on the local cluster, to its end or its failure, and says how it went.

    driver live ──► faults, each at its time ──► all back ──► input read ──► finish ──► check

What a run leaves stays in its directory; nothing of it runs on. `commands` calls it.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

import rekindle
from rekindle.model.errors import RekindleError, RunError
from rekindle.protocol.store_paths import Place
from rekindle_chaos import (
    oracle,
    trial_brokers,
    trial_inputs,
    trial_pipeline,
    trial_topics,
    trials,
)
from rekindle_chaos.link_faults import ClusterLinks, LinkedCluster
from rekindle_chaos.oracle import Counts
from rekindle_chaos.sabotage import FOLDER, VARIABLE, Sabotage
from rekindle_chaos.trial_brokers import TrialBrokers
from rekindle_chaos.trial_faults import Harm
from rekindle_chaos.trial_topics import TopicProducer
from rekindle_chaos.trials import ChaosTrial
from rekindle_local import kafka_broker, stored_records
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.local_control_plane import LocalControlPlane
from rekindle_local.local_provisioning import Provisioning
from rekindle_local.spark_cluster import LocalCluster
from rekindle_spark.spark import jvm_build

POLL_SECONDS = 0.05
# what has come to an end sooner or later is no failure: the machine may be slow
LIMIT_SECONDS = 300.0
# Events of a driver after which something is run again.
NOT_CALM = ("confirmed", "host-failed", "rolled-back", "state-lost")


@dataclass(slots=True)
class TrialVerdict:
    """How a trial went. `failure` is empty when it ran to its end with every row right."""

    trial: ChaosTrial
    faults: dict[str, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    failure: str = ""


@dataclass(slots=True)
class TrialMachines:
    """A cluster for one trial after the other; `on_change` is the trial's that runs."""

    environment: dict[str, str]
    cluster: LocalCluster = field(init=False)
    links: ClusterLinks | None = None
    on_change: Callable[[], None] = lambda: None


@contextmanager
def machines(
    nodes: int, directory: Path, sabotage: Sabotage | None, *, links: bool
) -> Iterator[TrialMachines]:
    """A cluster whose processes are broken as `sabotage` says. `links`: between nodes they can be
    cut."""
    environment = {"PYTHONPATH": _python_path()}
    if sabotage is not None:
        environment[VARIABLE] = sabotage
    found = TrialMachines(environment)
    cluster = (LinkedCluster if links else LocalCluster)(
        nodes=nodes,
        directory=directory,
        cpu_quota=None,
        class_path=[Path(jvm_build.path())],
        environment=environment,
        on_change=lambda: found.on_change(),
    )
    found.cluster = cluster
    if isinstance(cluster, LinkedCluster):
        found.links = ClusterLinks(cluster)
    with cluster:
        yield found


def _python_path() -> str:
    """Drivers and hosts find the modules where this process has found them, and what hinders them
    before all others."""
    roots = [str(Path(str(package.__file__)).parents[1]) for package in (trials, rekindle)]
    return os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH"), *roots]))


def run(trial: ChaosTrial, machines: TrialMachines, directory: Path) -> TrialVerdict:
    """Run a trial in an empty directory."""
    verdict = TrialVerdict(trial)
    (directory / "trial.json").write_text(trials.serialize(trial))
    (directory / "traps").mkdir()
    trial_inputs.write(trial, directory / "input")
    driver = DriverProcess(directory)
    with ExitStack() as stack:
        stack.callback(driver.end)
        control, started = _control_plane(trial, machines, directory, driver, stack)
        brokers, producer = _topics(trial, directory, stack)
        harm = Harm(
            trial,
            machines.cluster,
            driver,
            control,
            directory / "traps",
            started,
            machines.links,
            brokers,
        )
        stack.callback(harm.end)
        try:
            _start(trial, machines, directory, driver, control)
            started()
            _Course(trial, driver, harm, producer).run()
            topics = {}
            if brokers is not None:
                topics = trial_topics.read(trial, directory, brokers.servers)
            verdict.counts = oracle.check(trial, directory, driver.store, topics)
            verdict.failure = "; ".join(verdict.counts.samples)
        except RekindleError as error:
            verdict.failure = str(error)
        verdict.faults = harm.done
    return verdict


def _topics(
    trial: ChaosTrial, directory: Path, stack: ExitStack
) -> tuple[TrialBrokers | None, TopicProducer | None]:
    """The brokers with the trial's topics, if it has some, and who writes their rows."""
    if not trial.topics:
        return None, None
    brokers = stack.enter_context(TrialBrokers(directory / "brokers"))
    (directory / trial_topics.SERVERS).write_text(brokers.servers)
    kafka_broker.make_topics(brokers.servers, trial.topics, trial_brokers.BROKERS)
    producer = TopicProducer(trial, directory / "input", brokers.servers)
    stack.callback(producer.close)
    return brokers, producer


def _control_plane(
    trial: ChaosTrial,
    machines: TrialMachines,
    directory: Path,
    driver: DriverProcess,
    stack: ExitStack,
) -> tuple[LocalControlPlane | None, Callable[[], None]]:
    """The control plane, if the trial has one, and what tells it of a driver that was started.

    Nodes and drivers come back by the trial's own clock, so what it asks for is not brought.
    """
    if not trial.processes:
        return None, lambda: None
    folder = directory / "cluster"
    provisioning = Provisioning(folder, lambda: (), lambda _: None, lambda: None)
    control = stack.enter_context(
        LocalControlPlane(
            directory=directory / "control",
            cluster=folder,
            socket=machines.cluster.temporary / "sidecar.sock",
            place=Place("chaos", f"seed-{trial.seed}"),
        )
    )
    machines.on_change = lambda: provisioning.publish(machines.cluster.leaders())
    stack.callback(setattr, machines, "on_change", lambda: None)
    machines.on_change()
    provisioning.start()
    stack.callback(provisioning.close)

    def started() -> None:
        assert driver.process is not None
        provisioning.publish_driver(control.place, driver.process.pid)

    return control, started


def _start(
    trial: ChaosTrial,
    machines: TrialMachines,
    directory: Path,
    driver: DriverProcess,
    control: LocalControlPlane | None,
) -> None:
    runtime = {
        "nodes_expected": trial.nodes,
        "rows_per_second": trial.rows_per_second,
        **trial.runtime,
    }
    settings = directory / "settings.yaml"
    settings.write_text(
        yaml.safe_dump({"version": 1, "policy": dict(trial.policy), "runtime": runtime})
    )
    driver.start(
        Path(trial_pipeline.__file__),
        machines.cluster.master_url,
        settings,
        machines.cluster.spark_options(),
        {trial_pipeline.DIRECTORY: str(directory), **machines.environment},
        None if control is None else (control.socket, control.place),
    )


@dataclass(slots=True)
class _Course:
    """Follows one driver from its start to its end."""

    trial: ChaosTrial
    driver: DriverProcess
    harm: Harm
    producer: TopicProducer | None = None
    seen: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Raises RunError where the driver fails, or does not come to its end."""
        self._await("all queries to run", lambda: "recovered" in self.seen)
        begin = time.monotonic()
        if self.producer is not None:
            self.producer.start()
        self._await("the end of the faults", lambda: self._harmed(time.monotonic() - begin))
        self._await("the whole input to be read", self._is_all_read)
        self.driver.request_finish()
        self._await("the end of the driver", lambda: self.driver.ended)

    def _harmed(self, now: float) -> bool:
        self.harm.proceed(now)
        return self.harm.is_over

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + LIMIT_SECONDS + self.trial.seconds
        while not condition():
            self._take_in(event["kind"] for event in self.driver.fresh_events())
            self._check()
            if time.monotonic() > limit:
                raise RunError(
                    where=f"seed {self.trial.seed}",
                    what=f"waited in vain for {what}",
                    remedy=f"see {self.driver.log} and {self.driver.events}",
                )
            time.sleep(POLL_SECONDS)

    def _take_in(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            self.seen.add(kind)
            if kind in NOT_CALM:
                self.harm.is_calm = False
            elif kind == "recovered":
                self.harm.is_calm = True

    def _check(self) -> None:
        if self.producer is not None:
            self.producer.check()
        try:
            self.driver.check()
        except RunError as error:
            if not self.harm.mends(error):
                raise

    def _is_all_read(self) -> bool:
        newest = stored_records.newest_cut(self.driver.store)
        assert newest is not None
        read = {name: end for name, (_, end) in newest["offsets"].items()}
        for name, stream in newest.get("streams", {}).items():
            read[name] = sum(one["end"] for one in stream["partitions"])
        return bool(read == {source.name: source.rows for source in self.trial.sources})
