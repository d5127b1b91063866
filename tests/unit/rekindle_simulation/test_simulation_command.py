"""The command `rekindle sim`: what it shows of seeds that break an invariant."""

from datetime import date, timedelta

import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_simulation import simulation_command
from rekindle_simulation.simulation_run import SeedOutcome


def _outcome(seed: int, broken: str | None) -> SeedOutcome:
    return SeedOutcome(seed, broken, plans=1, incidents=1, trace=(f"steps of {seed}",))


def _play(monkeypatch: pytest.MonkeyPatch, *broken: str | None) -> None:
    outcomes = [_outcome(seed, text) for seed, text in enumerate(broken, start=1)]
    monkeypatch.setattr(simulation_command, "_outcomes", lambda *_: iter(outcomes))


def test_all_seeds_that_break_an_invariant_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(monkeypatch, None, "first trouble", None, "second trouble", None)
    with pytest.raises(
        RunError, match=r"2 seeds: of 5 seeds, 1\.\.5 break an invariant, the first is 2"
    ):
        simulation_command.sim("1..5")
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["steps of 2", "seed 2: first trouble", "seed 4: second trouble"]


def test_one_seed_that_breaks_an_invariant_is_named_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(monkeypatch, "trouble")
    with pytest.raises(RunError, match="seed 1: trouble"):
        simulation_command.sim("1")
    assert "steps of 1" in capsys.readouterr().out


def test_seeds_that_hold_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(monkeypatch, None, None)
    simulation_command.sim("1..2")
    assert capsys.readouterr().out == "2 seeds, 1..2, 2 incidents, 2 plans: every invariant holds\n"


def test_the_first_seed_that_finds_a_sabotage_is_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(monkeypatch, None, "trouble", "more trouble")
    simulation_command.sim("1..3", "generation")
    assert capsys.readouterr().out.endswith("seed 2 finds generation: trouble\n")


def test_each_day_has_seeds_of_its_own_and_the_same_all_day() -> None:
    day = date(2026, 11, 28)
    today, tomorrow = (
        simulation_command._numbers("today:500", at) for at in (day, day + timedelta(days=1))
    )
    assert today == simulation_command._numbers("today:500", day)
    assert len(today) == 500
    assert tomorrow[0] == today[-1] + 1
    assert today[0] >= simulation_command.DAYS_FROM
    assert simulation_command._numbers("3..4", day) == [3, 4]


@pytest.mark.parametrize("text", ["today:", "today:0", "today:-1", "today:9999999", "tomorrow:5"])
def test_what_is_no_range_of_a_day_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--seeds"):
        simulation_command._numbers(text, date(2026, 11, 28))
