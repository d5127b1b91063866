"""What tests of a whole control plane share: parts that stand still, and recoveries done once."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from application import Application
from surroundings import Surroundings

from rekindle.coordination.session import Driver
from rekindle.model.reasons import Reason
from rekindle.protocol import store_paths

FIRST, SECOND = "127.0.0.2", "127.0.0.3"


@contextmanager
def recovering_once(application: Application, *nodes: str) -> Iterator[int]:
    """What is harmed inside is recovered after it, and these nodes join: plan epochs only grew, and
    each partition was placed once for each time that it was lost. Gives the number of events
    before."""
    begin = application.seen
    yield begin
    for node in nodes:
        application.await_event("joined", after=begin, node=node)
    application.await_event("recovered", after=begin)
    application.await_event("incident-closed", after=begin)
    carried_out = [event["plan_epoch"] for event in application.happened("ack", after=begin)]
    assert carried_out
    assert carried_out == sorted(set(carried_out))


@contextmanager
def stopped(application: Application, part: str) -> Iterator[None]:
    """A part stands still, its connections open."""
    assert application.control is not None
    if part == "driver":
        assert application.driver.process is not None
        os.killpg(application.driver.process.pid, signal.SIGSTOP)
        yield
        os.killpg(application.driver.process.pid, signal.SIGCONT)
        return
    daemon = getattr(application.control, part)
    application.control.stop(daemon)
    yield
    application.control.proceed(daemon)


def is_silent(surroundings: Surroundings, seconds: float) -> bool:
    """Whether the status has said for so long that the driver is silent."""
    found = surroundings.standing()
    told = Reason.DRIVER_SILENT in [notice.reason for notice in found.notices]
    since = time.time() if found.driver_since is None else found.driver_since
    return told and found.driver is Driver.SILENT and time.time() - since > seconds


def kept_driver(surroundings: Surroundings) -> str | None:
    """What the coordinator has written of the driver."""
    record = surroundings.record(store_paths.COORDINATION)
    return None if record is None else str(record["driver"])


def heartbeat_generation(surroundings: Surroundings) -> int | None:
    """Of the heartbeat that stands; None without one."""
    record = surroundings.record(store_paths.HEARTBEAT)
    return None if record is None else int(record["generation"])
