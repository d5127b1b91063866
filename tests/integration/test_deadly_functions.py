"""Functions that end or hang their process: they are blamed, and nobody else pays for them."""

import re
from collections.abc import Callable

import deadly
import pytest
from application import Application, compare, kill_host

Prepare = Callable[..., Application]
RUNTIME = {"rows_per_second": 600, "function_seconds_max": 4, "host_memory_mib_max": 200}
LETTER_COLUMNS = ["dead_letter_step", "dead_letter_epoch", "dead_letter_error"]
# Two at a time: what is said of each once it has stopped.
HARMS = (
    {
        "segfault": "ended its process with SIGSEGV",
        "loop": "took longer than 4 s",
    },
    {
        "exit": "ended its process with exit code 0",
        "regex": "took longer than 4 s",
    },
    {
        "kill": "ended its process with SIGKILL",
        "deadlock": "took longer than 4 s",
    },
    {"memory": r"used more than \d+ MiB of memory"},
)

# Trials leave the CPU to others, and only time on it counts: on a busy machine that takes long.
BLAMED_SECONDS_MAX = 600.0


@pytest.mark.timeout(2_400)
def test_functions_that_end_or_hang_their_process_stop_alone_and_go_on_once_mended(
    prepare: Prepare,
) -> None:
    application = prepare(pipeline=deadly, runtime=RUNTIME)
    application.start_and_recover()
    begin = application.seen
    for harms in HARMS:
        before = application.seen
        for name in harms:
            (application.traps / name).touch()
        for name, end in harms.items():
            stopped = application.await_event(
                "query-stopped",
                after=before,
                limit_seconds=BLAMED_SECONDS_MAX,
                query=f"query-{name}",
            )
            assert re.match(f"step {name}: {end}, at epoch ", stopped["text"])
            assert application.happened("function-suspected", after=before, step=name)
        application.await_event("recovered", after=before)
    stopped = [event["query"] for event in application.happened("query-stopped")]
    assert sorted(stopped) == sorted(f"query-{name}" for name in deadly.HARMS)
    for kind in ("plan", "nodes-requested", "nodes-lost", "confirmed", "host-failed", "state-lost"):
        assert not application.happened(kind, after=begin)
    mend_and_finish(application)


@pytest.mark.timeout(2_400)
def test_with_classes_apart_no_host_dies_of_them_and_every_row_is_right(prepare: Prepare) -> None:
    application = prepare(pipeline=deadly, runtime={**RUNTIME, "classes": "apart"})
    application.start_and_recover()
    begin = application.seen
    application.await_event("ran-behind", after=begin)
    for name in deadly.HARMS:
        (application.traps / name).touch()
    for name in deadly.HARMS:
        application.await_event(
            "query-stopped",
            after=begin,
            limit_seconds=BLAMED_SECONDS_MAX,
            query=f"query-{name}",
        )
    application.await_event("recovered", after=begin)
    for kind in ("host-restarted", "plan", "nodes-requested", "nodes-lost", "host-failed"):
        assert not application.happened(kind, after=begin)
    mend_and_finish(application)


def test_records_that_end_their_process_are_dead_letters_exactly_once_whatever_is_killed(
    prepare: Prepare,
) -> None:
    # records at fault are in few epochs then: each of these is searched by itself
    application = prepare(pipeline=deadly, runtime={**RUNTIME, "rows_per_second": 8_000})
    (application.traps / deadly.RECORDS).touch()
    application.start()
    for step in ("checked", "counted"):
        application.await_event("function-suspected", step=step)
        application.await_event("dead-letters", step=step)
    begin = application.seen
    kill_host(application, min(application.nodes_of("by-day")))
    application.await_event("recovered", after=begin)
    victim, begin = min(application.nodes_of("counted")), application.seen
    application.cluster.kill([victim])
    application.await_event("confirmed", after=begin, node=victim)
    application.await_event("incident-closed", after=begin)
    application.await_condition("the whole input is read", lambda: _has_read_all(application))
    application.driver.request_finish()
    assert application.await_end() == 0, application.tail()
    assert not application.happened("query-stopped")
    found, wanted = application.outputs(), deadly.expected_beside_letters(application.inputs)
    assert set(found) == set(wanted)
    for name, rows in wanted.items():
        compare(name, found[name].drop(LETTER_COLUMNS, strict=False), rows)


def _has_read_all(application: Application) -> bool:
    offsets = application.newest_cut()["offsets"].values()
    return sum(end for _, end in offsets) == deadly.RECORDS_ROWS


def mend_and_finish(application: Application) -> None:
    """Some queries have stopped, which its exit code says; mended, they go on to the end."""
    application.drain()
    application.driver.request_finish()
    assert application.await_end() == 1, application.tail()
    (application.traps / deadly.MENDED).touch()
    application.start()
    assert application.await_end() == 0, application.tail()
    application.assert_exactly_right()
