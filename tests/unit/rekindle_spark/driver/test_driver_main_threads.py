"""A driver's threads end with it, also where one of them cannot be started."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from memory_files import MemoryFiles

from rekindle.model.settings import Settings
from rekindle_spark.driver import driver_main
from rekindle_spark.output.output_compaction import Compaction
from rekindle_spark.output.sink_publishing import SinkPublishers
from rekindle_spark.store.segment_writer import SegmentWriter
from rekindle_spark.store.user_requests import UserRequests

WORKERS = {
    "requests": UserRequests,
    "sealing": SegmentWriter,
    "compaction": Compaction,
}


class Unused:
    """Stands for a part that does nothing before the loop runs."""

    def __init__(self, *_: object, **__: object) -> None: ...


class CatchUp:
    """A catch-up loop that goes on until the application stops."""

    def __init__(self, application: Any, _: object) -> None:
        self.application = application

    def start(self) -> threading.Thread:
        """Start the thread."""
        thread = threading.Thread(target=self._loop, name="catch-up", daemon=True)
        thread.start()
        return thread

    def _loop(self) -> None:
        while not self.application.stopping:
            threading.Event().wait(0.001)


class Polls:
    """Notes that it was stopped."""

    is_stopped = False

    def start(self) -> None:
        """Cannot be started."""
        raise RuntimeError("can't start new thread")

    def stop(self) -> None:
        """Take note."""
        self.is_stopped = True


@pytest.mark.parametrize("failing", [*WORKERS, "polls"])
def test_threads_that_have_started_end_where_another_one_cannot_start(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    for name in ("CheckpointCoordinator", "ControlLoop", "EpochLoop"):
        monkeypatch.setattr(driver_main, name, Unused)
    monkeypatch.setattr(driver_main, "CatchUpLoop", CatchUp)

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    if failing in WORKERS:
        monkeypatch.setattr(WORKERS[failing], "start", fail)
    store = SimpleNamespace(
        files=MemoryFiles(),
        generation=1,
        covered=0,
        settled=0,
        check_generation=lambda: None,
        holds=lambda _: False,
    )
    application: Any = SimpleNamespace(
        store=store,
        settings=Settings(),
        events=None,
        polls=Polls(),
        sinks=SinkPublishers(),
        stopping=False,
    )
    before = set(threading.enumerate())
    guidance: Any = None
    with pytest.raises(RuntimeError, match="can't start new thread"):
        driver_main._run(application, guidance, 0)
    assert set(threading.enumerate()) <= before
    assert application.stopping
    assert application.polls.is_stopped
