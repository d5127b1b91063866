"""What the rounds of `rekindle bench steady` come to: ratios and bars."""

from pathlib import Path

import pytest

from rekindle_bench import steady_benchmark
from rekindle_bench.steady_benchmark import SteadySample
from rekindle_local.flights.flight_pipeline import QUERY_KEYS

ALL = len(QUERY_KEYS)


def sample(
    system: str, rows: float, cpu: float, late: float = 1.0, quota: bool = True
) -> SteadySample:
    return SteadySample(system, ALL, rows, cpu, late, late, quota)


def met(directory: Path, *samples: SteadySample) -> dict[str, bool]:
    found = steady_benchmark._judge(samples, "command", directory)
    return {row["bar"]: row["met"] for row in found["bars"]}


def test_bars_are_medians_of_turns(tmp_path: Path) -> None:
    ours = [sample("rekindle", rows, 1.0, late) for rows, late in ((30, 2.0), (10, 2.4), (20, 9.0))]
    theirs = [sample("structured-streaming", 10.0, 5.0) for _ in ours]
    assert met(tmp_path, *ours, *theirs) == {
        f"{ALL} queries: p99 lag at 60% at most 2.5 epochs": True,
        f"{ALL} queries: at least 1.5 x Structured Streaming": True,
    }
    ours[2] = sample("rekindle", 14.0, 1.0, 3.0)
    assert not any(met(tmp_path, *ours[1:], *theirs[1:]).values())


def test_ratios_are_medians_of_turns(tmp_path: Path) -> None:
    turns = ((300, 2.0), (400, 9.0), (100, 2.2))
    ours = [sample("rekindle", rate, 10.0, late) for rate, late in turns]
    theirs = [sample("structured-streaming", 100.0, 10.0, 20.0) for _ in ours]
    found = steady_benchmark._judge([*ours, *theirs], "command", tmp_path)
    assert found["ratio"] == {"18": 3.0}
    assert [bar["met"] for bar in found["bars"]] == [True, True]
    assert (tmp_path / "steady.json").exists()


@pytest.mark.parametrize(("default", "adaptive"), [(2.0, 0.9), (0.9, 2.0)])
def test_the_better_of_flinks_schedulers_counts(
    tmp_path: Path, default: float, adaptive: float
) -> None:
    bar = f"{ALL} queries: rows per CPU second not below Flink's"
    ours, one = [sample("rekindle", 10.0, 1.0)] * 3, [sample("flink", 10.0, default)] * 3
    other = [sample("flink-adaptive", 10.0, adaptive)] * 3
    assert met(tmp_path, *ours, *one)[bar] is (default >= 1)
    assert met(tmp_path, *ours, *other)[bar] is (adaptive >= 1)
    assert met(tmp_path, *ours, *one, *other)[bar] is False


def test_without_quotas_no_bar_is_met(tmp_path: Path) -> None:
    assert not any(met(tmp_path, *[sample("rekindle", 10.0, 1.0, quota=False)] * 3).values())
    assert all(met(tmp_path, *[sample("rekindle", 10.0, 1.0)] * 3).values())


def test_with_fewer_than_three_turns_no_bar_is_met(tmp_path: Path) -> None:
    found = steady_benchmark._judge([sample("rekindle", 10.0, 1.0)] * 2, "command", tmp_path)
    assert [(bar["value"], bar["met"]) for bar in found["bars"]] == [
        ("1.0, with 2 of 3 runs", False)
    ]


def test_with_one_query_flinks_rows_per_cpu_second_are_told_and_not_judged(tmp_path: Path) -> None:
    costs = {("rekindle", 18): 5.0, ("rekindle", 1): 2.0, ("flink", 18): 10.0, ("flink", 1): 1.0}
    samples = [
        SteadySample(system, queries, 100.0, cost, 1.0, 2.0, True)
        for (system, queries), cost in costs.items()
        for _ in range(3)
    ]
    found = steady_benchmark._judge(samples, "command", tmp_path)
    assert found["cpu_ratio"] == {"18": 2.0, "1": 0.5}
    told = {bar["bar"]: (bar["value"], bar["met"]) for bar in found["bars"]}
    assert told["18 queries: rows per CPU second not below Flink's"] == ("2.00 x", True)
    assert not any(bar.startswith("1 query: rows per CPU") for bar in told)
    assert (tmp_path / "steady.json").exists()
