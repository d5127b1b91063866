"""Faults of links and of who is at their ends, while epochs follow each other: no row changes.

What is blocked, slow, repeated or stands still drops nobody. What epochs that follow may hold has a
limit. Losses hit a drain, and a second node before the epoch of the first loss has run.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from application import Application, Before, host_of, jvm_of
from following import (
    CLOSE,
    LINKS,
    MOST,
    epochs_follow_again,
    follow,
    number_on_their_way,
)
from harms import a_step_that_crawls, all_nodes, lose, meet, node_of, start_workers
from link_relay import LinkRelay, cut

from rekindle_local import process_sets
from rekindle_local.port_reservation import hold_port
from rekindle_spark.jobs.link_health import REFUSALS_MAX

Prepare = Callable[..., Application]
PORT = "spark.rekindle.links.port"
STANDSTILLS_SECONDS = (1.0, 5.0, 20.0)
# The reports of one epoch are more.
NEXT_TO_NOTHING_MIB = 0.001
# Messages take so long that epochs do, and none takes as long as it may.
SLOW_BYTES_PER_SECOND, SLOW_SECONDS_MIN = 4_000.0, 5.0
CUT_SECONDS, REPEATS_MIN = 3.0, 20
WITHOUT_CREDIT = {**CLOSE, "link_mib_max": 0.0}


@contextmanager
def port_of_links(application: Application) -> Iterator[int]:
    """A port that is free on all nodes, and theirs alone."""
    with hold_port("") as held:
        port = int(held.getsockname()[1])
        application.spark = {PORT: str(port)}
        yield port


def epochs_run_over_links(application: Application, *, count: int = 3) -> None:
    """So many more epochs count."""
    begin = application.seen
    application.await_condition(
        "epochs run over links",
        lambda: len(application.happened("ran", after=begin, linked=True)) >= count,
    )


def test_links_that_are_cut_for_a_while_slow_or_repeat_what_they_carry_change_no_row(
    prepare: Prepare,
) -> None:
    application = prepare(runtime=CLOSE)
    with port_of_links(application) as port, LinkRelay(port) as relay:
        application.start_and_recover()
        epochs_run_over_links(application)
        meet(
            application,
            harmless(all_links_are_cut_for_three_seconds, relay),
            harmless(one_that_reads_slowly_is_waited_for, relay),
            harmless(frames_come_twice_and_of_jobs_that_are_over, relay),
            spread=False,
        )
        application.finish()


def harmless(
    harm: Callable[[Application, LinkRelay], None], relay: LinkRelay
) -> Callable[[Application], None]:
    """A harm of links, after which jobs still go over them, and all processes are the same."""

    def check(application: Application) -> None:
        before = Before.of(application)
        harm(application, relay)
        epochs_run_over_links(application)
        before.assert_untouched(all_nodes(application))
        assert not application.happened("links-rest", after=before.events)

    check.__name__ = harm.__name__
    return check


def all_links_are_cut_for_three_seconds(_: Application, relay: LinkRelay) -> None:
    relay.is_open.clear()
    time.sleep(CUT_SECONDS)
    relay.is_open.set()


def one_that_reads_slowly_is_waited_for(application: Application, relay: LinkRelay) -> None:
    relay.slow[node_of(application, "by-hour")] = SLOW_BYTES_PER_SECOND
    application.await_condition(
        "messages come slowly", lambda: relay.slow_seconds >= SLOW_SECONDS_MIN
    )
    epochs_run_over_links(application)
    relay.slow.clear()


def frames_come_twice_and_of_jobs_that_are_over(application: Application, relay: LinkRelay) -> None:
    relay.repeats, before = True, relay.repeated
    application.await_condition(
        "frames are repeated", lambda: relay.repeated >= before + REPEATS_MIN
    )
    relay.repeats = False


def test_where_the_port_of_links_is_blocked_jobs_run_until_it_is_open(prepare: Prepare) -> None:
    application = prepare(runtime=LINKS)
    with port_of_links(application) as port:
        with cut({port}):
            application.start_and_recover()
            application.await_event("links-rest")
            application.await_event("ran", linked=False)
            assert not application.happened("ran", linked=True)
            before = Before.of(application)
        epochs_run_over_links(application)
        before.assert_untouched(all_nodes(application))
        application.finish()


def test_executors_and_hosts_that_stand_still_for_up_to_twenty_seconds_change_no_row(
    prepare: Prepare,
) -> None:
    application = prepare(policy={"silent_seconds": 30}, runtime=CLOSE)
    application.start_and_recover()
    for seconds in STANDSTILLS_SECONDS:
        for process_of in (jvm_of, host_of):
            meet(application, standstill(process_of, seconds), spread=False)
    application.finish()


def test_where_readers_never_grant_credit_frames_go_through_files_and_no_row_changes(
    prepare: Prepare,
) -> None:
    """Nothing is sent but where frames are: as if a reader never gave back what it was sent."""
    application = prepare(policy={"silent_seconds": 30}, runtime=WITHOUT_CREDIT)
    application.start_and_recover()
    epochs_run_over_links(application)
    slow = application.await_event("links-wait")
    assert slow["node"] in all_nodes(application)
    assert slow["refusals"] > REFUSALS_MAX
    assert not application.happened("links-rest")
    for seconds in STANDSTILLS_SECONDS:
        meet(application, standstill(jvm_of, seconds), spread=False)
    application.finish()


def test_without_credit_links_that_are_cut_or_repeat_where_frames_are_change_no_row(
    prepare: Prepare,
) -> None:
    application = prepare(runtime=WITHOUT_CREDIT)
    with port_of_links(application) as port, LinkRelay(port) as relay:
        application.start_and_recover()
        epochs_run_over_links(application)
        meet(
            application,
            harmless(all_links_are_cut_for_three_seconds, relay),
            harmless(frames_come_twice_and_of_jobs_that_are_over, relay),
            spread=False,
        )
        application.finish()


def standstill(
    process_of: Callable[[Application, str], int], seconds: float
) -> Callable[[Application], None]:
    """One process of a node stands still for so long, while epochs follow each other."""

    def stand_still(application: Application) -> None:
        before, victim = Before.of(application), node_of(application, "by-hour")
        with stopped(process_of(application, victim)):
            time.sleep(seconds)
        epochs_run_over_links(application)
        before.assert_untouched(all_nodes(application))

    stand_still.__name__ = f"{process_of.__name__}_a_node_stands_still_for_{seconds:.0f}_s"
    return stand_still


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process does nothing."""
    process_sets.signal_all([pid], signal.SIGSTOP)
    yield
    process_sets.signal_all([pid], signal.SIGCONT)


def test_what_follows_is_bounded_and_losses_upon_a_loss_and_in_a_drain_change_no_row(
    prepare: Prepare,
) -> None:
    policy = {"silent_seconds": 8}
    application = prepare(
        policy=policy, runtime={**CLOSE, "following_mib_max": NEXT_TO_NOTHING_MIB}
    )
    application.start_and_recover()
    nothing_follows_where_one_epoch_is_as_much_as_may_be_held(application)
    application.driver.kill()
    application.change(policy=policy, **CLOSE)
    application.start_and_recover()
    epochs_follow_again(application)
    meet(application, a_second_one_is_killed_before_the_epoch_of_the_first_loss_has_run)
    one_is_killed_in_the_drain(application)
    application.driver.request_finish()
    assert application.await_end() == 0, application.tail()
    assert application.is_all_read
    application.assert_exactly_right()


def nothing_follows_where_one_epoch_is_as_much_as_may_be_held(application: Application) -> None:
    begin = application.seen
    with a_step_that_crawls(application):
        epochs_run_over_links(application, count=MOST)
    assert not any(ran["following"] for ran in application.happened("ran", after=begin))


def a_second_one_is_killed_before_the_epoch_of_the_first_loss_has_run(
    application: Application,
) -> None:
    first, second, *_ = all_nodes(application)
    with a_step_that_crawls(application):
        application.await_condition("epochs follow each other", lambda: follow(application))
        begin = lose(application, [first])
        assert number_on_their_way(application.events) >= 1
        since = application.events.index(application.happened("confirmed", after=begin)[0])
        again = lose(application, [second])
        assert "ran" not in {event["kind"] for event in application.events[since:again]}
    start_workers(application, first, second, after=begin)
    application.await_event("recovered", after=again)


def one_is_killed_in_the_drain(application: Application) -> None:
    victim = node_of(application, "by-hour")
    with a_step_that_crawls(application):
        begin = application.seen
        application.drain()
        application.await_event("drain", after=begin)
        lost = lose(application, [victim])
        assert number_on_their_way(application.events) >= 1
    start_workers(application, victim, after=lost)
    application.await_event("recovered", after=lost)
