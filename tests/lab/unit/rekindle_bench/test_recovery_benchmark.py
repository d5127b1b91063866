"""The figures of recoveries beside peers: outages from events, ratios, bars and the picture."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from contests import Ran, counted, record, thrice

from rekindle import report
from rekindle.model import run_events
from rekindle.model.errors import RunError
from rekindle.model.run_events import Event
from rekindle_bench import (
    contest_order,
    lag_chart,
    outage_figures,
    recovery_benchmark,
    recovery_runs,
    system_comparison,
)
from rekindle_bench.contest_order import Contest, in_turn
from rekindle_bench.lag_chart import Curve
from rekindle_bench.recovery_runs import RecoveryRun
from rekindle_local.demo.demo_scenario import DemoOptions
from rekindle_local.failure_schedule import demo, workers
from rekindle_local.flights.flight_pipeline import QUERY_KEYS
from rekindle_peers.peer_run import PeerOutcome
from rekindle_peers.peer_scenario import PeerTrial
from rekindle_peers.peer_table import PEERS
from rekindle_testing import run_builders as made_up

PRIORITIES = {"late": 3.0, "early": 1.0}


def told(
    outage: float = 30.0, second: float | None = None, names: Sequence[str] = tuple(PRIORITIES)
) -> list[Event]:
    """Epochs of one second, committed at once; `late` stands still for a while after failures."""
    silent = [(0.0, outage)] + ([] if second is None else [(second, second + outage)])
    events = [Event(-40.0, "warm"), Event(100.0, "finish", epoch=190)]
    events += [Event(0.0, "kill", node="127.0.0.2"), Event(0.0, "kill", node="127.0.0.3")]
    if second is not None:
        events.append(Event(second, "kill", node="127.0.0.4"))
    for epoch in range(1, 191):
        cut = float(epoch - 91)
        events.append(Event(cut, "cut", epoch=epoch))
        for query in names:
            held = [end for begin, end in silent if query == "late" and begin <= cut < end]
            at = held[0] if held else cut
            name = f"{query}/0"
            events.append(Event(at, "commit", epoch=epoch, query=query, query_partition=name))
    return sorted(events, key=lambda event: event.t)


def test_an_outage_is_weighted_by_priority_and_told_by_query() -> None:
    found = outage_figures.figures(told(), outage_figures.alone(PRIORITIES))
    # worst lag 1 s before, so unavailable from 2 s after the newest cut before the failure on
    assert found["queries"]["late"]["unavailable_seconds"] == pytest.approx(29.0)
    assert found["queries"]["early"]["unavailable_seconds"] == 0.0
    assert found["weighted_unavailable_seconds"] == pytest.approx(29.0 * 3 / 4)
    assert found["queries"]["late"]["first_output_seconds"] == 30.0
    assert (found["first_output_seconds"], found["all_output_seconds"]) == (1.0, 30.0)
    assert found["peak_lag_seconds"] == pytest.approx(31.0)
    assert found["never_back"] == []


def test_what_each_failure_of_several_cost_is_told_apart() -> None:
    found = outage_figures.figures(told(second=50.0), outage_figures.alone(PRIORITIES))
    assert [failure["at"] for failure in found["failures"]] == [0.0, 50.0]
    assert [failure["nodes"] for failure in found["failures"]] == [
        ["127.0.0.2", "127.0.0.3"],
        ["127.0.0.4"],
    ]
    apart = [failure["weighted_unavailable_seconds"] for failure in found["failures"]]
    assert apart == [pytest.approx(29.0 * 3 / 4)] * 2
    assert sum(apart) == pytest.approx(found["weighted_unavailable_seconds"])


def test_who_never_puts_out_again_has_no_first_output() -> None:
    found = outage_figures.figures(told(outage=500.0), outage_figures.alone(PRIORITIES))
    assert found["queries"]["late"]["first_output_seconds"] is None
    assert found["all_output_seconds"] is None
    assert found["never_back"] == ["late"]


def test_the_figures_are_those_of_the_report() -> None:
    run = made_up.make(made_up.BuiltScenario({"a": 3.0, "b": 1.0, "c": 2.0}))
    inputs = report.Inputs.from_record(run.input_record)
    told_by_report = report.compute(
        run.events, run.facts, run.input_record, run.problems, run.answers, {}, lambda: 0.0
    )
    found = outage_figures.figures(run.events, inputs)
    name = "weighted_unavailable_seconds"
    assert found[name] == pytest.approx(told_by_report[name])
    assert found[name] > 0


def test_the_curve_is_the_mean_lag_by_priority() -> None:
    points = dict(outage_figures.curve(told(), outage_figures.alone(PRIORITIES)))
    assert min(points) == -20.0
    assert points[20.0] == pytest.approx(21 * 3 / 4), "since the newest cut before the failure"
    assert points[40.5] == pytest.approx(0.5)
    assert points[100.0] == 0.0


def met(found: list[dict[str, Any]], failed: Sequence[dict[str, Any]] = ()) -> Mapping[str, bool]:
    rows = system_comparison.bars(
        found, system_comparison.ratios(found), failed, "rekindle bench recovery"
    )
    assert all(row.command == "rekindle bench recovery" for row in rows)
    return {row.bar: row.met for row in rows}


def test_ratios_are_medians_over_seeds_that_both_have() -> None:
    found = counted(
        *(record("incremental", seed, seconds) for seed, seconds in enumerate((10, 20, 30, 40))),
        *(record("blocking", seed, 100.0) for seed in range(3)),
    )
    assert system_comparison.ratios(found) == {"incremental/blocking": 0.2}


def test_what_was_not_sustained_is_no_part_of_a_ratio() -> None:
    runs_of_one_seed = (
        record("incremental", 1, 20.0),
        record("structured-streaming", 1, 1.0, sustained=False, exactly_once=None),
        record("structured-streaming", 1, None, sustained=False, rate=500.0, exactly_once=None),
        record("structured-streaming", 1, 80.0, rate=250.0),
    )
    found = counted(*runs_of_one_seed)
    assert [run["counted"] for run in found] == [True, False, False, True]
    assert system_comparison.ratios(found) == {"incremental/structured-streaming": 0.25}
    bar = "weighted unavailability, incremental/structured-streaming: at most 0.35"
    assert met(thrice(*runs_of_one_seed))[bar]
    assert not met(found)[bar], "one seed is no median"


def halved(
    sustained_at: float,
    breaks_at: float,
    directory: Path,
    before: int = 0,
    kept_up: float = 0.0,
) -> list[dict[str, Any]]:
    """What a peer comes to that sustains so many rows a second, and fails at so many, of whom it is
    known how often the rate was halved; where it does not, its slowest query has `kept_up`."""

    def perform(_: str, trial: PeerTrial, place: Path, __: Any) -> PeerOutcome:
        if trial.rows_per_second >= breaks_at:
            raise RunError(where="the driver", what="ended", remedy="see its log")
        fits = trial.rows_per_second <= sustained_at
        if fits:
            (place / "events.jsonl").write_text(run_events.serialize(told(names=trial.names)))
        return PeerOutcome(fits, {"late": 0.0}, kept_up, True, None)

    trial = PeerTrial(1000.0, (("127.0.0.2",),), tuple(QUERY_KEYS)[:1])
    done = recovery_runs.peer("structured-streaming", trial, directory, perform, before)
    return system_comparison.counted([run.record for run in done])


@pytest.mark.parametrize(
    ("sustained_at", "breaks_at", "expected"),
    [
        (1000.0, 2000.0, [(1000.0, True)]),
        (300.0, 2000.0, [(1000.0, False), (500.0, False), (250.0, True)]),
        (500.0, 1000.0, [(1000.0, False), (500.0, True)]),
        (5.0, 2000.0, [(1000.0 / 2**halvings, False) for halvings in range(8)]),
    ],
)
def test_a_peer_is_measured_at_the_highest_half_of_the_rate_that_it_sustains(
    tmp_path: Path, sustained_at: float, breaks_at: float, expected: list[tuple[float, bool]]
) -> None:
    found = halved(sustained_at, breaks_at, tmp_path)
    assert [(run["rate"], run["sustained"]) for run in found] == expected
    for run in found:
        assert run["counted"] == run["sustained"]
        assert (run["weighted_unavailable_seconds"] is not None) == run["sustained"]


@pytest.mark.parametrize(
    ("kept_up", "rates"),
    [
        (0.0, [1000.0, 500.0, 250.0, 125.0]),
        (260.0, [1000.0, 250.0, 125.0]),
        (1.0, [1000.0, 7.8125]),
    ],
)
def test_halves_above_what_the_slowest_query_has_worked_off_are_not_tried(
    tmp_path: Path, kept_up: float, rates: list[float]
) -> None:
    found = halved(130.0, 2000.0, tmp_path, kept_up=kept_up)
    assert [run["rate"] for run in found] == rates


def test_a_peer_begins_after_so_many_halvings(
    tmp_path: Path,
) -> None:
    (tmp_path / "fits").mkdir()
    (fits,) = halved(300.0, 2000.0, tmp_path / "fits", before=2)
    assert (fits["rate"], fits["share_of_rate"], fits["counted"]) == (250.0, 0.25, True)
    found = halved(200.0, 2000.0, tmp_path, before=2)
    assert [(run["rate"], run["sustained"]) for run in found] == [(250.0, False), (125.0, True)]


def test_all_of_a_seed_run_at_the_rate_that_its_first_run_settled_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int, float | None, float]] = []

    def settle(wanted: DemoOptions, _: Path) -> RecoveryRun:
        first = wanted.first_rows_per_second
        asked.append((wanted.strategy, wanted.seed, wanted.rows_per_second, first))
        rate = wanted.rows_per_second or first / 2
        found = record(wanted.strategy, wanted.seed, 1.0, rate=rate)
        return RecoveryRun(found, [(0.0, 0.0), (1.0, 0.0)], ("127.0.0.2",))

    monkeypatch.setattr(recovery_runs, "rekindle", settle)
    recovery_benchmark.measure(Contest(["blocking", "incremental"], [1, 2], demo()), tmp_path)
    assert asked == [
        ("incremental", 1, None, 30_000.0),
        ("blocking", 1, 15_000.0, 15_000.0),
        ("incremental", 2, None, 15_000.0),
        ("blocking", 2, 7_500.0, 7_500.0),
    ]
    written = json.loads((tmp_path / "recovery.json").read_text())
    assert [run["rate"] for run in written["runs"]] == [15_000.0, 15_000.0, 7_500.0, 7_500.0]


def test_a_peer_that_fails_at_every_rate_has_failed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the driver"):
        halved(1000.0, 1.0, tmp_path)


def test_the_better_of_flinks_schedulers_counts_seed_by_seed() -> None:
    found = counted(
        record("incremental", 1, 10.0),
        record("flink", 1, 100.0),
        record("flink-adaptive", 1, 20.0),
        record("incremental", 2, 10.0),
        record("flink", 2, 40.0),
        record("flink-adaptive", 2, 90.0),
    )
    assert system_comparison.ratios(found) == {"incremental/flink": 0.375}


@pytest.mark.parametrize(
    ("seconds", "other", "enforced", "expected"),
    [
        (35.0, 100.0, True, True),
        (36.0, 100.0, True, False),
        (35.0, 100.0, False, False),
        (35.0, 0.0, True, False),
        (0.0, 100.0, True, True),
    ],
)
def test_a_bar_counts_with_enforced_quotas_alone(
    seconds: float, other: float, enforced: bool, expected: bool
) -> None:
    found = thrice(
        record("incremental", 1, seconds),
        record("blocking", 1, other, quota_enforced=enforced),
    )
    assert met(found)["weighted unavailability, incremental/blocking: at most 0.35"] is expected


def test_a_peer_that_was_not_measured_with_every_seed_meets_no_bar() -> None:
    bar = "weighted unavailability, incremental/structured-streaming: at most 0.35"
    ours = [record("incremental", seed, 10.0) for seed in (1, 2, 3)]
    unable = record("structured-streaming", 1, None, sustained=False, exactly_once=None)
    able = record("structured-streaming", 2, 100.0)
    failed = {"system": "structured-streaming", "seed": 1, "error": "broke"}
    for found, failures, shown in (
        (counted(*ours, unable), [], "not measured"),
        (counted(*ours, unable, able), [], "0.10, with 1 of 3 seeds"),
        (counted(*ours[:2], {**able, "seed": 1}, able), [], "0.10, with 2 of 3 seeds"),
        (counted(*ours), [failed], "not measured"),
        (thrice(ours[0], able), [], "0.10"),
    ):
        rows = system_comparison.bars(found, system_comparison.ratios(found), failures, "command")
        row = next(row for row in rows if row.bar == bar)
        assert (row.value, row.met) == (shown, shown == "0.10")
    assert bar not in met(counted(*ours)), "who has not run is not judged"
    lost = {"system": "incremental", "seed": 4, "error": "broke"}
    whole = thrice(ours[0], able)
    rows = system_comparison.bars(whole, system_comparison.ratios(whole), [lost], "command")
    assert rows[0].value == "0.10, with 3 of 4 seeds"
    assert not any(row.met for row in rows)


def test_a_rate_that_was_not_sustained_meets_no_bar_about_a_recovery() -> None:
    ours, theirs = record("incremental", 1, 10.0, bound=10.0), record("blocking", 1, 100.0)
    assert all(met(thrice(ours, theirs)).values())
    for changed in ({"sustained": False}, {"quota_enforced": False}):
        found = met(thrice({**ours, **changed}, theirs))
        assert [bar for bar, kept in found.items() if kept] == ["every run exact"]
    found = met(thrice(ours, {**theirs, "sustained": False}))
    assert not found["weighted unavailability, incremental/blocking: at most 0.35"]


def test_the_bound_has_to_be_there_for_every_seed() -> None:
    bar = "weighted unavailability, incremental/bound: at most 1.15"
    found = [record("incremental", seed, 10.0, bound=10.0) for seed in (1, 2, 3)]
    assert met(counted(*found))[bar]
    assert not met(counted(*found, record("incremental", 4, 10.0)))[bar]


def test_rows_are_judged_where_they_were_checked_and_nothing_may_have_failed() -> None:
    wrong = {"expected_rows": 10, "missing": 1, "duplicated": 0, "wrong": 0}
    right = counted(record("incremental", 1, 1.0), record("blocking", 1, 1.0, exactly_once=None))
    assert met(right)["every run exact"]
    assert not met(right, failed=[{"system": "blocking", "seed": 2, "error": "broke"}])[
        "every run exact"
    ]
    assert not met([*right, record("blocking", 2, 1.0, exactly_once=wrong, counted=True)])[
        "every run exact"
    ]
    late = counted(record("incremental", 1, 1.0, first_plan_epochs=None, first_plan_seconds=None))
    assert not any(bar_met for bar, bar_met in met(late).items() if bar.startswith("first plan"))


def test_incremental_comes_first_and_another_peer_begins_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = PEERS["structured-streaming"]
    monkeypatch.setattr(contest_order, "PEERS", {"one": peer, "two": peer})
    systems = ["one", "blocking", "two", "incremental"]
    assert in_turn(systems, 0) == ["incremental", "blocking", "one", "two"]
    assert in_turn(systems, 1) == ["incremental", "blocking", "two", "one"]


def test_a_bar_names_the_command_that_measures_it_again() -> None:
    assert Contest(["incremental", "blocking"], [1, 2], demo()).command == (
        "rekindle bench recovery --strategies incremental,blocking --seeds 1..2"
    )
    assert Contest(["incremental"], [3], workers(2.5), 500.0).command == (
        "rekindle bench recovery --strategies incremental --seeds 3..3 --schedule workers "
        "--minutes 2.5 --rows-per-second 500"
    )
    assert Contest(["incremental"], [1], demo(5, 3)).command == (
        "rekindle bench recovery --strategies incremental --seeds 1..1 --nodes 5 --kill 3"
    )
    assert Contest(["incremental"], [1], demo(), cpu_quota=0.1).command == (
        "rekindle bench recovery --strategies incremental --seeds 1..1 --cpu-quota 0.1"
    )


def test_all_systems_have_the_quota_that_was_asked_for(tmp_path: Path, ran: Ran) -> None:
    contest = Contest(["incremental", "structured-streaming"], [1], demo(), cpu_quota=0.1)
    assert recovery_benchmark.measure(contest, tmp_path)["cpu_quota"] == 0.1
    assert ran.quotas == [0.1, 0.1]


def test_the_picture_has_a_line_for_each_system_that_counts() -> None:
    curve = [(-1.0, 0.0), (0.0, 1.0), (1.0, 2.0)]
    records = counted(
        record("incremental", 1, 1.0),
        record("incremental", 2, 1.0),
        record("structured-streaming", 1, 2.0, share_of_rate=0.25, rate=250.0),
        record("structured-streaming", 1, 2.0, sustained=False),
    )
    drawn = recovery_benchmark.picture([RecoveryRun(one, curve) for one in records])
    assert drawn is not None
    ElementTree.fromstring(drawn)
    assert drawn.count("<polyline") == 2
    assert "Structured Streaming, 1/4 of the rate" in drawn
    assert "median of 2 seeds" in drawn
    assert recovery_benchmark.picture([RecoveryRun(records[3], curve)]) is None


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((1.0, 1.0), "Structured Streaming<"),
        ((0.5, 0.5), "Structured Streaming, 1/2 of the rate<"),
        ((0.25, 0.5), "Structured Streaming, 1/4 to 1/2 of the rate<"),
        ((0.5, 1.0), "Structured Streaming, 1/2 to all of the rate<"),
    ],
)
def test_the_picture_says_what_part_of_the_rate_a_system_had(
    shares: tuple[float, float], told: str
) -> None:
    records = counted(
        *(
            record("structured-streaming", seed, 2.0, share_of_rate=share)
            for seed, share in enumerate(shares, 1)
        )
    )
    drawn = recovery_benchmark.picture(
        [RecoveryRun(one, [(0.0, 1.0), (1.0, 2.0)]) for one in records]
    )
    assert drawn is not None
    assert told in drawn


def test_a_picture_of_lags_is_whole_and_needs_nothing_from_outside() -> None:
    curves = [Curve(f"<{name}>", [(-5.0, 1.0), (0.0, 1.0), (60.0, 40.0)]) for name in "abcde"]
    drawn = lag_chart.draw(curves, [0.0, 30.0], eyebrow="one seed", headline="Lag & more")
    ElementTree.fromstring(drawn)
    assert not re.search(r'(?:href|src|url)\s*[=(]\s*["\']?http', drawn)
    assert drawn.count('class="kill"') == 2
    assert "&lt;a&gt; lags 40 s at most" in drawn
    numbers = [
        float(text) for text in re.findall(r"[\d.]+", re.findall('points="(.*?)"', drawn)[0])
    ]
    assert max(numbers) <= lag_chart.WIDTH
