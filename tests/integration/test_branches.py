"""Steps without keys raise: their branches alone stop, and catch up once they are mended."""

from collections.abc import Callable

import branching
from application import Application, compare

Prepare = Callable[..., Application]
STOPPED, OTHERS = {"good", "good-daily", "fine-days", "most"}, ("all-warm", "daily")
TEXTS = {"checked": "a bad reading", "judged": "a bad day"}


def test_branches_stop_alone_through_losses_and_catch_up_once_they_are_mended(
    prepare: Prepare,
) -> None:
    application = prepare(pipeline=branching, runtime={"outage_checkpoint_seconds": 3})
    application.start_and_recover()
    begin = application.seen
    for step, text in TEXTS.items():
        branch = application.await_event("branch-stopped", step=step)
        assert branch["text"].startswith(f"step {step}: raised ValueError: {text}, at epoch ")
    for query in STOPPED:
        application.await_event("query-stopped", query=query)
    application.await_event("checkpoint", after=application.seen)

    victim, lost_from = min(application.nodes_of("readings")), application.seen
    application.cluster.kill([victim])
    application.await_event("confirmed", after=lost_from, node=victim)
    application.await_event("incident-closed", after=lost_from)
    # a driver that is killed has left everything to the next one
    application.driver.kill()
    next_from = application.seen
    application.start()
    application.await_event("recovered", after=next_from)
    application.drain()
    application.driver.request_finish()
    assert application.await_end() == 1, application.tail()
    assert application.last_words().startswith("step ")
    assert "raised ValueError: a bad " in application.last_words()

    told = application.happened("query-stopped", after=begin)
    assert {event["query"] for event in told} == STOPPED
    found, wanted = application.outputs(), branching.expected(application.inputs)
    for query in OTHERS:
        compare(query, found[query], wanted[query])
    assert len(found["good"]) < len(wanted["good"])
    commits, checkpoint = (
        len(application.commits()),
        application.happened("checkpoint")[-1]["epoch"],
    )

    (application.traps / branching.MENDED).touch()
    application.start()
    assert application.await_end() == 0, application.tail()
    application.assert_exactly_right()
    # the branches go back to where they stopped, and nothing else does
    behind = {
        name.split("/")[0]
        for record in application.commits()[commits:]
        for name, (first, _, _) in record["finished"].items()
        if first <= checkpoint
    }
    assert behind == {"checked~branch", "checked-by-day", "judged~branch", "most-readings"}
