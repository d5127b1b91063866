"""`rekindle bench`: measures what the product promises, as ratios of one run.

Each benchmark writes a JSON file with its figures and rows `bar, value, met, command`.
"""

from pathlib import Path
from typing import Annotated

import typer

from rekindle.errors import InputError, RunError
from rekindle_local import options

__all__ = ["bench"]

bench = typer.Typer(
    help="Measure recovery and endurance, as ratios of one run.\n\n"
    "Example: rekindle bench recovery --seeds 1..5 --report bench",
    no_args_is_help=True,
)


@bench.command()
def recovery(
    strategies: Annotated[str, typer.Option(help="Comma-separated.")] = "incremental,blocking",
    seeds: Annotated[str, typer.Option(help="One seed, or FIRST..LAST.")] = "1..5",
    nodes: Annotated[int, typer.Option(min=2, max=50)] = 10,
    kill: Annotated[int, typer.Option(min=1)] = 8,
    report: Annotated[Path, typer.Option(help="A new directory.")] = Path("bench-recovery"),
    enforce: Annotated[bool, typer.Option(help="Exit 1 when a bar is not met.")] = False,
) -> None:
    """Compare strategies on the demo's failure, seed by seed.

    Example: rekindle bench recovery --strategies incremental,blocking --seeds 1..5
    """
    from rekindle_local.bench import recovery as benchmark

    options.check_kill(kill, nodes)
    wanted = list(dict.fromkeys(strategies.split(",")))
    for strategy in wanted:
        if strategy not in ("incremental", "blocking"):
            raise InputError(
                where="--strategies",
                what=f"names {strategy!r}",
                remedy="choose from incremental, blocking",
            )
    result = benchmark.measure(wanted, _seeds(seeds), nodes, kill, options.new_directory(report))
    _enforce(result, enforce)


@bench.command()
def soak(
    epochs: Annotated[int, typer.Option(min=200, help="Number of small epochs.")] = 2000,
    report: Annotated[Path, typer.Option(help="A new directory.")] = Path("bench-soak"),
    enforce: Annotated[bool, typer.Option(help="Exit 1 when a bar is not met.")] = False,
) -> None:
    """Run many small epochs; files and memory must end where they were after the first 100.

    Example: rekindle bench soak --epochs 2000 --report soak
    """
    from rekindle_local.bench import soak as benchmark

    _enforce(benchmark.measure(epochs, options.new_directory(report)), enforce)


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("..")
    try:
        numbers = list(range(int(first), int(last or first) + 1))
    except ValueError:
        numbers = []
    if not numbers:
        raise InputError(where="--seeds", what=f"is {text!r}", remedy="write 3 or 1..5")
    return numbers


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
