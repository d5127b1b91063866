"""`rekindle demo`: kills nodes under a running pipeline and reports how its queries come back."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.errors import InputError, RunError

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
    if kill >= nodes:
        raise InputError(
            where="--kill", what=f"is {kill} of {nodes} nodes", remedy="leave some alive"
        )
    _check_range("--return-every", return_every, 0.1, 600)
    _check_range("--seed", seed, 0, 2**31)
    if rows_per_second is not None:
        _check_range("--rows-per-second", rows_per_second, 1, 1e9)
    from rekindle_local.demo import performance
    from rekindle_local.demo.scenario import Options

    options = Options(
        nodes=nodes,
        kill=kill,
        strategy=strategy,
        seed=seed,
        return_every_seconds=return_every,
        rows_per_second=rows_per_second,
    )
    with tempfile.TemporaryDirectory(prefix="rekindle-demo-") as temporary:
        directory = _prepared(report or Path(temporary))
        result = performance.perform(options, directory)
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


def _prepared(directory: Path) -> Path:
    """An empty directory; one with files in it is left alone."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            where=f"--report {directory}",
            what=f"cannot be made ({error.strerror})",
            remedy="name a new directory",
        ) from error
    if any(directory.iterdir()):
        raise InputError(
            where=f"--report {directory}",
            what="is not empty",
            remedy="name a new directory, or empty this one",
        )
    return directory.resolve()


def _check_rows(result: dict[str, Any]) -> None:
    counts = result["exactly_once"]
    bad = {name: counts[name] for name in ("missing", "duplicated", "wrong") if counts[name]}
    if bad:
        raise RunError(
            where="output rows",
            what=", ".join(f"{name}: {count}" for name, count in bad.items()),
            remedy="keep the report and file a bug",
        )
