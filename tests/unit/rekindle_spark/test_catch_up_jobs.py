"""Which executors catch up, and when."""

import threading
from types import SimpleNamespace
from typing import Any, cast

from rekindle_spark.application import Application
from rekindle_spark.catchup import CatchUp
from rekindle_spark.control import Control


def test_a_host_without_memory_for_an_epoch_catches_up_where_nothing_runs_on_it() -> None:
    progress = SimpleNamespace(placed={1: "a", 2: "b"}, live={1})
    budget = SimpleNamespace(starved={"a", "b"})
    application: Any = SimpleNamespace(progress=progress, budget=budget, lock=threading.RLock())
    catching_up = CatchUp(cast(Application, application), cast(Control, None))
    assert catching_up._starved() == {"a"}
    progress.live.clear()
    assert catching_up._starved() == set()
