"""Which scenarios run, and with what, of those that were named.

Pure: from names to runs. `python -m scenarios` carries them out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rekindle.model.errors import InputError
from rekindle_cli import cli_options
from scenarios import (
    announced_pair,
    application_scenarios,
    loss_scenarios,
    quickstart_scenario,
    strategies,
)

NAMES = (
    *loss_scenarios.SCENARIOS,
    announced_pair.NAME,
    *application_scenarios.SCENARIOS,
    quickstart_scenario.NAME,
)


@dataclass(frozen=True, slots=True)
class SelectedRun:
    """A scenario, and what it runs with; its `name` is that of its folder."""

    scenario: str
    strategy: str

    @property
    def name(self) -> str:
        is_usual = self.strategy == strategies.INCREMENTAL
        return self.scenario if is_usual else f"{self.scenario}-{self.strategy}"


@dataclass(frozen=True, slots=True)
class SelectedRuns:
    """Runs in their order, each once, and in words what was asked for and is left out."""

    runs: tuple[SelectedRun, ...]
    left_out: tuple[str, ...]


def select(named: Iterable[str], wanted: Iterable[str]) -> SelectedRuns:
    """Each scenario with each strategy that it can run with; all scenarios where none is named.

    Raises `InputError` for a word that is not known, and where nothing is left to run.
    """
    names, strategies_wanted = tuple(dict.fromkeys(named)) or NAMES, tuple(dict.fromkeys(wanted))
    for name in names:
        cli_options.check_choice("NAME", name, NAMES)
    for strategy in strategies_wanted:
        cli_options.check_choice("--strategies", strategy, strategies.NAMES)
    runs = tuple(
        SelectedRun(name, strategy)
        for name in names
        for strategy in _possible(name, strategies_wanted)
    )
    if not runs:
        compared = [name for name, one in loss_scenarios.SCENARIOS.items() if one.is_compared]
        raise InputError(
            where="--strategies",
            what=f"{strategies.SPARK_ALONE} runs in none of these scenarios",
            remedy=f"name some of: {', '.join(compared)}",
        )
    return SelectedRuns(runs, tuple(_left_out(names, strategies_wanted)))


def _possible(name: str, wanted: Sequence[str]) -> Sequence[str]:
    if name not in loss_scenarios.SCENARIOS:
        # a page is for one, whatever others run with; the others run Spark alone by themselves
        return (strategies.INCREMENTAL,)
    compared = loss_scenarios.SCENARIOS[name].is_compared
    return [one for one in wanted if one != strategies.SPARK_ALONE or compared]


def _left_out(names: Sequence[str], wanted: Sequence[str]) -> Iterable[str]:
    for strategy in wanted:
        without = [name for name in names if strategy not in _possible(name, wanted)]
        if without:
            yield f"{strategy} is left out in {', '.join(without)}: it does not run there"
