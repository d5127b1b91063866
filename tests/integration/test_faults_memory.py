"""Hosts and the memory they may use: epochs shrink, or the run ends before a host is killed."""

from collections.abc import Callable

import hoarding
from application import Application

Prepare = Callable[..., Application]
STATE_MIB, WORK_MIB, PLENTY_MIB = 220, 260, 4_096
FAST = {"rows_per_second": 3_500}
RATE = {"rows_per_second": 1_200, "epoch_seconds": 2.5}
# Epochs of more rows are tight; at this rate one has half as many again.
ROWS_THAT_FIT, EPOCHS_TO_SETTLE = 2_000, 5


def assert_nobody_was_killed(application: Application) -> None:
    """Executors and their hosts have lived until the driver's end."""
    for kind in ("state-lost", "host-failed", "confirmed"):
        assert not application.happened(kind)


def test_a_state_that_outgrows_its_budget_ends_the_run_and_with_more_memory_it_goes_on(
    prepare: Prepare,
) -> None:
    application = prepare(pipeline=hoarding, runtime={**FAST, "host_memory_mib_max": STATE_MIB})
    application.start()
    assert application.await_end() == 1
    words = application.last_words()
    assert words.startswith("executor ")
    assert f"and may use {STATE_MIB:.1f} MiB; the largest states: hoard " in words
    assert "runtime.host_memory_mib_max, or spark.executor.memoryOverhead" in words
    assert "Traceback" not in application.driver.log.read_text()
    tight = application.happened("memory-tight")[0]
    assert tight["used_bytes"] / 2**20 > 0.8 * STATE_MIB
    assert tight["limit_bytes"] == STATE_MIB * 2**20
    assert_nobody_was_killed(application)
    committed = len(application.commits())
    application.change(**FAST, host_memory_mib_max=PLENTY_MIB)
    application.start_and_recover()
    assert len(application.commits()) > committed
    application.await_condition("the whole input is read", lambda: application.is_all_read)
    application.driver.request_finish()
    assert application.await_end() == 0, application.tail()
    application.assert_exactly_right()


def test_work_that_is_too_much_at_once_is_done_in_smaller_epochs_also_in_a_drain(
    prepare: Prepare,
) -> None:
    application = prepare(pipeline=hoarding, runtime={"host_memory_mib_max": WORK_MIB, **RATE})
    (application.traps / hoarding.WORK).touch()
    application.start_and_recover()
    application.await_event("memory-tight")
    recovered = application.events.index(application.happened("recovered")[0])
    application.finish()
    assert_nobody_was_killed(application)
    cuts = [application.happened("cut", after=after) for after in (0, recovered)]
    everything, since = ([cut["rows"] for cut in found] for found in cuts)
    assert max(everything) > ROWS_THAT_FIT
    assert max(since[EPOCHS_TO_SETTLE:]) <= ROWS_THAT_FIT
