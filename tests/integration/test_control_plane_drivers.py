"""Drivers of a coordinator that stand still, die, or are there twice: no row changes.

Nor does it for who follows the output meanwhile. Another store under their name is refused.
"""

import subprocess
import sys
from pathlib import Path

from application import LIMIT_SECONDS, Application
from control_plane_harms import (
    FIRST,
    heartbeat_generation,
    is_silent,
    recovering_once,
    stopped,
)
from followed_output import assert_read_as_committed, followed
from harms import meet
from sidecar_process import Sidecar
from surroundings import PLACE, SESSION_SECONDS, Surroundings

from rekindle.protocol import store_paths
from rekindle_local import process_sets

NEAR_SECONDS = 2.0


def test_a_driver_is_replaced_when_it_is_gone_for_certain_and_not_before(
    surroundings: Surroundings, tmp_path: Path
) -> None:
    application = surroundings.make()
    application.start_and_recover()

    def one_that_stands_still_longer_than_its_session_is_not_replaced(
        application: Application,
    ) -> None:
        with recovering_once(application, FIRST) as begin:
            with stopped(application, "driver"):
                application.cluster.kill([FIRST])
                assert process_sets.await_condition(
                    lambda: is_silent(surroundings, 2 * SESSION_SECONDS),
                    limit_seconds=LIMIT_SECONDS,
                )
                its_lag_grows(surroundings)
            application.await_event("confirmed", after=begin, node=FIRST)
        assert not application.happened("driver-requested")

    with followed(application, "rises", tmp_path / "rises.json") as rises:
        meet(
            application,
            one_that_stands_still_longer_than_its_session_is_not_replaced,
            one_is_started_again_when_it_is_gone_for_certain,
        )
        of_two_only_the_newer_commits_though_the_older_is_cut_from_the_store(surroundings)
        rises.assert_all(surroundings.application)
    assert_read_as_committed(surroundings.application)
    another_store_under_its_name_is_refused_until_the_name_is_reset(surroundings)


def its_lag_grows(surroundings: Surroundings) -> None:
    """Nobody reports, and what `rekindle status` shows goes by how long that has been so."""

    def lags() -> list[float]:
        return [query.lag_seconds or 0.0 for query in surroundings.standing().queries]

    before = lags()
    assert min(before) > SESSION_SECONDS
    assert process_sets.await_condition(
        lambda: all(
            later > earlier + NEAR_SECONDS for earlier, later in zip(before, lags(), strict=True)
        ),
        limit_seconds=LIMIT_SECONDS,
    )


def one_is_started_again_when_it_is_gone_for_certain(application: Application) -> None:
    begin = application.seen
    application.driver.kill()
    killed = application.driver.process
    assert process_sets.await_condition(
        lambda: application.driver.process is not killed, limit_seconds=LIMIT_SECONDS
    )
    application.await_event("driver-requested", after=begin)
    application.await_event("recovered", after=begin, generation=2)
    application.await_event("incident-closed", after=begin)


def of_two_only_the_newer_commits_though_the_older_is_cut_from_the_store(
    surroundings: Surroundings,
) -> None:
    older = surroundings.application
    assert older.control is not None
    began = older.seen
    older.control.stop(older.control.sidecar)
    committed = len(older.commits())
    older.await_condition("commits without a store", lambda: len(older.commits()) > committed + 5)
    servers = older.control.zookeeper.connect_string
    second = Sidecar(older.cluster.temporary / "second", servers, place=PLACE)
    surroundings.stack.callback(second.end)
    second.start()
    newer = surroundings.succeed(second.socket)
    begin = newer.seen
    newer.start()
    assert older.await_end() == 1
    assert "let the newer driver go on" in older.last_words()
    older.control.proceed(older.control.sidecar)
    newer.await_event("recovered", after=begin, generation=3)
    newer.await_condition("its heartbeat", lambda: heartbeat_generation(surroundings) == 3)
    newer.finish()
    assert not older.happened("driver-requested", after=began)
    assert not newer.happened("driver-requested", after=begin)
    generations = [record["generation"] for record in newer.commits()]
    assert generations == sorted(generations)
    assert set(generations) == {1, 2, 3}


def another_store_under_its_name_is_refused_until_the_name_is_reset(
    surroundings: Surroundings,
) -> None:
    assert process_sets.await_condition(
        lambda: surroundings.record(store_paths.HEARTBEAT) is None, limit_seconds=LIMIT_SECONDS
    )
    fresh = surroundings.begin_anew()
    fresh.start()
    assert fresh.await_end() == 2
    assert fresh.last_words() == (
        f"application {PLACE}: has another checkpoint store, with a history up to generation 3; "
        f"name that store, give another name, or start over with `rekindle reset {PLACE}`, which "
        "forgets that history"
    )
    assert not fresh.store.exists(), "neither Spark nor a generation"
    assert fresh.control is not None
    command = [sys.executable, "-m", "rekindle_cli", "reset", str(PLACE), "--yes"]
    hosts = ("--zookeeper", fresh.control.zookeeper.connect_string)
    subprocess.run([*command, *hosts], check=True, timeout=LIMIT_SECONDS)
    fresh.start_and_recover()
    assert surroundings.standing().generation == 1
