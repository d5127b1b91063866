"""Bars of protected queries, from what runs with and without protection came to."""

from collections.abc import Mapping
from typing import Any

import pytest

from rekindle_bench import protect_benchmark
from rekindle_bench.protect_benchmark import UNPROTECTED, ProtectedRun
from rekindle_peers.peer_table import PROTECTED

RIGHT = {"expected_rows": 9, "missing": 0, "duplicated": 0, "wrong": 0}
BEFORE = {"python": 0.02, "calls": 0.01, "sidecar": 0.0, "all": 1.0}
COSTS = {"python": 0.022, "calls": 0.013, "sidecar": 0.005, "all": 1.0}


def run(system: str, seed: int, seconds: float, **more: Any) -> ProtectedRun:
    cpu: Mapping[str, float] = COSTS if system == PROTECTED else BEFORE
    fields = {"exactly_once": RIGHT, "quota_enforced": True, "cpu_shares": cpu, **more}
    return ProtectedRun(system, seed, seconds, **fields)


def thrice(ours: float, theirs: float, **more: Any) -> list[ProtectedRun]:
    return [
        run(system, seed, seconds, **more)
        for seed in (1, 2, 3)
        for system, seconds in ((PROTECTED, ours), (UNPROTECTED, theirs))
    ]


def judged(runs: list[ProtectedRun]) -> list[tuple[str, bool]]:
    return [(bar.value, bar.met) for bar in protect_benchmark.bars(runs, "bench")]


def test_unavailability_with_protection_is_at_most_half_of_that_without() -> None:
    assert judged(thrice(50.0, 100.0))[0] == ("0.50", True)
    assert judged(thrice(51.0, 100.0))[0] == ("0.51", False)


def test_a_failure_that_costs_nothing_without_protection_gives_no_infinite_ratio() -> None:
    assert judged(thrice(0.0, 0.0))[0] == ("0.00", True)
    assert judged(thrice(2.0, 0.0))[0] == ("2.00", False)


def test_protection_costs_what_python_and_its_calls_take_more_and_the_sidecar() -> None:
    assert protect_benchmark.cost_percent(COSTS, BEFORE) == pytest.approx(1.0)
    dearer = {**COSTS, "sidecar": 0.006}
    runs = [*thrice(1.0, 9.0), run(PROTECTED, 1, 1.0, cpu_shares=dearer)]
    assert judged(runs)[1] == ("1.0 %", True), "it is the median of the seeds"


def test_bars_of_medians_need_three_seeds_and_quotas_and_right_rows_need_neither() -> None:
    assert [met for _, met in judged(thrice(1.0, 9.0)[:4])] == [False, False, True]
    assert [met for _, met in judged(thrice(1.0, 9.0, quota_enforced=False))] == [
        False,
        False,
        True,
    ]
    wrong = thrice(1.0, 9.0, exactly_once={**RIGHT, "duplicated": 1})
    assert judged(wrong)[2] == ("6 rows missing or wrong", False)


def test_who_runs_first_alternates() -> None:
    assert protect_benchmark.in_turn(0) == protect_benchmark.in_turn(1)[::-1]
