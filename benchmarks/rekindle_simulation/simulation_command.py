"""`rekindle sim`: the coordination under many seeds, or one of its parts sabotaged on purpose.

Runs seeds on all cores, shows the first that breaks an invariant and lists all that do;
`rekindle_simulation` is what runs.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Annotated

import typer

from rekindle.model.errors import RunError
from rekindle_cli import cli_options
from rekindle_simulation import simulation_run
from rekindle_simulation.simulation_run import SeedOutcome
from rekindle_simulation.simulation_sabotage import SimulationSabotage

SEEDS_MAX = 1_000_000
TOGETHER = 20
TRACE_LINES = 40
# Those below are run whatever the day.
DAYS_FROM = 1_000_000


def sim(
    seeds: Annotated[
        str, typer.Option(help="One seed, FIRST..LAST, or today:COUNT, others each day.")
    ] = "1..1000",
    sabotage: Annotated[
        str | None,
        typer.Option(
            "--break",
            metavar="|".join(SimulationSabotage),
            help="Break this on purpose, to see that it is found.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Simulate crashes, cuts and late messages under many seeds.

    A seed always gives the same run. The first one in which an invariant does not hold is shown
    step by step, and all of them are listed; with --break one is enough, and there has to be one.
    today:COUNT is another range each day, the same all over the world, and is named.

    Example: rekindle sim --seeds 1..2000
    """
    numbers = _numbers(seeds, datetime.now(UTC).date())
    if sabotage is not None:
        cli_options.check_choice("--break", sabotage, tuple(SimulationSabotage))
    broken = None if sabotage is None else SimulationSabotage(sabotage)
    plans = incidents = 0
    violations: list[SeedOutcome] = []
    for outcome in _outcomes(numbers, broken):
        plans, incidents = plans + outcome.plans, incidents + outcome.incidents
        if outcome.broken is None:
            continue
        if broken is not None:
            _show(outcome)
            typer.echo(f"seed {outcome.seed} finds {broken}: {outcome.broken}")
            return
        # the steps are shown of the first one only
        violations.append(replace(outcome, trace=()) if violations else outcome)
    if broken is not None:
        raise RunError(
            where=f"--break {broken}",
            what=f"was not found in {len(numbers)} seeds",
            remedy="give more seeds; if it is never found, an invariant is missing",
        )
    if violations:
        _list(violations, numbers)
    typer.echo(f"{_range(numbers)}, {incidents} incidents, {plans} plans: every invariant holds")


def _numbers(text: str, today: date) -> list[int]:
    """The seeds of "3", "1..5" or "today:5"; those of a day follow those of the day before."""
    form = re.fullmatch(r"today:([1-9][0-9]{0,6})", text)
    if form is None or int(form[1]) > SEEDS_MAX:
        return cli_options.seeds(text, SEEDS_MAX)
    count = int(form[1])
    first = DAYS_FROM + today.toordinal() * count % (cli_options.SEED_MAX - DAYS_FROM - count)
    return list(range(first, first + count))


def _range(numbers: list[int]) -> str:
    """So that a run of today can be run again tomorrow."""
    return f"{len(numbers)} seeds, {numbers[0]}..{numbers[-1]}"


def _outcomes(numbers: list[int], sabotage: SimulationSabotage | None) -> Iterator[SeedOutcome]:
    """Outcomes in order of their seeds, some at once; shows how far it has got."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    run = partial(simulation_run.run, sabotage=sabotage)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        try:
            outcomes = pool.map(run, numbers, chunksize=TOGETHER)
            yield from track(
                outcomes,
                description="seeds",
                total=len(numbers),
                console=console,
                disable=not console.is_terminal,
                transient=True,
            )
        finally:
            pool.shutdown(cancel_futures=True)  # and wait: an exit before that prints a trace


def _show(outcome: SeedOutcome) -> None:
    """The end of the seed's trace."""
    for line in outcome.trace[-TRACE_LINES:]:
        typer.echo(line)


def _list(violations: list[SeedOutcome], numbers: list[int]) -> None:
    """The steps of the first seed that broke an invariant, and all seeds that did; an error."""
    first = violations[0]
    _show(first)
    for outcome in violations:
        typer.echo(f"seed {outcome.seed}: {outcome.broken}")
    raise RunError(
        where=f"seed {first.seed}" if len(violations) == 1 else f"{len(violations)} seeds",
        what=first.broken or ""
        if len(violations) == 1
        else f"of {_range(numbers)} break an invariant, the first is {first.seed}",
        remedy=f"see the steps above; `rekindle sim --seeds {first.seed}` shows them again",
    )
