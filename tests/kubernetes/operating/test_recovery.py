"""A correlated failure, from the first silent lease to the end of its Recovery."""

import subprocess
from pathlib import Path

import pytest
import yaml
from operating_world import World, await_that

from testbed.control_plane import ControlPlane
from testbed.node_objects import ZONE

DEFINITION = Path(__file__).parents[3] / "crds" / "recoveries.yaml"


def shown(kubectl: Path, plane: ControlPlane, namespace: str) -> list[str]:
    """The lines that kubectl prints of recoveries."""
    ask = ("get", "recoveries", "-o", "wide", "-n", namespace)
    done = subprocess.run(
        [kubectl, "--kubeconfig", plane.kubeconfig, *ask],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def columns() -> list[str]:
    """Of the definition, those of -o wide as well."""
    (version,) = yaml.safe_load(DEFINITION.read_text())["spec"]["versions"]
    return [column["name"].upper() for column in version["additionalPrinterColumns"]]


def told(kubectl: Path, plane: ControlPlane, world: World) -> set[str]:
    """The words of the one recovery's row."""
    return set(shown(kubectl, plane, world.namespace)[1].split())


@pytest.mark.usefixtures("asking")
def test_nodes_are_lost_and_everything_comes_back_as_kubectl_tells(
    world: World, kubectl: Path, control_plane: ControlPlane
) -> None:
    """The driver has got its sidecar from the webhook, and new executors keep off lost nodes."""
    world.start(zones=("a", "b"), driver={"inject": True})
    driver = world.core.read_namespaced_pod("flights-driver", world.namespace)
    sidecars = [container.name for container in driver.spec.init_containers]
    assert sidecars == ["rekindle-sidecar"]
    lost = world.executors_nodes()[:2]
    zones = {world.core.read_node(name).metadata.labels[ZONE] for name in lost}
    pods = world.lose(*lost)
    await_that(lambda: world.driver.plans(), "no plan was made")
    await_that(lambda: pods.isdisjoint(world.executors()), "the pods were not deleted")
    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    assert world.lost_nodes() == set(lost)
    # a plan for the nodes that came meanwhile may be on its way
    await_that(lambda: {"AwaitingCheckpoint", "4/4"} <= told(kubectl, control_plane, world))
    header, _ = shown(kubectl, control_plane, world.namespace)
    assert header.split("  ")[0] == "NAME"
    assert [name for name in columns() if name not in header] == []
    world.finish()
    assert "Recovered" in shown(kubectl, control_plane, world.namespace)[1]
    assert any(set(values) & set(lost) for values in kept_off(world, pods)), "they may run there"
    assert_told(world, zones)


def assert_told(world: World, zones: set[str]) -> None:
    """What the story of the one recovery says when it is over."""
    status = world.status()
    assert (status["kind"], status["back"]) == ("Correlated", "4/4")
    assert {row["domain"] for row in status["lostNodes"]} == zones
    assert all("confirmedAt" in row and "suspectedAt" in row for row in status["lostNodes"])
    assert len(status["plans"]) == len(world.driver.plans())
    assert all("acknowledgedAt" in plan for plan in status["plans"])
    assert len(world.recoveries()) == 1
    await_that(lambda: world.events("Recovered"), "nobody was told")


def kept_off(world: World, before: set[str]) -> list[list[str]]:
    """The nodes that executors which were not there before may not run on."""
    replaced = [pod for pod in world.driver.executors() if pod.metadata.name not in before]
    return [
        expression.values
        for pod in replaced
        if pod.spec.affinity.node_affinity is not None
        for term in (
            pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        ).node_selector_terms
        for expression in term.match_expressions or ()
        if expression.key == "kubernetes.io/hostname"
    ]


def test_a_node_that_comes_back_is_used_again(world: World) -> None:
    def returned() -> set[str]:
        rows = world.status().get("lostNodes", ())
        return {row["name"] for row in rows if "backAt" in row}

    world.start(nodes=4)
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: world.driver.plans())
    await_that(lambda: pods.isdisjoint(world.executors()), "the pods were not deleted")
    await_that(world.recoveries, "nobody tells of it")
    world.bring_back(*lost)
    # the queries may be back before the nodes are, and the story would end without them
    await_that(lambda: returned() == set(lost), "nobody saw that the nodes are back")
    await_that(
        lambda: set(lost) <= set(world.executors_nodes()), "executors stay away from the nodes"
    )
    world.end()
    assert world.lost_nodes() == returned() == set(lost)


def test_losses_are_planned_without_a_policy_too_and_told_once_there_is_one(world: World) -> None:
    """One that the driver has seen and recovered from before its lease stops is one story."""
    world.start()
    node = world.executors_nodes()[0]
    (pod,) = [pod for pod in world.driver.executors() if pod.spec.node_name == node]
    world.driver.silent.add(node)
    world.driver.drop({pod.status.pod_ip: f"{pod.metadata.labels['spark-exec-id']}.0"})
    world.end()
    assert world.lost_nodes() == {node}
    world.nodes.lose(node)
    await_that(lambda: world.operator.metric("rekindle_operator_nodes_suspected") == 1)
    world.rest()
    assert len(world.recoveries()) == 1
    world.nodes.add(1, zone="a")
    await_that(lambda: world.driver.is_whole, "the executors were not replaced")
    told = len(world.driver.plans())
    world.delete_policy()
    world.lose(world.busy_nodes()[0])
    await_that(lambda: len(world.driver.plans()) > told, "nothing is planned without a policy")
    assert len(world.recoveries()) == 1
    world.make_policy()
    await_that(lambda: len(world.recoveries()) == 2)
    made = {item.plan_epoch for _, item in world.driver.plans()[told:]}
    await_that(lambda: {row["number"] for row in world.status().get("plans", ())} >= made)
