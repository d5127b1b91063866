"""`rekindle bench`: measures what the product promises, as ratios of one run.

Each benchmark writes a JSON file with its figures and rows `bar, value, met, command`.
"""

from pathlib import Path
from typing import Annotated

import typer

from rekindle.errors import RunError
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
    numbers = options.seeds(seeds, SEEDS_MAX)
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


@bench.command()
def coordinator(
    applications: Annotated[
        int, typer.Option(min=10, max=10_000, help="Applications in the store.")
    ] = 1000,
    queries: Annotated[int, typer.Option(min=1, max=500, help="Queries of each.")] = 50,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-coordinator"
    ),
    enforce: Annotated[bool, typer.Option(help="Exit 1 when a bar is not met.")] = False,
) -> None:
    """Coordinate many applications: at rest, and in a failure.

    Example: rekindle bench coordinator --applications 1000 --queries 50 --report bench
    """
    from rekindle_local.bench import coordinator as benchmark

    _enforce(benchmark.measure(applications, queries, options.new_directory(report)), enforce)


@bench.command()
def overhead(
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each way is run.")] = 3,
    seconds: Annotated[float, typer.Option(min=5, max=600, help="For how long.")] = 20.0,
    sweep: Annotated[
        bool, typer.Option(help="Also intervals of checkpoints, and sizes of epochs.")
    ] = False,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-overhead"
    ),
    enforce: Annotated[bool, typer.Option(help="Exit 1 when a bar is not met.")] = False,
) -> None:
    """Measure what checkpoints, ordering and catching up cost.

    Example: rekindle bench overhead --rounds 3 --report overhead
    """
    from rekindle_local.bench import overhead as benchmark

    directory = options.new_directory(report)
    _enforce(benchmark.measure(rounds, seconds, sweep, directory), enforce)


@bench.command()
def profile(
    seconds: Annotated[float, typer.Option(min=5, max=600, help="For how long.")] = 30.0,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-profile"
    ),
) -> None:
    """Show where time and CPU of an epoch go.

    By process, operator, function and stage; with a picture of stacks.

    Example: rekindle bench profile --report profile
    """
    from rekindle_local.bench import profile as benchmark

    benchmark.measure(seconds, options.new_directory(report))


@bench.command()
def steady(
    systems: Annotated[
        str, typer.Option(help="What to compare, separated by commas.")
    ] = "rekindle,structured-streaming",
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each is run.")] = 3,
    seconds: Annotated[float, typer.Option(min=5, max=3600, help="For how long.")] = 60.0,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-steady"
    ),
    enforce: Annotated[bool, typer.Option(help="Exit 1 when a bar is not met.")] = False,
) -> None:
    """Measure the highest rate that systems keep up with.

    And how late output is at 60 % of it, with all queries and with one.

    Example: rekindle bench steady --rounds 3 --report steady
    """
    from rekindle_local.bench import steady as benchmark

    wanted = list(dict.fromkeys(systems.split(",")))
    for system in wanted:
        options.check_choice("--systems", system, benchmark.SYSTEMS)
    directory = options.new_directory(report)
    _enforce(benchmark.measure(wanted, rounds, seconds, directory), enforce)


@bench.command()
def scale(
    partitions: Annotated[
        int, typer.Option(min=40, max=100_000, help="Partitions of the largest pipeline.")
    ] = 2_000,
    executors: Annotated[int, typer.Option(min=1, max=250, help="Workers, each a node.")] = 10,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-scale"
    ),
    enforce: Annotated[bool, typer.Option(help="Exit 1 when a bar is not met.")] = False,
) -> None:
    """Measure what an epoch costs one driver as partitions grow.

    Example: rekindle bench scale --partitions 2000 --executors 10 --report scale
    """
    from rekindle_local.bench import scale as benchmark

    directory = options.new_directory(report)
    _enforce(benchmark.measure(partitions, executors, directory), enforce)


@bench.command()
def planner(
    queries: Annotated[
        int, typer.Option(min=1, max=100_000, help="Queries of the large problem.")
    ] = 1_000,
    partitions: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Partitions of the large problem.")
    ] = 10_000,
    budget_seconds: Annotated[
        float, typer.Option(min=0, max=3_600, help="Seconds for the large problem.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Makes the problems.")] = 1,
    report: Annotated[Path, typer.Option(help="A new directory for the figures.")] = Path(
        "bench-planner"
    ),
    renew: Annotated[
        bool, typer.Option(help="Look for an hour for better plans to measure against.")
    ] = False,
    enforce: Annotated[bool, typer.Option(help="Exit 1 when a bar is not met.")] = False,
) -> None:
    """Measure how fast the planner is and how good its plans are.

    Example: rekindle bench planner --queries 10000 --partitions 100000 --budget-seconds 10
    """
    from rekindle_local.bench import planner as benchmark

    directory = options.new_directory(report)
    if renew:
        benchmark.renew(directory)
        return
    _enforce(benchmark.measure(queries, partitions, budget_seconds, seed, directory), enforce)


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
