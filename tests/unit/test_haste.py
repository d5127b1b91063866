"""How fast input that is behind is cut: as fast as it is run, or one epoch after the other."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rekindle_spark.application import Application
from rekindle_spark.checkpointing import Checkpointing
from rekindle_spark.control import Control
from rekindle_spark.epochs import STALL_SECONDS_MAX, EpochLoop

NOW, EPOCH_SECONDS = 1000.0, 2.0


def pause(monkeypatch: pytest.MonkeyPatch, *, behind: float, live: set[int], of: int = 2) -> float:
    """Seconds from a cut that leaves rows out to the next one."""
    monkeypatch.setattr("rekindle_spark.epochs.time.time", lambda: NOW)
    cut = SimpleNamespace(
        epoch=1, rows=10, cut_at=NOW - behind, final=False, record=lambda: {"epoch": 1}
    )
    application: Any = SimpleNamespace(
        settings=SimpleNamespace(runtime=SimpleNamespace(epoch_seconds=EPOCH_SECONDS)),
        progress=SimpleNamespace(live=live, complete=len(live) == of),
        arrivals=SimpleNamespace(
            last=cut, is_behind=True, cut=lambda *_, **__: cut, adopt=lambda _: cut
        ),
        store=SimpleNamespace(log_offsets=lambda _, record: record),
        events=SimpleNamespace(write=lambda *_, **__: None),
        cuts={},
        lock=threading.RLock(),
    )
    loop = EpochLoop(
        cast(Application, application),
        cast(Control, SimpleNamespace(rows_per_second=1.0)),
        cast(Checkpointing, None),
        lambda: False,
        lambda: False,
    )
    loop._cut()
    return loop.next_cut_at - NOW


def test_while_all_run_no_time_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pause(monkeypatch, behind=3600.0, live={0, 1}) == 0


def test_where_nothing_runs_input_is_cut_an_epoch_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert pause(monkeypatch, behind=1.0, live=set()) == EPOCH_SECONDS


def test_what_a_stall_has_left_goes_before_what_is_to_catch_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert pause(monkeypatch, behind=STALL_SECONDS_MAX, live={0}) == 0


def test_a_long_backlog_leaves_time_to_what_is_to_catch_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pause(monkeypatch, behind=STALL_SECONDS_MAX + 1, live={0}) == EPOCH_SECONDS
