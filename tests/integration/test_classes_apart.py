"""Slow functions of unimportant queries: they run behind the epochs, and every row is right."""

from collections.abc import Callable, Mapping

import sluggish
from application import Application
from harms import lose, meet, node_of

Prepare = Callable[..., Application]
RUNTIME = {
    "rows_per_second": 150,
    "epoch_seconds": sluggish.EPOCH_SECONDS,
    "checkpoint_seconds": 3,
    "outage_checkpoint_seconds": 4,
    "classes": "auto",
}
OTHERS = ("hourly", "lone")


def test_slow_functions_run_behind_an_important_query_through_a_loss_and_a_dead_driver(
    prepare: Prepare,
) -> None:
    application = prepare(pipeline=sluggish, runtime=RUNTIME)
    application.start_and_recover()
    (application.traps / sluggish.SLOW).touch()
    await_apart(application)
    meet(
        application,
        checkpoints_have_the_states_of_both_classes,
        a_loss_while_classes_are_apart,
        an_important_query_does_not_wait_for_a_function_that_hangs,
        a_driver_that_dies_while_classes_are_apart_goes_on_from_its_store,
        spread=False,
    )
    (application.traps / sluggish.SLOW).unlink()
    application.finish()


def await_apart(application: Application) -> None:
    """Wait until classes run apart: the newest of these events says so."""
    kinds = ("classes-apart", "classes-together")

    def are_apart() -> bool:
        newest = [event["kind"] for event in application.events if event["kind"] in kinds]
        return newest[-1:] == ["classes-apart"]

    application.await_condition("classes run apart", are_apart)
    application.await_event("ran-behind", after=application.seen)


def reached(application: Application) -> Mapping[str, int]:
    """The newest epoch that counts, by query partition."""
    found: dict[str, int] = {}
    for event in application.happened("commit"):
        name = event["query_partition"]
        found[name] = max(found.get(name, 0), event["epoch"])
    return found


def is_split(application: Application) -> bool:
    """Whether the important query is three epochs ahead of one of the others."""
    epochs = reached(application)
    daily = min(epoch for name, epoch in epochs.items() if name.startswith("daily"))
    return daily > min(epoch for name, epoch in epochs.items() if name.startswith(OTHERS)) + 2


def await_split(application: Application) -> None:
    application.await_condition("classes are at different epochs", lambda: is_split(application))


def checkpoints_have_the_states_of_both_classes(application: Application) -> None:
    begin = application.seen
    for _ in range(2):
        application.await_event("checkpoint", after=application.seen, behind=0)
    assert not application.happened("classes-together", after=begin)


def a_loss_while_classes_are_apart(application: Application) -> None:
    victim = node_of(application, "by-hour")
    begin = lose(application, [victim])
    application.await_event("recovered", after=begin)
    application.cluster.start_worker(victim)
    await_apart(application)


def an_important_query_does_not_wait_for_a_function_that_hangs(application: Application) -> None:
    begin = application.seen
    (application.traps / sluggish.HANGS).touch()
    await_split(application)
    # nobody waits for those that hang: a checkpoint has their input
    application.await_condition("a checkpoint", lambda: has_checkpoint_of_some(application, begin))
    assert not ran_longer(application, sluggish.SECONDS[sluggish.HANGS], begin)
    lags = daily_lags(application, begin)
    assert len(lags) >= 5
    assert max(lags) < sluggish.SECONDS[sluggish.HANGS] / 3
    assert not application.happened("function-suspected", after=begin)
    application.await_condition("they catch up", lambda: not is_split(application))


def ran_longer(application: Application, seconds: float, begin: int) -> bool:
    """Whether a job behind the epochs has taken so long, since then."""
    jobs = application.happened("ran-behind", after=begin)
    return any(event["seconds"] > seconds for event in jobs)


def has_checkpoint_of_some(application: Application, begin: int) -> bool:
    return any(event["behind"] for event in application.happened("checkpoint", after=begin))


def daily_lags(application: Application, begin: int) -> list[float]:
    """Of epochs cut since then how long the important query took until all of it counted."""
    cuts = {event["epoch"]: event["cut_at"] for event in application.happened("cut", after=begin)}
    ends: dict[int, list[float]] = {}
    for event in application.happened("commit", after=begin, query="daily"):
        ends.setdefault(event["epoch"], []).append(event["at"])
    return [max(at) - cuts[epoch] for epoch, at in ends.items() if epoch in cuts and len(at) == 2]


def a_driver_that_dies_while_classes_are_apart_goes_on_from_its_store(
    application: Application,
) -> None:
    (application.traps / sluggish.CRAWLS).touch()
    await_split(application)
    application.driver.kill()
    # it would be as slow to catch up
    (application.traps / sluggish.CRAWLS).unlink()
    application.start_and_recover()
    await_apart(application)
