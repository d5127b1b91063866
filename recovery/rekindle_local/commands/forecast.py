"""`rekindle forecast`: what the loss of each failure domain would stop, and when it would be back.

Reads the situation and prints; `rekindle.forecast` computes.
"""

import json
import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rekindle.coordination.standing import named
from rekindle.forecast import arrivals, domains
from rekindle.forecast.domains import DomainForecast
from rekindle.forecast.rehearsal import Model
from rekindle_local import situations
from rekindle_local.situations import ARRIVE, Arrive, Situation, Store
from rekindle_local.store_access import SecretFile

__all__ = ["forecast"]


def forecast(
    what: Situation,
    arrive: Arrive = ARRIVE,
    rehearsals: Annotated[
        int, typer.Option(min=1, max=1_000, help="How often each loss is rehearsed.")
    ] = 20,
    zookeeper: Store = None,
    secret_file: SecretFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Say what would survive the loss of each failure domain, and when the rest would be back.

    Example: rekindle forecast default/flights --zookeeper 127.0.0.1:2181
    """
    coming = arrivals.parse(arrive, "--arrive")
    state = situations.load(what, zookeeper, secret_file)
    found = domains.forecast(
        state, coming, Model(), seeds=range(1, rehearsals + 1), clock=time.monotonic
    )
    if as_json:
        record = {"version": 1, "arrivals": arrive, "domains": msgspec.to_builtins(found)}
        typer.echo(json.dumps(record, indent=2))
        return
    Console(highlight=False).print(_table(found))


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
