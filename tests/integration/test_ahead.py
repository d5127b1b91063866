"""Epochs that take longer than they are apart: sources go ahead, and every row is right.

So it is with checkpoints, losses and drivers that die in between.
"""

from collections import Counter
from collections.abc import Callable

from application import LASTING, Application
from harms import a_step_that_crawls, all_nodes, lose, meet

Prepare = Callable[..., Application]


def test_sources_go_ahead_of_late_epochs_through_losses_and_a_dead_driver_and_no_row_changes(
    prepare: Prepare,
) -> None:
    application = prepare(runtime=LASTING)
    application.start_and_recover()
    meet(
        application,
        they_do_with_checkpoints_of_all_states,
        what_went_ahead_before_a_loss_is_right_after_it,
        a_driver_that_dies_while_sources_are_ahead_goes_on_from_its_store,
    )
    application.finish()


def await_ahead(application: Application) -> int:
    """Have an epoch be late, and wait until sources have gone ahead; of which epoch."""
    with a_step_that_crawls(application):
        ran = application.await_event("ran", after=application.seen, ahead=True)
    return int(ran["epoch"])


def they_do_with_checkpoints_of_all_states(application: Application) -> None:
    first = await_ahead(application)
    checkpoints = []
    for _ in range(2):
        found = application.await_event("checkpoint", after=application.seen, behind=0)
        checkpoints.append(found["epoch"])
        await_ahead(application)
    counts: Counter[int] = Counter()
    for record in application.commits():
        counts.update(end for _, end, _ in record["finished"].values())
    partitions = len(application.placement())
    assert {counts[epoch] for epoch in range(first, checkpoints[-1] + 1)} == {partitions}


def what_went_ahead_before_a_loss_is_right_after_it(application: Application) -> None:
    for victim in all_nodes(application)[:2]:
        await_ahead(application)
        begin = lose(application, [victim])
        application.await_event("recovered", after=begin)
        application.cluster.start_worker(victim)


def a_driver_that_dies_while_sources_are_ahead_goes_on_from_its_store(
    application: Application,
) -> None:
    with a_step_that_crawls(application):
        application.await_condition("sources are ahead", lambda: is_ahead(application))
        application.driver.kill()
    application.start_and_recover()
    await_ahead(application)


def is_ahead(application: Application) -> bool:
    """Whether the newest commit record is of sources, whose epoch nothing else has finished."""
    finished = application.commits()[-1]["finished"]
    return bool(finished) and not {"by-hour/0", "by-hour/1"} & finished.keys()
