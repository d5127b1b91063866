"""`rekindle simulate`: the effect of a failure, before it happens.

Reads the situation and prints; the coordinator core and `rekindle.forecast` do the rest.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rekindle.coordination import CoordinationState
from rekindle.forecast import failure_simulation, outage_forecasts
from rekindle.forecast.failure_simulation import Model
from rekindle.forecast.outage_forecasts import Interval, Outages
from rekindle.forecast.outage_forecasts import simulate as rehearsed
from rekindle.model.sentences import counted
from rekindle_cli import cli_options, state_loader, svg_files
from rekindle_cli.coordination_access import CaFile, SecretFile
from rekindle_cli.report_html import charts
from rekindle_cli.report_html.charts import Span

SEEDS_MAX = 10_000


def simulate(
    what: state_loader.Situation = None,
    fail: Annotated[
        str, typer.Option(help="nodes:A,B or domain:NAME or random:COUNT.")
    ] = "random:1",
    arrive: state_loader.Arrive = state_loader.ARRIVE,
    strategies: Annotated[
        str, typer.Option(help="What to compare, separated by commas.")
    ] = "incremental,blocking",
    seeds: Annotated[str, typer.Option(help="One seed, or FIRST..LAST.")] = "1..100",
    until_seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="How far to look.")
    ] = 3_600.0,
    detect: state_loader.Detect = state_loader.MODEL.detect_seconds,
    restore: state_loader.Restore = state_loader.MODEL.restore_seconds,
    checkpoint_age: state_loader.CheckpointAge = state_loader.MODEL.checkpoint_age_seconds,
    picture: Annotated[
        Path | None,
        typer.Option(help="Also draw the figures, as an SVG file.", show_default="none"),
    ] = None,
    zookeeper: state_loader.Store = None,
    secret_file: SecretFile = None,
    ca_file: CaFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Say what a failure would do to each query, by rehearsing it with the coordinator's core.

    Example: rekindle simulate out --fail random:8 --arrive fixed:10,6 --seeds 1..100
    """
    if picture is not None:
        svg_files.check(picture)
    wanted = cli_options.choices("--strategies", strategies, cli_options.STRATEGIES)
    numbers = cli_options.seeds(seeds, SEEDS_MAX)
    coming = failure_simulation.parse(arrive, "--arrive")
    state = state_loader.load(what, zookeeper, secret_file, ca_file)
    failure = outage_forecasts.parse(fail, state, "--fail")
    model = Model(detect, restore, state_loader.MODEL.restore_mib_per_second, checkpoint_age)
    found = rehearsed(
        state,
        failure,
        coming,
        model,
        strategies=wanted,
        seeds=numbers,
        until_seconds=until_seconds,
        clock=time.monotonic,
    )
    if as_json:
        typer.echo(json.dumps(_record(found, fail, arrive, len(numbers)), indent=2))
    else:
        _show(state, found, f"{counted(len(numbers), 'failure')} {fail}, nodes {arrive}")
    if picture is not None:
        svg_files.write(picture, _drawn(state, found, fail, arrive, len(numbers)))


def _show(state: CoordinationState, found: Sequence[Outages], what: str) -> None:
    console = Console(highlight=False)
    console.print(_table(state, found))
    console.print(
        f"{what}: seconds until caught up, mean "
        "(and what all but one in twenty are above and below).",
        markup=False,
    )


def _record(found: Sequence[Outages], fail: str, arrive: str, count: int) -> dict[str, Any]:
    return {
        "version": 1,
        "failure": fail,
        "arrivals": arrive,
        "seeds": count,
        "strategies": {
            one.strategy: {
                "weighted_seconds": msgspec.to_builtins(one.weighted),
                "queries": msgspec.to_builtins(one.queries),
            }
            for one in found
        },
    }


def _drawn(
    state: CoordinationState, found: Sequence[Outages], fail: str, arrive: str, count: int
) -> str:
    spans = [
        Span(name, one.strategy, interval.mean, interval.low, interval.high)
        for name in _by_priority(state, found[0])
        for one in found
        for interval in (one.queries[name],)
    ]
    return charts.intervals(
        spans,
        eyebrow=f"{counted(count, 'failure')} {fail}, nodes {arrive}",
        headline="Seconds until each query has caught up, the most important first",
        text="A mark at the mean, a line over what all but one in twenty are above and below.",
    )


def _by_priority(state: CoordinationState, outages: Outages) -> list[str]:
    """Queries, the most important first."""
    priorities = _priorities(state)
    return sorted(outages.queries, key=lambda name: (-priorities[name], name))


def _priorities(state: CoordinationState) -> dict[str, float]:
    """As the policy says, where it does."""
    priorities = {query.name: query.priority for query in state.topology.queries}
    return {**priorities, **state.policy.priorities}


def _table(state: CoordinationState, found: Sequence[Outages]) -> Table:
    """The most important queries first."""
    priorities = _priorities(state)
    table = Table("query", "priority", *(one.strategy for one in found))
    for name in _by_priority(state, found[0]):
        cells = [_shown(one.queries[name]) for one in found]
        table.add_row(Text(name), f"{priorities[name]:g}", *cells)
    table.add_row("weighted by priority", "", *(_shown(one.weighted) for one in found))
    return table


def _shown(interval: Interval) -> str:
    text = f"{interval.mean:.1f} ({interval.low:.1f} to {interval.high:.1f})"
    return text if not interval.never else f"{text}, {interval.never:.0%} never"
