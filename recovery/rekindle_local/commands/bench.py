"""`rekindle bench`: measures what the product promises, as ratios of one run.

Each benchmark writes a JSON file with its figures and rows `bar, value, met, command`.
"""

import re
from pathlib import Path
from typing import Annotated

import typer

from rekindle.errors import InputError, RunError
from rekindle_local import options

__all__ = ["bench"]

SEEDS_MAX = 100  # two runs of three minutes for each

bench = typer.Typer(
    help="Measure recovery and endurance, as ratios of one run.\n\n"
    "Example: rekindle bench recovery --seeds 1..5 --report bench",
    no_args_is_help=True,
)


@bench.command()
def recovery(
    strategies: Annotated[
        str, typer.Option(help="What to compare, separated by commas.")
    ] = "incremental,blocking",
    seeds: Annotated[str, typer.Option(help="One seed, or FIRST..LAST.")] = "1..5",
    nodes: Annotated[int, typer.Option(min=2, max=50, help="Workers, each a node.")] = 10,
    kill: Annotated[int, typer.Option(min=1, help="Nodes killed at once.")] = 8,
    report: Annotated[Path, typer.Option(help="A new directory for figures and reports.")] = Path(
        "bench-recovery"
    ),
    enforce: Annotated[bool, typer.Option(help="Exit 1 when a bar is not met.")] = False,
) -> None:
    """Compare strategies on the demo's failure, seed by seed.

    Example: rekindle bench recovery --strategies incremental,blocking --seeds 1..5
    """
    options.check_kill(kill, nodes)
    wanted = list(dict.fromkeys(strategies.split(",")))
    for strategy in wanted:
        options.check_choice("--strategies", strategy, options.STRATEGIES)
    numbers = _seeds(seeds)
    from rekindle_local.bench import recovery as benchmark

    directory = options.new_directory(report)
    _enforce(benchmark.measure(wanted, numbers, nodes, kill, directory), enforce)


@bench.command()
def soak(
    epochs: Annotated[int, typer.Option(min=200, help="Number of small epochs.")] = 2000,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-soak"
    ),
    enforce: Annotated[bool, typer.Option(help="Exit 1 when a bar is not met.")] = False,
) -> None:
    """Run many small epochs and see that nothing grows.

    Files and memory must end where they were after the first 100.

    Example: rekindle bench soak --epochs 2000 --report soak
    """
    from rekindle_local.bench import soak as benchmark

    _enforce(benchmark.measure(epochs, options.new_directory(report)), enforce)


def _seeds(text: str) -> list[int]:
    form = re.fullmatch(r"([0-9]{1,10})(?:\.\.([0-9]{1,10}))?", text)
    first, last = (int(form[1]), int(form[2] or form[1])) if form else (1, 0)
    if not first <= last <= min(options.SEED_MAX, first + SEEDS_MAX - 1):
        raise InputError(
            where="--seeds",
            what=f"is {text!r:.60}",
            remedy=f"write 3 or 1..5: up to {SEEDS_MAX} seeds from 0 to {options.SEED_MAX:,}",
        )
    return list(range(first, last + 1))


def _enforce(result: dict[str, object], enforce: bool) -> None:
    rows = result["bars"]
    assert isinstance(rows, list)
    missed = [row["bar"] for row in rows if not row["met"]]
    if enforce and missed:
        raise RunError(
            where="benchmark",
            what=f"missed: {'; '.join(missed)}",
            remedy="see the report for the figures",
        )
