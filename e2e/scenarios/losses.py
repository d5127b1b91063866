"""The scenarios: what is lost, and what has to be true afterwards.

Each is a function of a `Stage` on which the application runs and is warm; it returns when the
application has ended in order. What it asserts is said in words by a `RunError`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle import report
from rekindle.errors import RunError
from rekindle_local.demo import evidence
from rekindle_local.flights import pipeline as flights_pipeline
from rekindle_spark import program
from scenarios.autoscaling import Autoscaler
from scenarios.flights import CPU_PERCENT, Flights
from scenarios.site import GROUP, VERSION, Site
from scenarios.witness import Witness

__all__ = ["SCENARIOS", "Stage", "perform"]

WARM_SECONDS = 20.0

Object = Mapping[str, Any]


@dataclass(slots=True)
class Stage:
    """An application that runs, and who sees what it does. `failure_at` is by wall clock."""

    site: Site
    flights: Flights
    witness: Witness
    files: Object
    failure_at: float = 0.0
    scaler: Autoscaler | None = None
    joined: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Until the load is what it should be, and has been for a while."""
        count = self.flights.executors
        self._await("all executors have joined", lambda: len(self.executors()) == count)
        said = self.witness.of_kind
        self._await("the first plan is running", lambda: said("recovered"))
        self._await("the load is calibrated", lambda: said("calibrated"))
        self.witness.note("warm")
        end = time.monotonic() + WARM_SECONDS
        self._await("the application is warm", lambda: time.monotonic() > end)

    def executors(self) -> dict[str, str]:
        """The node of each executor that runs, by the address that the runtime knows it by."""
        pods = self.site.core.list_namespaced_pod(
            self.site.namespace, label_selector="spark-role=executor"
        ).items
        return {
            pod.status.pod_ip: pod.spec.node_name
            for pod in pods
            if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
        }

    def lose(self, *nodes: str) -> None:
        """Nodes die at once."""
        there = self.executors()
        self.failure_at = self.failure_at or time.time()
        self.site.cluster.kill(*nodes)
        for address, node in there.items():
            if node in nodes:
                self.witness.note("kill", at=self.failure_at, node=address)

    def recover(self) -> None:
        """Bring nodes as an autoscaler does, until everything is back, and end in order."""
        self.scaler = Autoscaler(self.site.core, self.site.cluster, self.site.namespace)
        self._await("all queries are back", self._is_recovered)
        self._await("the incident is closed", lambda: self._since("incident-closed"))
        (self.flights.store / "finish").touch()
        self._await("the driver has finished", lambda: self._since("finish"))

    def recoveries(self) -> list[Object]:
        """All Recovery objects of the namespace, by their incident."""
        found = self.site.custom.list_namespaced_custom_object(
            GROUP, VERSION, self.site.namespace, "recoveries"
        )["items"]
        return sorted(found, key=lambda item: int(item["spec"]["incident"]))

    def _is_recovered(self) -> bool:
        return len(self.executors()) == self.flights.executors and bool(self._since("recovered"))

    def _since(self, kind: str) -> list[dict[str, Any]]:
        return self.witness.of_kind(kind, self.failure_at)

    def _await(self, what: str, condition: Callable[[], Any]) -> None:
        def looked() -> Any:
            if self.scaler is not None:
                self.scaler.look()
            self._note_returns()
            return condition()

        self.witness.await_that(what, looked)

    def _note_returns(self) -> None:
        for record in self.witness.of_kind("joined"):
            key = f"{record['node']} {record['executor']}"
            if key not in self.joined:
                self.joined.add(key)
                self.witness.note(
                    "returned", record["at"], node=record["node"], executor=record["executor"]
                )


def eight_of_ten(stage: Stage) -> None:
    """Eight of ten executors' nodes are lost at once and replaced one by one."""
    nodes = sorted(set(stage.executors().values()))
    stage.lose(*nodes[:8])
    stage.recover()
    check_story(stage, lost=8)


def check_story(stage: Stage, *, lost: int) -> None:
    """The Recovery tells all of it: the nodes, the plans, and the end."""
    found = stage.recoveries()
    status = found[-1].get("status", {}) if found else {}
    told = (len(found), len(status.get("lostNodes", ())), status.get("phase"))
    if told != (1, lost, "Recovered"):
        raise RunError(
            where=f"recoveries of {stage.site.namespace}",
            what=f"are {told[0]}, with {told[1]} lost nodes and phase {told[2]}",
            remedy=f"there should be one, with {lost} lost nodes, Recovered",
        )


SCENARIOS: Mapping[str, Callable[[Stage], None]] = {"eight-of-ten": eight_of_ten}


def perform(name: str, directory: Path, *, executors: int = 10) -> dict[str, Any]:
    """Run a scenario in an empty folder; the report, which is written there too."""
    with Site(directory / "site", executors=executors) as site:
        flights = Flights(site.shared / "flights", site.spark_image, executors=executors)
        files = flights.prepare()
        witness = Witness(site.core, flights.events)
        stage = Stage(site, flights, witness, files)
        site.submit(flights.submission(site.namespace))
        stage.begin()
        SCENARIOS[name](stage)
        return write_report(directory, stage)


def write_report(directory: Path, stage: Stage) -> dict[str, Any]:
    """The report of DESIGN 9, from what the run has left."""
    flights = stage.flights
    built = program.build(flights_pipeline.build(flights.input, flights.seed))
    facts = report.RunFacts(
        commit=evidence.commit(),
        seed=flights.seed,
        machine=evidence.machine(),
        strategy=flights.strategy,
        engine="pipeline",
        buffering="always",
        ordering="always",
        nodes=flights.executors,
        quota_enforced=True,
        cpu_quota=CPU_PERCENT / 100,
    )
    run = evidence.Run(
        records=stage.witness.records,
        store=flights.store,
        failure_at=stage.failure_at,
        files=stage.files,
        topology=built.topology,
        priorities={query.name: query.priority for query in built.topology.queries},
        schemas=evidence.schemas(built),
        facts=facts,
    )
    return evidence.write(directory, run)
