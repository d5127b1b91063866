"""When the demo's run is taken to be normal."""

from typing import Any

from rekindle_local.demo import scenario


def cuts(*waited: float) -> list[dict[str, Any]]:
    """One epoch a second, cut so long after the last of its input came in; commits between."""
    records: list[dict[str, Any]] = []
    for epoch, seconds in enumerate(waited):
        records.append(
            {"kind": "cut", "epoch": epoch, "at": 100.0 + epoch, "cut_at": 100.0 + epoch - seconds}
        )
        records.append({"kind": "commit", "epoch": epoch, "at": 100.5 + epoch})
    return records


def test_a_backlog_of_the_start_must_be_worked_off_first() -> None:
    assert not scenario.is_level([])
    assert not scenario.is_level(cuts(149.0, 100.0, 50.0, 0.5, 0.0))
    assert scenario.is_level(cuts(149.0, 100.0, 50.0, 0.5, 0.0, 0.1, 0.0, 0.2))


def test_some_epochs_in_a_row_must_have_been_in_time() -> None:
    assert not scenario.is_level(cuts(0.0, 0.0, 0.0))
    assert not scenario.is_level(cuts(0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0))
