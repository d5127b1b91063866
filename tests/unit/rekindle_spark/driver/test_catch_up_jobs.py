"""Which executors catch up, and when."""

import threading
from types import SimpleNamespace
from typing import Any, cast

from rekindle_spark.control.control_loop import ControlLoop
from rekindle_spark.driver.catch_up_loop import PIECE_ROWS_MAX, CatchUpLoop, CatchUpStream
from rekindle_spark.driver.driver_context import DriverContext


def test_a_host_without_memory_for_an_epoch_catches_up_where_nothing_runs_on_it() -> None:
    progress = SimpleNamespace(placed={1: "a", 2: "b"}, live={1})
    budget = SimpleNamespace(starved={"a", "b"})
    application: Any = SimpleNamespace(progress=progress, budget=budget, lock=threading.RLock())
    catching_up = CatchUpLoop(cast(DriverContext, application), cast(ControlLoop, None))
    assert catching_up._starved() == {"a"}
    progress.live.clear()
    assert catching_up._starved() == set()


def test_a_piece_ends_with_the_epoch_that_fills_it_with_rows() -> None:
    cuts = {epoch: SimpleNamespace(rows=PIECE_ROWS_MAX // 2) for epoch in range(1, 9)}
    budget = SimpleNamespace(piece_epochs=lambda *_: 8)
    application: Any = SimpleNamespace(cuts=cuts, budget=budget)
    catching_up = CatchUpLoop(cast(DriverContext, application), cast(ControlLoop, None))
    assert catching_up._piece_end("a", CatchUpStream(), 1) == 3
    cuts.update({epoch: SimpleNamespace(rows=1) for epoch in cuts})
    assert catching_up._piece_end("a", CatchUpStream(), 1) == 8
    assert catching_up._piece_end("a", CatchUpStream(), 7) == 8
