"""When the next epoch is due."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.settings import RuntimeSettings
from rekindle_spark import arrivals
from rekindle_spark.epochs import EpochLoop

NOW = 1_000.0


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle_spark.epochs.time.time", lambda: NOW)


def waiting_for(*, complete: bool, hurries: bool = False) -> float:
    """Seconds from a cut to the next one, with epochs of 0.5 s that are tripled in a recovery."""
    first = arrivals.beginning({}, 0.0, 1.0)
    application: Any = SimpleNamespace(
        settings=SimpleNamespace(
            runtime=RuntimeSettings(epoch_seconds=0.5, recovery_epoch_stretch=3.0)
        ),
        progress=SimpleNamespace(complete=complete, live={1}),
        arrivals=SimpleNamespace(
            cut=lambda *_, **__: first, hurries=lambda *_, **__: hurries, adopt=lambda _: first
        ),
        store=SimpleNamespace(log_offsets=lambda *_: {}),
        lock=threading.Lock(),
        cuts={},
        events=SimpleNamespace(write=lambda *_, **__: None),
    )
    control: Any = SimpleNamespace(rows_per_second=1.0)
    checkpointing: Any = SimpleNamespace()
    loop = EpochLoop(application, control, checkpointing, lambda: False, lambda: False)
    loop._cut()
    return loop.next_cut_at - NOW


def test_epochs_are_longer_while_something_lost_is_not_back() -> None:
    assert waiting_for(complete=True) == 0.5
    assert waiting_for(complete=False) == 1.5


def test_what_a_stall_has_left_is_cut_at_once_in_a_recovery_too() -> None:
    assert waiting_for(complete=False, hurries=True) == 0.0
