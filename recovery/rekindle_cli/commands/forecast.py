"""`rekindle forecast`: queries that the loss of each failure domain would stop, and their return.

Reads the situation and prints; `rekindle.forecast` computes.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rekindle.coordination import CoordinationState, domain_placement, rebalancing
from rekindle.coordination.application_status import named
from rekindle.forecast import failure_simulation, outage_forecasts
from rekindle.forecast.failure_simulation import Model
from rekindle.forecast.outage_forecasts import DomainForecast
from rekindle.model.sentences import counted
from rekindle.model.settings import DOMAINS, EVEN
from rekindle_cli import cli_options, state_loader
from rekindle_cli.coordination_access import CaFile, SecretFile


def forecast(
    what: state_loader.Situation = None,
    arrive: state_loader.Arrive = state_loader.ARRIVE,
    placement: Annotated[
        str | None,
        typer.Option(
            help=f"Also as it would be with this policy: {EVEN} or {DOMAINS}.", show_default="none"
        ),
    ] = None,
    rehearsals: Annotated[
        int, typer.Option(min=1, max=1_000, help="How often each loss is rehearsed.")
    ] = 20,
    detect: state_loader.Detect = state_loader.MODEL.detect_seconds,
    restore: state_loader.Restore = state_loader.MODEL.restore_seconds,
    checkpoint_age: state_loader.CheckpointAge = state_loader.MODEL.checkpoint_age_seconds,
    zookeeper: state_loader.Store = None,
    secret_file: SecretFile = None,
    ca_file: CaFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Say what would survive the loss of each failure domain, and when the rest would be back.

    Example: rekindle forecast default/flights --zookeeper 127.0.0.1:2181
    """
    coming = failure_simulation.parse(arrive, "--arrive")
    if placement is not None:
        cli_options.check_choice("--placement", placement, (EVEN, DOMAINS))
    before = state_loader.load(what, zookeeper, secret_file, ca_file)
    after = before if placement is None else _replaced(before, placement)
    moved = sum(before.placement[name] != node for name, node in after.placement.items())
    states = (before,) if placement is None else (before, after)
    model = Model(detect, restore, state_loader.MODEL.restore_mib_per_second, checkpoint_age)
    seeds = range(1, rehearsals + 1)
    found = [
        outage_forecasts.forecast(state, coming, model, seeds=seeds, clock=time.monotonic)
        for state in states
    ]
    if as_json:
        typer.echo(json.dumps(_record(arrive, found, moved), indent=2))
        return
    console = Console(highlight=False)
    console.print(_table(found[0]))
    if placement is not None:
        console.print(
            f"With placement {placement}, {counted(moved, 'partition')} would move, and then:"
        )
        console.print(_table(found[1]))


def _replaced(state: CoordinationState, placement: str) -> CoordinationState:
    """The state once all has moved that this policy moves."""
    wanted = replace(state, policy=replace(state.policy, placement=placement))
    if placement == DOMAINS:
        return domain_placement.arranged(wanted)
    return replace(wanted, placement={**wanted.placement, **rebalancing.moves(wanted)})


def _record(arrive: str, found: Sequence[Sequence[DomainForecast]], moved: int) -> dict[str, Any]:
    record = {"version": 1, "arrivals": arrive, "domains": msgspec.to_builtins(found[0])}
    if len(found) > 1:
        record["then"] = {"moves": moved, "domains": msgspec.to_builtins(found[1])}
    return record


def _table(found: Sequence[DomainForecast]) -> Table:
    table = Table("lost", "nodes", "priority that stops", "survives", "back after", "weighted")
    for one in found:
        first = min((interval.mean for interval in one.back.values()), default=0.0)
        last = max((interval.mean for interval in one.back.values()), default=0.0)
        table.add_row(
            Text(one.domain),
            str(len(one.nodes)),
            f"{one.stopped_share:.0%}",
            Text(named(one.survives) if one.survives else "nothing"),
            f"{first:.0f} to {last:.0f} s" if one.back else "",
            f"{one.weighted.mean:.0f} s",
        )
    return table
