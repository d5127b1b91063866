"""`rekindle bench demo`: runs the demo seed after seed, on a quiet or on a busy machine."""

from pathlib import Path
from typing import Annotated

import typer

from rekindle_bench import enforcement
from rekindle_bench.enforcement import Enforce
from rekindle_cli import cli_options

SEEDS_MAX = 100  # two minutes for each


def demo(
    seeds: Annotated[str, typer.Option(help="One seed, or FIRST..LAST.")] = "1..5",
    busy: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of the machine that other programs want meanwhile."),
    ] = 0.0,
    report: Annotated[Path, typer.Option(help="A new directory for figures and reports.")] = Path(
        "bench-demo"
    ),
    enforce: Enforce = False,
) -> None:
    """Run the demo seed after seed, beside a witness.

    Example: rekindle bench demo --seeds 1..5 --busy 0.5 --report demo-busy --enforce
    """
    wanted = cli_options.seeds(seeds, SEEDS_MAX)
    from rekindle_bench import demo_runs

    result = demo_runs.measure(wanted, busy, cli_options.new_directory(report))
    enforcement.enforce(result, enforce)
