"""Scenarios of Structured Streaming: the same loss with Rekindle and without, and their ratio.

    with Rekindle ─► cluster ─► applications ─► eight of ten nodes lost ─► back ─► outages ┐ ratio,
    without       ─► cluster ─► the same                                ─► back ─► outages ┘ bar

`applications` and `displacement` have six unchanged SparkApplications, under a policy that recovers
whole applications. `protected-queries` has one application, whose queries are protected by one
import. `file_streams` says how long each stream was unavailable.
"""

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from rekindle.model.errors import RunError
from rekindle_bench import protect_benchmark
from rekindle_local.demo import machine_load
from rekindle_local.demo.machine_load import Counters
from rekindle_local.spark_distribution import SMALL_NODE_OPTIONS
from scenarios import file_streams, protection_cost
from scenarios.cloud_autoscaler import Autoscaler
from scenarios.deployment import EXECUTOR, NAMESPACE, Site
from scenarios.file_streams import FileStream, Interval, StreamWriter
from scenarios.flights_application import EXAMPLE_IMAGE, EXAMPLE_NAME, EXAMPLES, ROLE, SHARED
from scenarios.pod_logs import PodLogs
from scenarios.run_recorder import RunRecorder
from scenarios.scenario_run import ClusterRun

VERSION: Final = 1  # of applications.json, and of figures.json
NODES, NODES_MIN, NODES_MAX = 10, 4, 100
LOST_SHARE = 0.8
DRIVERS = 3
# Two executors of an application to a node.
NODE = replace(EXECUTOR, memory_mib=2_048)
EXECUTOR_CPU = "140m"
EXECUTORS_PER_NODE = 2
# Rows a second for each executor: of an application, and of each of the 15 queries of one.
APPLICATION_ROWS, QUERY_ROWS = 60, 5
PROGRAM = Path(__file__).with_name("stream_program.py")
WARM_SECONDS, BATCHES_WARM = 60.0, 3
# Two trigger intervals of the program.
WAIT_SECONDS_WARM = 20.0
SEED = 1
PLURAL = "sparkapplications"
WITH, WITHOUT = "with-rekindle", "without-rekindle"
RATIO = "weighted unavailability with Rekindle over without"
COST = "CPU of protection before the loss, of what the application uses"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """What runs: `groups` are SparkApplications (name -> the priorities of its queries), with so
    many `executors` each. Each query has `rows_per_second`, and `tasks` a batch. `protected`: with
    Rekindle queries are protected by their program."""

    groups: Mapping[str, Mapping[str, int]]
    executors: int
    rows_per_second: int
    tasks: int
    protected: bool = False

    @property
    def priorities(self) -> dict[str, int]:
        """Of all queries, by name."""
        return {name: rank for group in self.groups.values() for name, rank in group.items()}


@dataclass(frozen=True, slots=True)
class ApplicationScenario:
    """`load` makes what runs on a number of nodes; `ratio_max` is the bar."""

    lost: str
    load: Callable[[int], Load]
    ratio_max: float
    class_spec: Mapping[str, Any] = field(default_factory=dict)


def six_applications(nodes: int) -> Load:
    """Six of them: on nine tenths of the room of ten nodes, on no more of other numbers. Each
    takes a third of the CPU of its executors or more, so that a third of these is not enough."""
    groups = {f"stream-{rank}": {f"stream-{rank}": rank} for rank in (10, 8, 5, 3, 2, 1)}
    room = EXECUTORS_PER_NODE * nodes
    executors = max(1, room * 9 // 10 // len(groups))
    return Load(groups, executors, APPLICATION_ROWS * executors, executors)


def fifteen_queries(nodes: int) -> Load:
    """One application, with an executor on each node. Its queries take half of their CPU."""
    queries = {f"query-{number:02}": 1 + number % 10 for number in range(15)}
    return Load({"queries": queries}, nodes, QUERY_ROWS * nodes, 2, protected=True)


SCENARIOS: Final[Mapping[str, ApplicationScenario]] = {
    "applications": ApplicationScenario(
        "Eight of ten executors' nodes of six unchanged Structured Streaming applications",
        six_applications,
        ratio_max=0.5,
    ),
    "displacement": ApplicationScenario(
        "The same, where less important applications make room",
        six_applications,
        ratio_max=0.35,
        class_spec={"displacement": "LessImportant"},
    ),
    "protected-queries": ApplicationScenario(
        "Eight of ten executors' nodes of one application with 15 protected queries",
        fifteen_queries,
        ratio_max=0.5,
    ),
}


def perform(name: str, directory: Path, nodes: int = NODES) -> str:
    """Run a scenario with Rekindle, then without; what to say of both.

    Writes applications.json and figures.json into an empty folder. Raises `RunError` when something
    that it asserts is not true.
    """
    scenario = SCENARIOS[name]
    load, seen, found = scenario.load(nodes), dict[str, Outcome](), dict[str, Object]()
    for way in (WITH, WITHOUT):
        folder = directory / way
        folder.mkdir()
        seen[way] = _Run(scenario, load, folder, nodes, way == WITH).perform()
        found = compare(seen, load.priorities)
        _save(directory / "applications.json", {"nodes": nodes, "runs": found})
    told = figures(scenario, found)
    _save(directory / "figures.json", {"figures": told})
    return verdict(scenario, told, found)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: nodes that were `lost`, the longest that a file may wait by how it was
    before, moments of the failure and of the end, when each stream's `files` were written and
    committed, how much of the machine's CPU was in use before the failure and after it (shares
    of 1; None where it does not say), and what cores the application used before the failure, by
    what for. The last two are empty where the nodes are not on this machine."""

    lost: Sequence[str]
    lag_seconds_max: float
    since: float
    until: float
    files: Mapping[str, Sequence[Interval]]
    busy: Mapping[str, float | None] = field(default_factory=dict)
    cores: Mapping[str, float] = field(default_factory=dict)


def compare(seen: Mapping[str, Outcome], priorities: Mapping[str, float]) -> dict[str, Object]:
    """How long streams were unavailable in each run: by the same lag, the larger one, in all."""
    lag_max = max(one.lag_seconds_max for one in seen.values())
    return {way: _told(one, priorities, lag_max) for way, one in seen.items()}


def _told(run: Outcome, priorities: Mapping[str, float], lag_max: float) -> Object:
    unavailable = {
        name: file_streams.outages(files, lag_max, run.since, run.until)
        for name, files in run.files.items()
    }
    return {
        "lost": list(run.lost),
        "lag_seconds_max": round(lag_max, 1),
        "own_lag_seconds_max": round(run.lag_seconds_max, 1),
        "seconds": round(run.until - run.since, 1),
        "busy_percent": {
            when: None if share is None else round(100 * share) for when, share in run.busy.items()
        },
        "cores": {what: round(number, 4) for what, number in run.cores.items()},
        "weighted_unavailable_seconds": file_streams.weighted_unavailable_seconds(
            unavailable, priorities
        ),
        "unavailable_seconds": {
            name: round(sum(end - begin for begin, end in intervals), 1)
            for name, intervals in unavailable.items()
        },
    }


def verdict(
    scenario: ApplicationScenario, told: Mapping[str, Object], runs: Mapping[str, Object]
) -> str:
    """The ratio, whether it is within its bar, its parts, and how busy the machine was: one that
    has no CPU left is what limits both runs."""
    ratio = told[RATIO]["value"]
    met = "met" if ratio <= scenario.ratio_max else "missed"
    parts = ", ".join(f"{way} {_told_of(run)}" for way, run in runs.items())
    if COST not in told and any(run["cores"] for run in runs.values()):
        parts += "; the CPU that protection costs was not measured"
    return f"{RATIO}: {ratio:.3f}, bar {scenario.ratio_max:g}, {met}; {parts}"


def _told_of(run: Object) -> str:
    seconds = f"{run['weighted_unavailable_seconds']:.1f} s"
    busy = [f"{when} {share} %" for when, share in run["busy_percent"].items() if share is not None]
    return f"{seconds} (CPU in use {', '.join(busy)})" if busy else seconds


def figures(scenario: ApplicationScenario, runs: Mapping[str, Object]) -> dict[str, Object]:
    """The ratio with its bar, and both of its parts in seconds; of protected queries what they cost
    as well, where it was measured."""
    ours, theirs = (float(runs[way]["weighted_unavailable_seconds"]) for way in (WITH, WITHOUT))
    if not theirs:
        raise RunError(
            where="the scenario",
            what="without Rekindle no stream was unavailable, so there is no ratio",
            remedy="see applications.json; the machine may have too much room for this load",
        )
    found: dict[str, Object] = {
        RATIO: {"value": round(ours / theirs, 3), "unit": "", "bar": scenario.ratio_max},
        f"weighted unavailability {WITH}": {"value": round(ours, 1), "unit": "s", "bar": None},
        f"weighted unavailability {WITHOUT}": {"value": round(theirs, 1), "unit": "s", "bar": None},
    }
    protected, plain = (runs[way]["cores"] for way in (WITH, WITHOUT))
    if plain and protected and protected["all"]:
        cost = protect_benchmark.cost_percent(protected, plain)
        bar = protect_benchmark.COST_PERCENT_MAX
        found[COST] = {"value": round(cost, 2), "unit": "%", "bar": bar}
    return found


def application(name: str, load: Load, image: str, *, protect: bool) -> Object:
    """The SparkApplication of a group: that of the example, with another program and other sizes.
    Without `protect` nothing in it is Rekindle's."""
    text = (EXAMPLES / "kubeflow.yaml").read_text(encoding="utf-8")
    body: Object = yaml.safe_load(text.replace(EXAMPLE_NAME, name).replace(EXAMPLE_IMAGE, image))
    spec = body["spec"]
    queries = [f"{query}={rank}" for query, rank in load.groups[name].items()]
    spec["mainApplicationFile"] = f"local://{SHARED / 'program' / PROGRAM.name}"
    spec["arguments"] = [
        str(SHARED),
        str(load.tasks),
        *queries,
        *(["--protect"] if protect else []),
    ]
    spec["imagePullPolicy"] = "Never"
    spec["volumes"] = [one for one in spec["volumes"] if "configMap" not in one]
    for role in ("driver", "executor"):
        own = spec[role] = {**spec[role], "nodeSelector": {ROLE: role}}
        own["volumeMounts"] = [one for one in own["volumeMounts"] if one["name"] != "pipeline"]
    # Beside Java's heap: its classes, of which each query compiles some, and Python.
    spec["driver"] |= {"coreRequest": "200m", "memory": "512m", "memoryOverhead": "640m"}
    spec["executor"] |= {
        "instances": load.executors,
        "cores": 1,
        "coreRequest": EXECUTOR_CPU,
        "coreLimit": EXECUTOR_CPU,
        "memory": "480m",
        "memoryOverhead": "400m",
        "javaOptions": " ".join(SMALL_NODE_OPTIONS),
    }
    if not load.protected:
        # Executors of one application may share a node, as most do.
        del spec["executor"]["affinity"]
    if protect:
        spec["executor"]["labels"] = {"rekindle.dev/executor": "true"}
    else:
        del spec["driver"]["labels"]
    return body


def policy_spec(load: Load) -> Object:
    """What the policy of the namespace has beside its selector."""
    ranks = [{"query": name, "priority": rank} for name, rank in load.priorities.items()]
    if load.protected:
        return {"priorities": ranks}
    # Fewer are of no use: two thirds keep up with what comes in.
    minimum = max(1, -(-2 * load.executors // 3))
    needs = [{"name": name, "minimumExecutors": minimum} for name in load.groups]
    return {"recovers": "Applications", "priorities": ranks, "applications": needs}


def victims(nodes: list[str]) -> list[str]:
    """Nodes to lose: eight of ten, drawn by the seed."""
    count = min(len(nodes) - 1, round(LOST_SHARE * len(nodes)))
    return sorted(random.Random(SEED).sample(sorted(nodes), count))


@dataclass(slots=True)
class _Run:
    """One of the two; its files go into `directory`."""

    scenario: ApplicationScenario
    load: Load
    directory: Path
    nodes: int
    is_protected: bool

    def perform(self) -> Outcome:
        """From the cluster to what the streams came to."""
        logs = self.directory / "logs"
        logs.mkdir()
        site = Site(
            self.directory / "site",
            executors=self.nodes,
            drivers=DRIVERS,
            executor_node=NODE,
            chart={} if self.load.protected else {"wholeApplications": True},
            class_spec=self.scenario.class_spec,
            policy_spec=policy_spec(self.load),
            is_protected=self.is_protected,
        )
        with site:
            # A file a second.
            rows = self.load.rows_per_second
            streams = tuple(FileStream(name, site.claim, rows) for name in self.load.priorities)
            _prepare(site.claim, streams)
            run = ClusterRun(
                site=site,
                witness=RunRecorder(PodLogs(site.core, logs), site.claim / "none", NAMESPACE),
                scaler=Autoscaler(site.core, site.cluster, NAMESPACE, node=NODE),
                drivers_restart=True,
            )
            try:
                self._submit(run)
                run.await_that("all executors run", lambda: len(run.executors()) == self._executors)
                # From here on: what came in before would be a backlog, and lag by it no usual one.
                with StreamWriter(streams):
                    outcome = self._play(run, streams)
                # Before the cluster goes, which takes a while, and may be interrupted.
                own = _told(outcome, self.load.priorities, outcome.lag_seconds_max)
                _save(self.directory / "outcome.json", own)
                return outcome
            finally:
                run.keep(self.directory)

    @property
    def _executors(self) -> int:
        return self.load.executors * len(self.load.groups)

    def _play(self, run: ClusterRun, streams: tuple[FileStream, ...]) -> Outcome:
        began_at = time.time()
        run.await_that("all queries keep up", lambda: _keep_up(streams, began_at))
        warm_at, warm, used = time.time(), _counters(), self._cpu_seconds(run)
        run.stay(WARM_SECONDS)
        _look(streams)
        lost = victims(run.site.nodes("executor"))
        failing = _counters()
        cores = protection_cost.cores(used, self._cpu_seconds(run), failing.at - warm.at)
        run.fail(run.site.cluster.kill, *lost)
        lag_max = file_streams.LAG_FACTOR * max(
            wait for stream in streams for wait in stream.waits(warm_at, run.failure_at)
        )
        run.replace_pods(nodes_max=len(lost))
        run.await_that(
            "all executors are back",
            lambda: _have_come(run, streams, lost, self._executors),
        )
        run.await_that("all queries are back", lambda: _are_back(streams, lag_max))
        until, ending = time.time(), _counters()
        if self.is_protected:
            run.await_that("all Recoveries are over", run.are_over)
        files = {stream.name: tuple(stream.files()) for stream in streams}
        busy = {"before the loss": _busy(warm, failing), "after it": _busy(failing, ending)}
        if run.site.is_given:
            busy = {}
        return Outcome(lost, lag_max, run.failure_at, until, files, busy, cores)

    def _cpu_seconds(self, run: ClusterRun) -> dict[protection_cost.Process, dict[str, float]]:
        """Of an application with protected queries, where its processes are on this machine."""
        if run.site.is_given or not self.load.protected:
            return {}
        return protection_cost.cpu_seconds(PROGRAM.name)

    def _submit(self, run: ClusterRun) -> None:
        protect = self.load.protected and self.is_protected
        for name in self.load.groups:
            body = application(name, self.load, run.site.spark_image, protect=protect)
            group, _, version = body["apiVersion"].partition("/")
            run.site.custom.create_namespaced_custom_object(group, version, NAMESPACE, PLURAL, body)


def _prepare(claim: Path, streams: tuple[FileStream, ...]) -> None:
    """Folders that pods may write to, and the program."""
    for name in ("program", "output", "checkpoints"):
        (claim / name).mkdir()
        (claim / name).chmod(0o777)
    shutil.copy2(PROGRAM, claim / "program" / PROGRAM.name)
    for stream in streams:
        stream.input.mkdir(parents=True)


def _look(streams: tuple[FileStream, ...]) -> None:
    for stream in streams:
        stream.look()


def _keep_up(streams: tuple[FileStream, ...], since: float) -> bool:
    """Whether each stream has had some batches, and works off in one what comes in meanwhile. The
    first ones take long, as everything is compiled."""
    _look(streams)
    return all(
        stream.batches(since) >= BATCHES_WARM and stream.oldest_wait() <= WAIT_SECONDS_WARM
        for stream in streams
    )


def _are_back(streams: tuple[FileStream, ...], lag_max: float) -> bool:
    """Whether no file waits longer than before the failure."""
    _look(streams)
    return all(stream.lag(time.time()) <= lag_max for stream in streams)


def _have_come(
    run: ClusterRun, streams: tuple[FileStream, ...], lost: list[str], count: int
) -> bool:
    """Whether so many executors run on nodes that were not lost: dead kubelets report no end.
    Streams are looked at meanwhile, as Spark forgets old batches."""
    _look(streams)
    return sum(node not in lost for node in run.executors().values()) == count


def _counters() -> Counters:
    """The CPU that this machine has had to spare so far."""
    cores, statistics = os.sched_getaffinity(0), Path("/proc/stat").read_text(encoding="ascii")
    idle = machine_load.read_idle_seconds(statistics, cores, os.sysconf("SC_CLK_TCK"))
    return Counters(time.monotonic(), len(cores), idle)


def _busy(before: Counters, after: Counters) -> float | None:
    """How much of this machine's CPU was in use, as a share of 1."""
    idle: float | None = machine_load.between(before, after, ())["idle_share"]
    return None if idle is None else 1.0 - idle


def _save(path: Path, content: Object) -> None:
    path.write_text(json.dumps({"version": VERSION, **content}, indent=1) + "\n", encoding="utf-8")
