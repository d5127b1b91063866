"""Eight nodes of ten lost, announced and not: the ratio beside its bar, and what it is made of."""

from typing import Any

import pytest

from rekindle.model.errors import RunError
from scenarios import announced_pair, scenario_selection
from scenarios.announced_pair import ANNOUNCED, RATIO, UNANNOUNCED


def reports(announced: float, unannounced: float) -> dict[str, dict[str, Any]]:
    seconds = {ANNOUNCED: announced, UNANNOUNCED: unannounced}
    return {
        way: {"weighted_unavailable_seconds": value, "throughput_rows_per_second": 60_000.4}
        for way, value in seconds.items()
    }


@pytest.mark.parametrize(("announced", "word"), [(20.0, "met"), (20.2, "missed")])
def test_the_ratio_stands_beside_its_bar_and_its_parts(announced: float, word: str) -> None:
    found = announced_pair.figures(reports(announced, 100.0))
    assert found[RATIO] == {"value": pytest.approx(announced / 100.0), "unit": "", "bar": 0.2}
    said = announced_pair.verdict(found)
    assert f"bar 0.2, {word}; " in said
    assert f"weighted unavailability announced {announced:g} s" in said
    assert "rate unannounced 60000 rows/s" in said


def test_where_nothing_was_unavailable_there_is_no_ratio() -> None:
    with pytest.raises(RunError, match="there is no ratio"):
        announced_pair.figures(reports(0.0, 0.0))


def test_both_lose_eight_nodes_and_run_once_whatever_the_strategies() -> None:
    assert all("Eight of ten" in scenario.lost for scenario in announced_pair.WAYS.values())
    selected = scenario_selection.select([announced_pair.NAME], ["blocking", "incremental"])
    assert [run.name for run in selected.runs] == [announced_pair.NAME]
