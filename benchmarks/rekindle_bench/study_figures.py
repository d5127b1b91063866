"""`rekindle bench study`: planners on random topologies, as tables, JSON or a picture.

`planner_study` compares; `bench_command` calls it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from rekindle_cli import svg_files
from rekindle_cli.report_html import charts
from rekindle_cli.report_html.charts import ChartLine

if TYPE_CHECKING:
    from rekindle_bench.planner_study import SolverCurve


def show(seeds: Sequence[int], picture: Path | None, *, as_json: bool) -> None:
    """Run a study and print its figures; a topology for each seed."""
    from rekindle_bench import planner_study

    progress = Console(stderr=True, highlight=False)
    found = planner_study.compare(planner_study.FIG16, seeds, progress.print)
    if as_json:
        typer.echo(json.dumps(_record(found, len(seeds)), indent=2))
    else:
        _print(found, len(seeds))
    if picture is not None:
        svg_files.write(picture, _drawn(found, len(seeds)))


def _record(found: Sequence["SolverCurve"], topologies: int) -> dict[str, object]:
    from rekindle_bench.planner_study import RESOURCE_SHARES

    return {
        "version": 1,
        "study": "fig16",
        "topologies": topologies,
        "resource_shares": RESOURCE_SHARES,
        "curves": msgspec.to_builtins(found),
    }


def _print(found: Sequence["SolverCurve"], topologies: int) -> None:
    from rekindle_bench.planner_study import RESOURCE_SHARES

    console = Console(highlight=False)
    for panel, setting in dict.fromkeys((curve.panel, curve.setting) for curve in found):
        shares = (f"{share:.0%}" for share in RESOURCE_SHARES)
        table = Table("solver", *shares, title=f"{panel}: {setting}", title_justify="left")
        for curve in found:
            if (curve.panel, curve.setting) == (panel, setting):
                table.add_row(curve.solver, *(f"{100 * share:.1f}" for share in curve.restored))
        console.print(table)
    console.print(
        "Percent of all priority that is back with a share of the resources; the mean over "
        f"{topologies} topologies."
    )


def _drawn(found: Sequence["SolverCurve"], topologies: int) -> str:
    from rekindle_bench.planner_study import RESOURCE_SHARES

    return charts.curves(
        [
            ChartLine(
                curve.panel,
                curve.solver,
                curve.setting,
                list(zip(RESOURCE_SHARES, curve.restored, strict=True)),
            )
            for curve in found
        ],
        eyebrow=f"18 queries, {topologies} topologies a point",
        headline="Priority that is back (y) with a share of the resources (x)",
        text="The comparison of planners as in Fig. 16 of the paper.",
    )
