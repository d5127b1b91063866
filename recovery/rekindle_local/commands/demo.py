"""`rekindle demo`: kills nodes under a running pipeline and reports how its queries come back."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.errors import InputError, RunError
from rekindle_local import options

__all__ = ["demo"]


def demo(
    nodes: Annotated[int, typer.Option(min=2, max=50, help="Workers, each a node.")] = 10,
    kill: Annotated[int, typer.Option(min=1, help="Nodes killed at once.")] = 8,
    strategy: Annotated[str, typer.Option(help="incremental or blocking.")] = "incremental",
    seed: Annotated[int, typer.Option(help="Picks priorities and victims.")] = 1,
    return_every: Annotated[float, typer.Option(help="Seconds between two returns.")] = 6.0,
    rows_per_second: Annotated[
        float | None, typer.Option(help="Rate of rows; without it, calibrated to the load.")
    ] = None,
    buffering: Annotated[str, typer.Option(help="always")] = "always",
    ordering: Annotated[str, typer.Option(help="always")] = "always",
    engine: Annotated[str, typer.Option(help="pipeline")] = "pipeline",
    report: Annotated[
        Path | None,
        typer.Option(help="A new directory for the report; without it nothing is kept."),
    ] = None,
) -> None:
    """Kill nodes under a running pipeline and report how its queries come back.

    Example: rekindle demo --nodes 10 --kill 8 --report out
    """
    _check("--strategy", strategy, ("incremental", "blocking"))
    _check("--buffering", buffering, ("always",))
    _check("--ordering", ordering, ("always",))
    _check("--engine", engine, ("pipeline",))
    options.check_kill(kill, nodes)
    _check_range("--return-every", return_every, 0.1, 600)
    _check_range("--seed", seed, 0, 2**31)
    if rows_per_second is not None:
        _check_range("--rows-per-second", rows_per_second, 1, 1e9)
    from rekindle_local.demo import performance
    from rekindle_local.demo.scenario import Options

    wanted = Options(
        nodes=nodes,
        kill=kill,
        strategy=strategy,
        seed=seed,
        return_every_seconds=return_every,
        rows_per_second=rows_per_second,
    )
    with tempfile.TemporaryDirectory(prefix="rekindle-demo-") as temporary:
        directory = options.new_directory(report or Path(temporary))
        result = performance.perform(wanted, directory)
        performance.summarise(result, report)
    _check_rows(result)


def _check(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(
            where=option, what=f"is {value!r}", remedy=f"choose {' or '.join(choices)}"
        )


def _check_range(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InputError(
            where=option, what=f"is {value}", remedy=f"give a number from {low:g} to {high:g}"
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
