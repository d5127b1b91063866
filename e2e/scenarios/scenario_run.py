"""The stage of a scenario: an application that runs on a site, and what is done to its nodes.

    begin ─► warm ─► lose ... ─► recover ─► finish

Every wait looks at everything: records, nodes that pods wait for, drivers that end when they
should not. `loss_scenarios` has the scenarios.
"""

import json
import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from rekindle.model.errors import RunError
from rekindle_local.flights import flight_pipeline as flights_pipeline
from scenarios.cloud_autoscaler import Autoscaler, mark_machines_off, remove_machines
from scenarios.deployment import GROUP, NAMESPACE, VERSION, Site
from scenarios.flights_application import FlightsApplication
from scenarios.run_recorder import Record, RunRecorder
from testbed import test_programs

POLL_SECONDS = 1.0
# Least and most of the load that is wanted.
LOAD_SHARES = (0.9, 1.2)
# When all is lost, executors at two thirds of their load take a quarter of an hour to catch up. The
# Recovery of a whole application is open for half an hour more where its queries do not.
WAIT_SECONDS_MAX = 2_700.0

Object = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class ClusterRun:
    """Applications on a site, whichever they are; `failure_at` is by wall clock. Where
    `drivers_restart`, one that fails after the failure is made again by whoever submitted it."""

    site: Site
    witness: RunRecorder
    scaler: Autoscaler
    failure_at: float = 0.0
    drivers_restart: bool = False
    _memory_bytes: int = 0
    _driver_is_lost: bool = False
    _trouble: str = ""
    _off: set[str] = field(default_factory=set)
    _joined: set[str] = field(default_factory=set)

    def stay(self, seconds: float) -> None:
        """Let the application run for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._holds(lambda: True)
            time.sleep(POLL_SECONDS)

    def executors(self) -> dict[str, str]:
        """The node of each executor whose pod runs, by its address; it may not have joined yet."""
        pods = self.pods("executor")
        return {
            pod.status.pod_ip: pod.spec.node_name
            for pod in pods
            if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
        }

    def driver_node(self) -> str:
        """Where the newest driver's pod is."""
        return str(self._driver().spec.node_name)

    def pods(self, role: str) -> list[Any]:
        """The application's pods of a role."""
        found = self.site.core.list_namespaced_pod(NAMESPACE, label_selector=f"spark-role={role}")
        return list(found.items)

    def fail(self, harm: Callable[..., None], *nodes: str) -> None:
        """Do something to nodes that takes them from the application, all at once."""
        there = self.executors()
        self._note_renewals(nodes)
        self._driver_is_lost |= self.driver_node() in nodes
        at = time.time()
        self.failure_at = self.failure_at or at
        harm(*nodes)
        if harm == self.site.cluster.kill:
            self._off.update(nodes)
        for address, node in there.items():
            if node in nodes:
                self.witness.note("kill", at=at, node=address, name=node)

    def begin_failure(self) -> None:
        """From here on the report counts, though no node is lost."""
        self.failure_at = time.time()

    def drain(self, node: str) -> None:
        """What `kubectl drain` does: no more pods for it, and those of the application go."""
        self.site.cordon(node)
        for pod in self.pods("executor"):
            if pod.spec.node_name == node:
                name = pod.metadata.name
                self.site.core.create_namespaced_pod_eviction(
                    name, NAMESPACE, {"metadata": {"name": name}}
                )

    def replace_pods(self, nodes_max: int = 100) -> None:
        """From here on pods that wait get nodes, so many at most."""
        self.scaler.nodes_max = nodes_max

    def note_driver_start(self) -> None:
        """How long the driver's pod took from its creation until its containers ran."""
        pod = self._driver()
        started = [one.state.running.started_at for one in pod.status.container_statuses]
        seconds = (max(started) - pod.metadata.creation_timestamp).total_seconds()
        self.witness.note("driver-pod-started", seconds=seconds)

    def since_failure(self, kind: str) -> list[Record]:
        """Records of a kind from the failure on."""
        return self.witness.of_kind(kind, self.failure_at)

    def recoveries(self) -> list[Object]:
        """All Recovery objects of the namespace, by their incident."""
        if not self.site.is_protected:
            return []
        found = self.site.custom.list_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, "recoveries"
        )["items"]
        return sorted(found, key=lambda item: int(item["spec"]["incident"]))

    def are_over(self) -> bool:
        """Whether there are Recoveries, and all have ended."""
        found = self.recoveries()
        return bool(found) and all(map(is_over, found))

    def keep(self, directory: Path) -> None:
        """Write what was said and told into a folder, also of a run that failed."""
        self.witness.look()
        lines = [json.dumps(record) + "\n" for record in self.witness.records]
        (directory / "records.jsonl").write_text("".join(lines), encoding="utf-8")
        with suppress(ApiException, HTTPError):  # what has failed is said, not that this fails too
            found = json.dumps(self.recoveries(), indent=1)
            (directory / "recoveries.json").write_text(found, encoding="utf-8")

    def await_that(self, what: str, condition: Callable[[], Any]) -> None:
        """Look until it holds. Raises `RunError` when it does not for a long time, or a driver has
        ended that should run."""
        test_programs.say(f"waiting until {what}")
        end = time.monotonic() + WAIT_SECONDS_MAX
        while not self._holds(condition):
            if time.monotonic() > end:
                raise RunError(
                    where="the scenario",
                    what=f"waited {WAIT_SECONDS_MAX:.0f} s until {what}{self._trouble}",
                    remedy=f"see the logs of pods in {self.witness.logs.folder}",
                )
            time.sleep(POLL_SECONDS)

    def _holds(self, condition: Callable[[], Any]) -> bool:
        self.witness.look()
        self._note_returns()
        if not self.site.is_given:
            self._memory_bytes = max(self._memory_bytes, _used_bytes())
        try:
            self._check_driver()
            self.scaler.look()
            self._mark_machines_off()
            self._trouble = ""
            return bool(condition())
        except (ApiException, HTTPError) as error:
            # The API server may be away for a moment; what it refuses is told at the end.
            self._trouble = f"; in the end: {error!r:.300}"
            return False

    def _mark_machines_off(self) -> None:
        """Without Rekindle the cloud has to do more: pods on nodes that are there and dead stay for
        ever, and as long Spark asks for no others."""
        tell = mark_machines_off if self.site.is_protected else remove_machines
        at = time.time()
        for name in tell(self.site.core, sorted(self._off)):
            self.witness.note("machine-off", at, name=name)
            self._off.discard(name)

    def _driver(self) -> Any:
        """Its newest pod: one on a lost node may still be there."""
        return max(self.pods("driver"), key=lambda pod: pod.metadata.creation_timestamp)

    def _check_driver(self) -> None:
        """A driver that fails of itself is started again for ever: nothing to wait for."""
        failed = [pod for pod in self.pods("driver") if pod.status.phase == "Failed"]
        if self.site.operators.failures:
            raise self.site.operators.failures[0]
        is_made_again = self._driver_is_lost or (self.drivers_restart and self.failure_at)
        if failed and not is_made_again:
            raise RunError(
                where=f"pod {failed[0].metadata.name}",
                what="has failed",
                remedy=f"see its log in {self.witness.logs.folder}",
            )

    def _note_renewals(self, nodes: Collection[str]) -> None:
        """When leases of nodes have changed last, by this machine's clock, which is theirs."""
        coordination: Any = client.CoordinationV1Api(self.site.api_client)
        for lease in coordination.list_namespaced_lease("kube-node-lease").items:
            if lease.metadata.name in nodes:
                renewed_at = lease.spec.renew_time.timestamp()
                self.witness.note("last-renewal", renewed_at, name=lease.metadata.name)

    def _note_returns(self) -> None:
        for record in self.witness.of_kind("joined"):
            key = f"{record['node']} {record['executor']}"
            if key not in self._joined:
                self._joined.add(key)
                self.witness.note(
                    "returned", record["at"], node=record["node"], executor=record["executor"]
                )


@dataclass(slots=True, kw_only=True)
class ScenarioRun(ClusterRun):
    """The flights on a site; `closures` are the partitions that each query needs."""

    flights: FlightsApplication
    closures: Mapping[str, Collection[str]]

    def begin(self) -> None:
        """Submit, and wait until the load is what it should be and has been for a while."""
        count = self.flights.executors
        flights, witness = self.flights, self.witness
        self.site.submit(self.flights)
        self.await_that("all executors run", lambda: len(self.executors()) == count)
        self.await_that("all queries are live", lambda: flights.is_live(witness))
        self.await_that("the load is calibrated", lambda: flights.is_calibrated_by(witness))
        self.witness.note("warm")
        self.stay(flights.warm_seconds)
        if flights.load_percent is not None and self.site.is_protected:
            # Until the first loss, as nodes get faster, or others need the machine.
            low, high = (share * flights.load_percent for share in LOAD_SHARES)
            self.await_that(
                f"the load is between {low:.0f} and {high:.0f} %",
                lambda: low <= self.witness.of_kind("statistics")[-1]["load_percent"] <= high,
            )

    def choose_victims(self, count: int) -> list[str]:
        """Nodes to lose: a draw by the seed, among those that leave two queries whole where it is
        known what runs on which."""
        there, rng = self.executors(), random.Random(self.flights.seed)
        told = self.witness.of_kind("statistics")
        if not told:
            return [there[address] for address in rng.sample(sorted(there), count)]
        placement = told[-1]["placement"]
        drawn = flights_pipeline.victims(self.closures, placement, sorted(there), count, rng)
        return [there[address] for address in drawn]

    def recover(self) -> None:
        """Bring nodes as an autoscaler does, until everything is back."""
        self.replace_pods()
        self.await_that("all queries are back", self._is_recovered)
        if self.site.is_protected:
            self.await_that("the incident is closed", lambda: self.since_failure("incident-closed"))
            # the operator writes its end there later than into the log, and a driver that is alone
            # closes an incident by itself
            self.await_that("all Recoveries are over", self.are_over)

    def finish(self) -> None:
        """End the application in order."""
        (self.flights.store / "finish").touch()
        self.await_that("the driver has finished", lambda: self.witness.of_kind("finish"))
        if not self.site.is_given:
            self.witness.note("memory", used_bytes=self._memory_bytes)
        self.site.withdraw(self.flights)

    def _is_recovered(self) -> bool:
        there = len(self.executors()) == self.flights.executors
        return there and self.flights.is_back(self.witness, self.failure_at)


def is_over(story: Object) -> bool:
    """Whether nothing more will be told in a Recovery."""
    return "endedAt" in story.get("status", {})


def _used_bytes() -> int:
    """What all that runs on this machine takes of its memory, without what could be dropped."""
    said = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(said[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return (total - available) * 1024
