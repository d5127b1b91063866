"""When the demo's run is taken to be normal, and how long its rate is held before the kill."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rekindle.model.errors import RunError
from rekindle_local.demo import demo_scenario
from rekindle_local.demo.demo_scenario import DemoOptions, DemoScenario


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
    assert not demo_scenario.is_level([])
    assert not demo_scenario.is_level(cuts(149.0, 100.0, 50.0, 0.5, 0.0))
    assert demo_scenario.is_level(cuts(149.0, 100.0, 50.0, 0.5, 0.0, 0.1, 0.0, 0.2))


def test_some_epochs_in_a_row_must_have_been_in_time() -> None:
    assert not demo_scenario.is_level(cuts(0.0, 0.0, 0.0))
    assert not demo_scenario.is_level(cuts(0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0))


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Recorded:
    """A driver that replays a recorded stream: the records of each second, and what it is asked."""

    def __init__(
        self, clock: Clock, seconds: Callable[[float, bool], list[dict[str, Any]]]
    ) -> None:
        self.clock = clock
        self.seconds = seconds
        self.told = clock.now
        self.held: list[tuple[str, float]] = []
        self.log = Path("driver.log")
        self.process = None

    def fresh_events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while self.told + 1 <= self.clock.now:
            self.told += 1
            holds = bool(self.held) and self.held[-1][0] == "hold"
            found += self.seconds(self.told - 1_000.0, holds)
        return found

    def check(self) -> None:
        """It never fails."""

    def hold_rate(self) -> None:
        self.held.append(("hold", self.clock.now - 1_000.0))

    def release_rate(self) -> None:
        self.held.append(("release", self.clock.now - 1_000.0))


def second(at: float, *, load: float = 66.0, waited: float = 0.2) -> list[dict[str, Any]]:
    """A cut a second, after input waited so long, and a measurement."""
    return [
        {"kind": "cut", "epoch": int(at), "at": 1_000.0 + at, "cut_at": 1_000.0 + at - waited},
        {"kind": "statistics", "at": 1_000.0 + at, "load_percent": load, "rows_per_second": 40e3},
    ]


def replayed(
    monkeypatch: pytest.MonkeyPatch,
    seconds: Callable[[float, bool], list[dict[str, Any]]],
    **options: Any,
) -> tuple[DemoScenario, Recorded, Clock]:
    """A scenario over a recorded stream, without a cluster."""
    clock = Clock()
    monkeypatch.setattr(
        "rekindle_local.demo.demo_scenario.time",
        SimpleNamespace(monotonic=lambda: clock.now, time=lambda: clock.now, sleep=clock.sleep),
    )
    monkeypatch.setattr(
        "rekindle_local.demo.run_phases.time", SimpleNamespace(monotonic=lambda: clock.now)
    )
    driver = Recorded(clock, seconds)
    nothing: Any = SimpleNamespace(
        nodes=(), check=lambda: None, events=SimpleNamespace(fresh=lambda: ())
    )
    found = DemoScenario(
        DemoOptions(**options), nothing, cast(Any, driver), nothing, nothing, cast(Any, None), list
    )
    found._machine = cast(Any, SimpleNamespace(sample=lambda _: None))
    return found, driver, clock


def warm_moments(found: DemoScenario) -> list[float]:
    return [record["at"] - 1_000.0 for record in found.records if record["kind"] == "warm"]


def test_the_rate_is_held_for_twenty_seconds_before_the_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, driver, clock = replayed(monkeypatch, lambda at, _: second(at), judged=False)
    found._hold_steady()
    ((what, at),) = driver.held
    assert what == "hold"
    assert warm_moments(found) == [at]
    assert clock.now - 1_000.0 == pytest.approx(at + 20.0, abs=0.1)


def test_a_rate_at_which_input_waits_is_calibrated_on_and_held_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seconds(at: float, held: bool) -> list[dict[str, Any]]:
        return second(at, waited=4.0 if held and at < 30 else 0.2)

    found, driver, clock = replayed(monkeypatch, seconds, judged=False)
    found._hold_steady()
    assert [what for what, _ in driver.held] == ["hold", "release", "hold"]
    assert warm_moments(found)[-1] == driver.held[-1][1], "normal lag is that of the last time"
    assert clock.now - 1_000.0 == pytest.approx(driver.held[-1][1] + 20.0, abs=0.1)


def test_a_demo_goes_on_with_a_load_that_benchmarks_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    found, driver, _ = replayed(monkeypatch, lambda at, _: second(at, load=41.0), judged=False)
    found._hold_steady()
    assert [what for what, _ in driver.held] == ["hold"]
    found, driver, _ = replayed(monkeypatch, lambda at, _: second(at, load=41.0), judged=True)
    with pytest.raises(RunError, match=r"executors used 41\.0 % of the capped capacity"):
        found._hold_steady()
    assert driver.held[-1][0] == "release"


def test_a_load_that_is_not_what_is_wanted_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seconds(at: float, held: bool) -> list[dict[str, Any]]:
        del held
        return second(at, load=50.0 if at < 60 else 70.0)

    found, driver, clock = replayed(monkeypatch, seconds, judged=True)
    found._hold_steady()
    assert [what for what, _ in driver.held] == ["hold", "release", "hold"]
    assert driver.held[-1][1] >= 60.0
    assert clock.now - 1_000.0 == pytest.approx(driver.held[-1][1] + 20.0, abs=0.1)


def test_a_rate_that_was_asked_for_is_held_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    found, driver, _ = replayed(monkeypatch, lambda at, _: second(at), rows_per_second=30_000.0)
    found._hold_steady()
    assert driver.held == []
    found, _, _ = replayed(
        monkeypatch, lambda at, _: second(at, load=95.0), rows_per_second=30_000.0
    )
    with pytest.raises(RunError, match="choose --rows-per-second so that it is 60 to 80 %"):
        found._hold_steady()


def test_calibration_ends_when_it_has_taken_as_long_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, _, clock = replayed(
        monkeypatch, lambda at, _: second(at, load=20.0), calibration_seconds_max=30.0
    )
    found._calibrate()
    assert clock.now - 1_000.0 == pytest.approx(30.0, abs=1.1)
    found, _, clock = replayed(
        monkeypatch,
        lambda at, _: [*second(at), {"kind": "calibrated"}] if at == 12 else second(at),
        calibration_seconds_max=30.0,
    )
    found._calibrate()
    assert clock.now - 1_000.0 == pytest.approx(12.0, abs=1.1)


def test_calibration_begins_lower_with_fewer_nodes() -> None:
    assert DemoOptions().begins_with_rows_per_second == 20_000.0
    assert DemoOptions(nodes=10).begins_with_rows_per_second == 50_000.0
    assert DemoOptions(first_rows_per_second=7.0).begins_with_rows_per_second == 7.0
    asked = DemoOptions(first_rows_per_second=7.0, rows_per_second=9.0)
    assert asked.begins_with_rows_per_second == 9.0
