"""The scenarios: what is lost, and what has to be true afterwards.

Each is a function of a `ScenarioRun` on which the application runs and is warm; it returns when all
that it asserts of the cluster is true. What is not is said in words by a `RunError`.
`scenario_runner` asserts the rest, which is the same for all: every row, once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle_local import process_sets
from rekindle_local.demo import run_inputs
from scenarios import incident_checks
from scenarios.deployment import OPERATOR, REPLICAS, STORE, ZONES, Site
from scenarios.incident_checks import check
from scenarios.scenario_run import ScenarioRun

# So small that a driver or executor that kept what it buffers for ten minutes would be evicted.
STORAGE_MIB = 512
OUTAGE_SECONDS = 600.0
# Their disks are full within two minutes at it as well, with half of the rows: a third of the load
# is what epochs cost without any. At two thirds it would take them an hour to catch up, as each
# that does reads all sources for itself.
LONG_LOAD_PERCENT = 50.0
LEADER_SECONDS_MAX = 120.0
NOTICE_SECONDS = 120.0
LEADERLESS_SECONDS = 60.0

Object = Mapping[str, Any]

# A driver's pod on a lost node goes as soon as the cloud says that the machine is off.
FENCING_RIGHTS: Object = {"fencing": {"outOfServiceTaint": True}}
FENCING: Object = {"fencing": {"mode": "OutOfServiceTaint", "certainty": ["ShutdownTaint"]}}


def _nothing(site: Site) -> None:
    """Nothing is different."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`act` is the scenario itself; the rest is the site and the application that it needs.

    `arrange` is called before the application is submitted; `chart` has values of the chart,
    `class_spec` the class's fields, both beside the defaults. One without
    a load is for its rows alone, not for its figures; one that is compared runs on ordinary Spark
    as well.
    """

    act: Callable[[ScenarioRun], None]
    arrange: Callable[[Site], None] = _nothing
    executors: int = 10
    example: str = "kubeflow"
    chart: Object = field(default_factory=dict)
    class_spec: Object = field(default_factory=dict)
    storage_mib: int | None = None
    load_percent: float | None = run_inputs.LOAD_TARGET_PERCENT
    is_compared: bool = False

    @property
    def lost(self) -> str:
        """What is lost, in a sentence."""
        return " ".join((self.act.__doc__ or "").split()).rstrip(".")


def eight_of_ten(stage: ScenarioRun) -> None:
    """Eight of ten executors' nodes at once; they are replaced one by one."""
    lost = stage.choose_victims(8)
    stage.fail(stage.site.cluster.kill, *lost)
    stage.recover()
    incident_checks.check_correlated(stage, lost=lost)


def two_of_four(stage: ScenarioRun) -> None:
    """Two of four executors' nodes at once, at a low rate: in short, that all of it works."""
    lost = sorted(stage.executors().values())[:2]
    stage.fail(stage.site.cluster.kill, *lost)
    stage.recover()
    incident_checks.check_correlated(stage, lost=lost)


def zone_loss(stage: ScenarioRun) -> None:
    """A zone: executors, a member of ZooKeeper, the operator that leads, and a webhook."""
    zone = stage.site.leader_zone()
    check("the driver is elsewhere", stage.site.zone(stage.driver_node()) != zone)
    lost = [name for name in stage.site.cluster.names if stage.site.zone(name) == zone]
    ours = stage.executors().values()
    stage.scaler.zones = tuple(one for one in ZONES if one != zone)
    stage.fail(stage.site.cluster.kill, *lost)
    stage.recover()
    incident_checks.check_correlated(stage, lost=set(ours) & set(lost))
    check("another operator leads", stage.site.leader_zone() in set(ZONES) - {zone})


def driver_lost(stage: ScenarioRun) -> None:
    """The driver's node together with five executors'."""
    node, ours = stage.driver_node(), stage.executors().values()
    stage.fail(stage.site.cluster.kill, node, *stage.choose_victims(5))
    stage.recover()
    story = incident_checks.only(stage)
    # Without their driver all executors are lost, wherever they are.
    incident_checks.check_told(story, lost=[node, *ours], kind="Complete")
    incident_checks.check_fenced(story, stage, node)
    check("the driver is on another node", stage.driver_node() != node)
    stage.note_driver_start()


def everything_lost(stage: ScenarioRun) -> None:
    """All nodes of the application, its driver's too, while other nodes live."""
    lost = [stage.driver_node(), *stage.executors().values()]
    stage.fail(stage.site.cluster.kill, *lost)
    stage.recover()
    story = incident_checks.only(stage)
    incident_checks.check_told(story, lost=lost, kind="Complete")
    incident_checks.check_fenced(story, stage, lost[0])
    stage.note_driver_start()


def partition_heals(stage: ScenarioRun) -> None:
    """Four executors' nodes, which nobody reaches and which live; then the partition is over."""
    lost = stage.choose_victims(4)
    stage.fail(stage.site.cluster.cut, *lost)
    stage.replace_pods()
    stage.await_that("a plan without them is running", lambda: stage.since_failure("ack"))
    check("what runs on them is alive", stage.site.cluster.is_alive(*lost))
    stage.site.cluster.heal(*lost)
    stage.recover()
    incident_checks.check_correlated(stage, lost=lost)


def node_drained(stage: ScenarioRun) -> None:
    """None: one is drained on purpose, and its pod evicted."""
    stage.begin_failure()
    before = stage.executors()
    node = sorted(before.values())[0]
    stage.drain(node)
    stage.replace_pods()
    stage.await_that("the pod has gone", lambda: node not in stage.executors().values())
    stage.await_that("another has joined", lambda: len(stage.executors()) == len(before))
    stage.await_that("all queries are back", lambda: stage.since_failure("recovered"))
    incident_checks.check_nothing(stage)


def announced(stage: ScenarioRun) -> None:
    """Three of ten executors' nodes, announced two minutes before by the taint of a spot notice."""
    story = _lose_announced(stage, 3)
    moved = story.get("status", {}).get("movedPartitions", 0)
    check("partitions had moved before the loss", moved > 0)


def eight_announced(stage: ScenarioRun) -> None:
    """Eight of ten executors' nodes, announced two minutes before by the taint of a spot notice."""
    _lose_announced(stage, 8)


def _lose_announced(stage: ScenarioRun, count: int) -> Object:
    """Announce the loss of so many nodes, lose them when it is due, and recover; the Recovery. What
    others have room for moves meanwhile, which of eight nodes of ten may be nothing."""
    lost = stage.choose_victims(count)
    stage.begin_failure()
    for node in lost:
        stage.site.announce(node)
    stage.replace_pods()
    stage.stay(NOTICE_SECONDS)
    stage.fail(stage.site.cluster.kill, *lost)
    stage.recover()
    story = incident_checks.only(stage)
    incident_checks.check_announced(story, lost=lost)
    return story


def store_emptied(stage: ScenarioRun) -> None:
    """All records of ZooKeeper, while the application runs; then one executor's node."""
    site = stage.site
    stage.begin_failure()
    site.scale(STORE, 0)
    stage.await_that("no server of the store is there", lambda: not site.replicas(STORE))
    site.drop_claims()
    stage.await_that("its claims have gone", lambda: not site.claims())
    site.empty_volumes()
    stage.await_that("the driver goes on alone", lambda: stage.since_failure("alone"))
    site.scale(STORE, REPLICAS[STORE])
    stage.await_that("all servers are back, empty", lambda: _are_ready(site, STORE))
    stage.await_that("the driver is led again", lambda: stage.since_failure("led"))
    incident_checks.check_untouched(stage)
    lost = stage.choose_victims(1)
    stage.fail(site.cluster.kill, *lost)
    stage.recover()
    incident_checks.check_told(incident_checks.only(stage), lost=lost, kind="Independent")
    incident_checks.check_planned_by_operator(stage)


def operators_gone(stage: ScenarioRun) -> None:
    """Two executors' nodes, while no operator is there; operators come back a minute later."""
    site, lost = stage.site, stage.choose_victims(2)
    site.scale(OPERATOR, 0)
    stage.await_that("no operator is there", lambda: not site.replicas(OPERATOR))
    stage.fail(site.cluster.kill, *lost)
    stage.await_that("a plan made alone is running", lambda: stage.since_failure("ack"))
    stage.stay(LEADERLESS_SECONDS)
    site.scale(OPERATOR, REPLICAS[OPERATOR])
    stage.await_that("all operators are back", lambda: _are_ready(site, OPERATOR))
    stage.await_that("the driver is led again", lambda: stage.since_failure("led"))
    stage.recover()
    incident_checks.check_told_late(incident_checks.only(stage), lost=lost)
    incident_checks.check_planned_alone(stage)


def one_of_ten(stage: ScenarioRun) -> None:
    """One executor's node."""
    lost = stage.choose_victims(1)
    stage.fail(stage.site.cluster.kill, *lost)
    stage.recover()
    incident_checks.check_told(incident_checks.only(stage), lost=lost, kind="Independent")


def wave(stage: ScenarioRun) -> None:
    """Five executors' nodes; during the recovery a survivor's and a fresh one's."""
    first, there = stage.choose_victims(5), stage.executors().values()
    stage.fail(stage.site.cluster.kill, *first)
    stage.replace_pods()
    stage.await_that("an executor is back", lambda: stage.since_failure("returned"))
    stage.await_that("its pod runs", lambda: set(stage.executors().values()) - set(there))
    fresh = set(stage.executors().values()) - set(there)
    then = [min(set(there) - set(first)), min(fresh)]
    stage.fail(stage.site.cluster.kill, *then)
    stage.recover()
    incident_checks.check_correlated(stage, lost=[*first, *then])


def long_outage(stage: ScenarioRun) -> None:
    """Eight of ten executors' nodes; two come back at once, the others after ten minutes."""
    lost = stage.choose_victims(8)
    stage.fail(stage.site.cluster.kill, *lost)
    stage.replace_pods(nodes_max=2)
    stage.await_that("two are back", lambda: len(stage.since_failure("returned")) >= 2)
    stage.stay(OUTAGE_SECONDS)
    stage.replace_pods()
    stage.recover()
    incident_checks.check_correlated(stage, lost=lost)
    incident_checks.check_no_eviction(stage)


def kubelets_stopped(stage: ScenarioRun) -> None:
    """None: three kubelets stop for longer than their nodes stay Ready, while their pods live."""
    stage.begin_failure()
    before = stage.executors()
    nodes = sorted(before.values())[:3]
    stage.site.cluster.stop_kubelet(*nodes)
    stage.await_that("their nodes are not Ready", lambda: not any(map(stage.site.is_ready, nodes)))
    stage.stay(30.0)
    stage.site.cluster.start_kubelet(*nodes)
    stage.await_that("their nodes are Ready", lambda: all(map(stage.site.is_ready, nodes)))
    stage.await_that("all Recoveries are over", stage.are_over)
    incident_checks.check_suspicion(stage, silent=nodes)
    check("the same executors run", stage.executors() == before)


def _are_ready(site: Site, part: str) -> bool:
    """Whether all replicas of a part of the chart are ready."""
    ready = site.replicas(part)
    return len(ready) == REPLICAS[part] and all(ready)


def _keep_driver_from_leader(site: Site) -> None:
    """No driver may come to the zone of the operator that leads."""
    leads = process_sets.await_condition(
        lambda: bool(site.leader_zone()), limit_seconds=LEADER_SECONDS_MAX, interval_seconds=1.0
    )
    check("an operator leads", leads)
    zone = site.leader_zone()
    for node in site.nodes("driver"):
        if site.zone(node) == zone:
            site.cordon(node)


SCENARIOS: Mapping[str, Scenario] = {
    "eight-of-ten": Scenario(eight_of_ten, is_compared=True),
    "two-of-four": Scenario(two_of_four, executors=4, load_percent=None, is_compared=True),
    "zone-loss": Scenario(zone_loss, arrange=_keep_driver_from_leader, executors=9),
    "driver-lost": Scenario(driver_lost, chart=FENCING_RIGHTS, class_spec=FENCING),
    "everything-lost": Scenario(
        everything_lost, example="apache", chart=FENCING_RIGHTS, class_spec=FENCING
    ),
    "partition-heals": Scenario(partition_heals),
    "node-drained": Scenario(node_drained, executors=6),
    "announced": Scenario(announced),
    "store-emptied": Scenario(store_emptied),
    "operators-gone": Scenario(operators_gone),
    "one-of-ten": Scenario(one_of_ten, example="apache"),
    "wave": Scenario(wave, is_compared=True),
    "long-outage": Scenario(long_outage, storage_mib=STORAGE_MIB, load_percent=LONG_LOAD_PERCENT),
    "kubelets-stopped": Scenario(kubelets_stopped, executors=6),
}
