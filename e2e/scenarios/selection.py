"""Which scenarios run, and with what, of those that were named.

Pure: from names to runs. `python -m scenarios` carries them out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rekindle.errors import InputError
from rekindle_cli import options
from scenarios import losses, quickstart, strategies

__all__ = ["NAMES", "Run", "Selection", "select"]

NAMES = (*losses.SCENARIOS, quickstart.NAME)


@dataclass(frozen=True, slots=True)
class Run:
    """A scenario, and what it runs with; its `name` is that of its folder."""

    scenario: str
    strategy: str

    @property
    def name(self) -> str:
        is_usual = self.strategy == strategies.INCREMENTAL
        return self.scenario if is_usual else f"{self.scenario}-{self.strategy}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Runs in their order, each once, and in words what was asked for and is left out."""

    runs: tuple[Run, ...]
    left_out: tuple[str, ...]


def select(named: Iterable[str], wanted: Iterable[str]) -> Selection:
    """Each scenario with each strategy that it can run with; all scenarios where none is named.

    Raises `InputError` for a word that is not known, and where nothing is left to run.
    """
    names, strategies_wanted = tuple(dict.fromkeys(named)) or NAMES, tuple(dict.fromkeys(wanted))
    for name in names:
        options.check_choice("NAME", name, NAMES)
    for strategy in strategies_wanted:
        options.check_choice("--strategies", strategy, strategies.NAMES)
    runs = tuple(
        Run(name, strategy) for name in names for strategy in _possible(name, strategies_wanted)
    )
    if not runs:
        compared = [name for name, one in losses.SCENARIOS.items() if one.is_compared]
        raise InputError(
            where="--strategies",
            what=f"{strategies.SPARK_ALONE} runs in none of these scenarios",
            remedy=f"name some of: {', '.join(compared)}",
        )
    return Selection(runs, tuple(_left_out(names, strategies_wanted)))


def _possible(name: str, wanted: Sequence[str]) -> Sequence[str]:
    if name == quickstart.NAME:
        return (strategies.INCREMENTAL,)  # a page is for one, whatever others run with
    compared = losses.SCENARIOS[name].is_compared
    return [one for one in wanted if one != strategies.SPARK_ALONE or compared]


def _left_out(names: Sequence[str], wanted: Sequence[str]) -> Iterable[str]:
    for strategy in wanted:
        without = [name for name in names if strategy not in _possible(name, wanted)]
        if without:
            yield f"{strategy} is left out in {', '.join(without)}: it does not run there"
