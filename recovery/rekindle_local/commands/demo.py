"""`rekindle demo`: kills nodes under a running pipeline and reports how its queries come back."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.errors import InputError, RunError
from rekindle_local import options

__all__ = ["demo"]

MODES = ("always", "adaptive")


def demo(
    nodes: Annotated[int, typer.Option(min=2, max=50, help="Workers, each a node.")] = 10,
    kill: Annotated[int, typer.Option(min=1, help="Nodes killed at once.")] = 8,
    strategy: Annotated[
        str, typer.Option(help="How queries come back: incremental or blocking.")
    ] = "incremental",
    seed: Annotated[int, typer.Option(help="Picks priorities and victims.")] = 1,
    return_every: Annotated[
        float, typer.Option(help="Seconds between the returns of two nodes.")
    ] = 6.0,
    rows_per_second: Annotated[
        float | None, typer.Option(help="Rate of rows; without it, calibrated to the load.")
    ] = None,
    buffering: Annotated[
        str, typer.Option(help="When outputs are retained: always or adaptive.")
    ] = "always",
    ordering: Annotated[
        str, typer.Option(help="When inputs are ordered: always or adaptive.")
    ] = "always",
    engine: Annotated[
        str, typer.Option(help="What runs the queries; `pipeline` is the only choice.")
    ] = "pipeline",
    kill_coordinator: Annotated[
        bool, typer.Option(help="Kill the coordinator, too, in the middle of the recovery.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(help="A new directory for the report; else it is kept only on failure."),
    ] = None,
) -> None:
    """Kill nodes under a running pipeline and report how its queries come back.

    Example: rekindle demo --nodes 10 --kill 8 --report out
    """
    options.check_choice("--strategy", strategy, options.STRATEGIES)
    _check_modes(buffering, ordering)
    options.check_choice("--engine", engine, ("pipeline",))
    options.check_kill(kill, nodes)
    options.check_range("--return-every", return_every, 0.1, 600)
    options.check_range("--seed", seed, 0, options.SEED_MAX)
    if rows_per_second is not None:
        options.check_range("--rows-per-second", rows_per_second, 1, 10**9)
    from rekindle_local.demo import performance
    from rekindle_local.demo.scenario import Options

    wanted = Options(
        nodes=nodes,
        kill=kill,
        strategy=strategy,
        seed=seed,
        return_every_seconds=return_every,
        rows_per_second=rows_per_second,
        buffering=buffering,
        ordering=ordering,
        kill_coordinator=kill_coordinator,
    )
    with options.report_directory(report) as directory:
        result = performance.perform(wanted, directory)
        performance.summarise(result, report)
        _check_rows(result)


def _check_modes(buffering: str, ordering: str) -> None:
    options.check_choice("--buffering", buffering, MODES)
    options.check_choice("--ordering", ordering, MODES)
    if (buffering, ordering) == ("always", "adaptive"):
        raise InputError(
            where="--ordering",
            what="is adaptive, but --buffering is always",
            remedy="use always: repeats must be identical",
        )


def _check_rows(result: dict[str, Any]) -> None:
    counts = result["exactly_once"]
    bad = {name: counts[name] for name in ("missing", "duplicated", "wrong") if counts[name]}
    if bad:
        raise RunError(
            where="output rows",
            what=", ".join(f"{name}: {count}" for name, count in bad.items()),
            remedy="keep the report and file a bug",
        )
