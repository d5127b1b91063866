"""`rekindle simulate`: what a failure would do, before it happens.

Reads the situation and prints; the coordinator core and `rekindle.forecast` do the rest.
"""

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rekindle.coordination import State
from rekindle.forecast import arrivals, failures
from rekindle.forecast.outages import Interval, Outages
from rekindle.forecast.outages import simulate as rehearsed
from rekindle.forecast.rehearsal import Model
from rekindle_local import options, situations
from rekindle_local.situations import ARRIVE, Arrive, Situation, Store
from rekindle_local.store_access import SecretFile

__all__ = ["simulate"]

SEEDS_MAX = 10_000
MODEL = Model()


def simulate(
    what: Situation,
    fail: Annotated[
        str, typer.Option(help="nodes:A,B or domain:NAME or random:COUNT.")
    ] = "random:1",
    arrive: Arrive = ARRIVE,
    strategies: Annotated[
        str, typer.Option(help="What to compare, separated by commas.")
    ] = "incremental,blocking",
    seeds: Annotated[str, typer.Option(help="One seed, or FIRST..LAST.")] = "1..100",
    until_seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="How far to look.")
    ] = 3_600.0,
    detect_seconds: Annotated[
        float, typer.Option(min=0, max=3_600, help="Until a loss is known.")
    ] = MODEL.detect_seconds,
    restore_seconds: Annotated[
        float, typer.Option(min=0, max=3_600, help="Until a placed partition runs, besides state.")
    ] = MODEL.restore_seconds,
    checkpoint_age_seconds: Annotated[
        float, typer.Option(min=0, max=86_400, help="How old the newest checkpoint is then.")
    ] = MODEL.checkpoint_age_seconds,
    zookeeper: Store = None,
    secret_file: SecretFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Say what a failure would do to each query, by rehearsing it with the coordinator's core.

    Example: rekindle simulate out --fail random:8 --arrive fixed:10,6 --seeds 1..100
    """
    wanted = list(dict.fromkeys(strategies.split(",")))
    for strategy in wanted:
        options.check_choice("--strategies", strategy, options.STRATEGIES)
    numbers = options.seeds(seeds, SEEDS_MAX)
    coming = arrivals.parse(arrive, "--arrive")
    state = situations.load(what, zookeeper, secret_file)
    failure = failures.parse(fail, state, "--fail")
    model = Model(
        detect_seconds, restore_seconds, MODEL.restore_mib_per_second, checkpoint_age_seconds
    )
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
        typer.echo(json.dumps(_record(found, fail, arrive, numbers), indent=2))
        return
    console = Console(highlight=False)
    console.print(_table(state, found))
    console.print(
        f"{len(numbers)} failures {fail}, nodes {arrive}: seconds until caught up, mean "
        "(and what all but one in twenty are above and below).",
        markup=False,
    )


def _record(
    found: Sequence[Outages], fail: str, arrive: str, numbers: Sequence[int]
) -> dict[str, Any]:
    return {
        "version": 1,
        "failure": fail,
        "arrivals": arrive,
        "seeds": len(numbers),
        "strategies": {
            one.strategy: {
                "weighted_seconds": msgspec.to_builtins(one.weighted),
                "queries": msgspec.to_builtins(one.queries),
            }
            for one in found
        },
    }


def _table(state: State, found: Sequence[Outages]) -> Table:
    """The most important queries first."""
    priorities = {query.name: query.priority for query in state.topology.queries}
    priorities |= state.policy.priorities
    table = Table("query", "priority", *(one.strategy for one in found))
    for name in sorted(found[0].queries, key=lambda name: (-priorities[name], name)):
        cells = [_shown(one.queries[name]) for one in found]
        table.add_row(Text(name), f"{priorities[name]:g}", *cells)
    table.add_row("weighted by priority", "", *(_shown(one.weighted) for one in found))
    return table


def _shown(interval: Interval) -> str:
    text = f"{interval.mean:.1f} ({interval.low:.1f} to {interval.high:.1f})"
    return text if not interval.never else f"{text}, {interval.never:.0%} never"
