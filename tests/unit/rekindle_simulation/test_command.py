"""The command `rekindle sim`: what it shows of seeds that break an invariant."""

import pytest

from rekindle.errors import RunError
from rekindle_simulation import command
from rekindle_simulation.running import Outcome


def _outcome(seed: int, broken: str | None) -> Outcome:
    return Outcome(seed, broken, plans=1, incidents=1, trace=(f"steps of {seed}",))


def _play(monkeypatch: pytest.MonkeyPatch, *broken: str | None) -> None:
    outcomes = [_outcome(seed, text) for seed, text in enumerate(broken, start=1)]
    monkeypatch.setattr(command, "_outcomes", lambda *_: iter(outcomes))


def test_all_seeds_that_break_an_invariant_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(monkeypatch, None, "first trouble", None, "second trouble", None)
    with pytest.raises(RunError, match="2 seeds: of 5 break an invariant, the first is 2"):
        command.sim("1..5")
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["steps of 2", "seed 2: first trouble", "seed 4: second trouble"]


def test_one_seed_that_breaks_an_invariant_is_named_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(monkeypatch, "trouble")
    with pytest.raises(RunError, match="seed 1: trouble"):
        command.sim("1")
    assert "steps of 1" in capsys.readouterr().out


def test_seeds_that_hold_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(monkeypatch, None, None)
    command.sim("1..2")
    assert capsys.readouterr().out == "2 seeds, 2 incidents, 2 plans: every invariant holds\n"


def test_the_first_seed_that_finds_a_sabotage_is_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(monkeypatch, None, "trouble", "more trouble")
    command.sim("1..3", "generation")
    assert capsys.readouterr().out.endswith("seed 2 finds generation: trouble\n")
