"""Coordinators as processes, on a real ZooKeeper: they die, stand still, lose the store, go on.

The driver's side is `store_driver`: it asserts by itself that no partition is placed twice and that
plans only grow. Drivers of real Spark are in other tests.
"""

import os
import subprocess
import time
from pathlib import Path

from coordinator_views import Coordinate, Drive, kinds, reasons, roles, standing
from store_driver import NODES, StoreDriver, come_back, lose_three, plan_epochs
from waiting import wait_until

from rekindle.protocol import DropOrder, PlanOrder, store_paths
from rekindle_local.local_provisioning import Provisioning
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import Connection

pytest_plugins = ("coordinator_fixtures",)


def test_a_fresh_application_is_planned_and_the_coordinator_ends_when_it_is_asked_to(
    coordinate: Coordinate, drive: Drive
) -> None:
    driver, coordinator = drive(), coordinate()
    wait_until(lambda: driver.is_whole, "there was no plan")
    assert plan_epochs(driver) == [1]
    assert coordinator.metrics()["leads"] == 1
    assert coordinator.end() == 0
    told = kinds(coordinator)
    assert [told[0], told[-1]] == ["coordinator-started", "coordinator-ended"]
    (plan,) = [line for line in coordinator.lines() if line["kind"] == "plan"]
    assert (plan["application"], plan["generation"]) == ("test/flights", 1)
    assert set(plan["answer"]["partitions"]) == set(plan["placement"])


def test_when_the_leader_is_killed_in_a_recovery_the_other_goes_on_with_the_same_plan(
    coordinate: Coordinate, drive: Drive
) -> None:
    driver, first = drive(), coordinate("a")
    wait_until(lambda: driver.is_whole)
    second = coordinate("b")
    lose_three(driver)
    wait_until(lambda: plan_epochs(driver) == [1, 2])
    first.kill()
    driver.come("m1")
    wait_until(lambda: len(driver.plans) == 3)
    order = driver.plans[2].order
    assert isinstance(order, PlanOrder)
    assert (plan_epochs(driver), order.builds_on) == ([1, 2, 3], 2)
    assert order.incident == driver.plans[1].order.incident  # type: ignore[union-attr]
    come_back(driver)
    wait_until(lambda: "incident-closed" in kinds(second))
    assert not driver.refused


def test_a_leader_that_stood_still_plans_nothing_again(
    coordinate: Coordinate, drive: Drive
) -> None:
    driver, first = drive(), coordinate("a")
    wait_until(lambda: driver.is_whole)
    second = coordinate("b")
    lose_three(driver)
    wait_until(lambda: len(driver.plans) == 2)
    first.stop()
    driver.come("m1")
    wait_until(lambda: len(driver.plans) == 3)
    first.proceed()
    # On a busy machine it may have lost its session, and said so, before it was stopped.
    wait_until(lambda: roles(first)[-1] == "following")
    driver.come("m2")
    wait_until(lambda: driver.is_whole)
    # A plan is logged only once the store has confirmed it: the driver may carry it out before, and
    # a leader that was stopped in between may never learn of it.
    lines = [*first.lines(), *second.lines()]
    planned = [line["plan_epoch"] for line in lines if line["kind"] == "plan"]
    assert len(planned) == len(set(planned))
    assert set(planned) <= set(plan_epochs(driver))
    assert plan_epochs(driver) == sorted(set(plan_epochs(driver)))
    assert not driver.refused


def test_a_loss_while_the_store_is_away_is_planned_for_once_it_is_back(
    zookeeper: LocalZookeeper, coordinate: Coordinate, drive: Drive
) -> None:
    driver, coordinator = drive(), coordinate()
    wait_until(lambda: driver.is_whole)
    zookeeper.kill(1)
    wait_until(lambda: coordinator.metrics()["store_reachable"] == 0)
    lose_three(driver)
    time.sleep(2.0)
    assert len(driver.plans) == 1
    zookeeper.start_server(1)
    wait_until(lambda: len(driver.plans) == 2)
    come_back(driver)
    assert plan_epochs(driver) == sorted(set(plan_epochs(driver)))
    assert not driver.refused


def test_without_a_majority_of_the_store_nothing_is_planned_until_it_is_back(
    tmp_path: Path, coordinate: Coordinate, drive: Drive
) -> None:
    with LocalZookeeper(directory=tmp_path / "ensemble", servers=3) as ensemble:
        hosts = ensemble.connect_string
        driver = drive(hosts=hosts)
        first, second = (coordinate(name, hosts=hosts) for name in "ab")
        wait_until(lambda: driver.is_whole)
        ensemble.kill(1, 2)
        for process in (first, second):
            wait_until(lambda process=process: process.metrics()["store_reachable"] == 0)
        lose_three(driver)
        time.sleep(2.0)
        assert len(driver.plans) == 1
        ensemble.start_server(1, 2)
        wait_until(lambda: len(driver.plans) == 2)
        come_back(driver)
        assert not driver.refused
        wait_until(lambda: reasons(hosts) == [])
        driver.end()
        for process in (first, second):
            assert process.end() == 0


def test_a_malformed_record_stops_one_application_and_not_the_other(
    zookeeper: LocalZookeeper, store_records: Connection, coordinate: Coordinate, drive: Drive
) -> None:
    good, bad, coordinator = drive("good"), drive("bad"), coordinate()
    wait_until(lambda: good.is_whole and bad.is_whole)
    path = bad.place.path(store_paths.STATISTICS)
    store_records.put(
        path, b'{"kind": "statistics", "generation": 1, "sequence": 1, "costs": {"a": -1}}'
    )
    wait_until(lambda: coordinator.metrics()["applications_stopped"] == 1)
    (notice,) = standing(zookeeper.connect_string, "test/bad")["notices"]
    assert notice["reason"] == "bad-record"
    assert path in notice["text"]
    assert "costs" in notice["text"]
    for driver in (good, bad):
        lose_three(driver)
    wait_until(lambda: len(good.plans) == 2)
    (line,) = [line for line in coordinator.lines() if line["kind"] == "application-stopped"]
    assert (line["application"], len(bad.plans)) == ("test/bad", 1)
    store_records.put(path, b'{"kind": "statistics", "generation": 1, "sequence": 1, "costs": {}}')
    wait_until(lambda: len(bad.plans) == 2)
    wait_until(lambda: coordinator.metrics()["applications_stopped"] == 0)


def test_a_worker_that_dies_is_dropped_and_replaced_through_the_folder_of_the_cluster(
    tmp_path: Path, coordinate: Coordinate, drive: Drive
) -> None:
    driver, cluster = drive(), tmp_path / "cluster"
    workers = {node: subprocess.Popen(["sleep", "600"]) for node in NODES}
    down: list[str] = []

    def start_worker(node: str) -> None:
        down.remove(node)
        workers[node] = subprocess.Popen(["sleep", "600"])
        provisioning.publish({node: workers[node].pid})
        driver.come(node)

    provisioning = Provisioning(
        cluster,
        down=lambda: list(down),
        start_worker=start_worker,
        restart_driver=lambda: None,
        first_seconds=0.5,
        every_seconds=0.2,
    )
    try:
        provisioning.start()
        provisioning.publish({node: worker.pid for node, worker in workers.items()})
        coordinate(cluster=cluster)
        wait_until(lambda: driver.is_whole)
        for node in NODES[:2]:
            workers[node].kill()
            workers[node].wait()
            down.append(node)
        wait_until(lambda: dropped(driver) == set(NODES[:2]))
        wait_until(lambda: driver.is_whole and len(driver.nodes) == len(NODES) and not down)
        provisioning.check()
        assert dropped(driver) == set(NODES[:2])
        assert not driver.refused
    finally:
        provisioning.close()
        for worker in workers.values():
            worker.kill()
            worker.wait()


def dropped(driver: StoreDriver) -> set[str]:
    """The nodes that a driver was told to drop."""
    orders = [item.order for item in driver.taken if isinstance(item.order, DropOrder)]
    return {node for order in orders for node in order.nodes}


def test_a_driver_whose_process_has_ended_is_asked_for_and_the_next_one_is_led(
    tmp_path: Path, zookeeper: LocalZookeeper, coordinate: Coordinate, drive: Drive
) -> None:
    process, restarts = subprocess.Popen(["sleep", "600"]), []
    first = drive(process_id=process.pid)

    def restart() -> None:
        provisioning.publish_driver(first.place, os.getpid())
        restarts.append(drive(generation=2, resumed=True))

    provisioning = Provisioning(
        tmp_path / "cluster",
        down=tuple,
        start_worker=print,
        restart_driver=restart,
    )
    try:
        provisioning.start()
        provisioning.publish_driver(first.place, process.pid)
        coordinate(cluster=tmp_path / "cluster")
        wait_until(lambda: first.is_whole)
        process.kill()
        process.wait()
        first.end()
        wait_until(lambda: bool(restarts), "no driver was asked for")
        wait_until(lambda: restarts[0].is_whole, "the new driver got no plan")
        assert min(plan_epochs(restarts[0])) > max(plan_epochs(first))
        assert standing(zookeeper.connect_string)["generation"] == 2
        assert len(restarts) == 1
    finally:
        provisioning.close()
        process.kill()
        process.wait()
