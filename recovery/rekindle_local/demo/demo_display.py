"""The display of a running demo: a live table, or plain lines without a terminal.

Fed with the records of the run; it never waits and never decides.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rekindle.model.sentences import counted
from rekindle.report import machine_limits

REFRESH_SECONDS = 0.5
LAG_SECONDS_LEVEL = 15.0


@dataclass(slots=True)
class Display:
    """One table row per query: priority, state, lag. `start` and `stop` bracket the run."""

    priorities: Mapping[str, float]
    partitions: Mapping[str, int]
    console: Console = field(default_factory=lambda: Console(stderr=False))
    cuts: dict[tuple[str, int], float] = field(default_factory=dict)
    reached: dict[str, float] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    phase: str = "starting"
    failure_at: float | None = None
    limited_seconds: float = 0.0
    live: Live | None = None
    shown_at: float = 0.0

    def start(self) -> None:
        """Open the live table where there is a terminal."""
        if self.console.is_terminal:
            self.live = Live(self._table(), console=self.console, refresh_per_second=4)
            self.live.start()

    def stop(self) -> None:
        """Close the live table; what it showed last stays on screen."""
        if self.live is not None:
            self.live.update(self._table())
            self.live.stop()
            self.live = None

    def show(self, record: Mapping[str, Any]) -> None:
        """Take in one record of the run."""
        handler = getattr(self, f"_on_{record['kind'].replace('-', '_')}", None)
        if handler is not None:
            handler(record)
        if self.live is not None and time.monotonic() - self.shown_at > REFRESH_SECONDS:
            self.shown_at = time.monotonic()
            self.live.update(self._table())

    def say(self, text: str) -> None:
        """One line, with the time since the failure where there has been one."""
        self.phase = text
        if self.live is None:
            at = f"{time.time() - self.failure_at:+7.1f} s  " if self.failure_at else ""
            self.console.print(f"{at}{text}", highlight=False)
            sys.stdout.flush()

    def _on_cut(self, record: Mapping[str, Any]) -> None:
        self.cuts[record.get("query", ""), record["epoch"]] = record["cut_at"]

    def _on_commit(self, record: Mapping[str, Any]) -> None:
        partition, epoch = record["query_partition"], record["epoch"]
        own = (partition.rpartition("/")[0], epoch)  # batches of a query alone, or all queries'
        cut = self.cuts.get(own, self.cuts.get(("", epoch)))
        if cut is not None:
            self.reached[partition] = cut

    def _on_joined(self, record: Mapping[str, Any]) -> None:
        if record["node"] in self.nodes:
            return
        self.nodes.add(record["node"])
        self.say(f"node {record['node']} is up ({counted(len(self.nodes), 'node')})")

    def _on_plan(self, record: Mapping[str, Any]) -> None:
        self.say(record["text"])

    def _on_statistics(self, record: Mapping[str, Any]) -> None:
        load, rate = record["load_percent"], record["rows_per_second"]
        if self.failure_at is None:
            self.say(f"load {load:.0f} % of the capped capacity at {rate:,.0f} rows/s")

    def _on_kill(self, record: Mapping[str, Any]) -> None:
        self.failure_at = self.failure_at or record["at"]
        self.nodes.discard(record["node"])
        self.say(f"node {record['node']} is killed ({counted(len(self.nodes), 'node')})")

    def _on_caught_up(self, record: Mapping[str, Any]) -> None:
        if self.failure_at is not None:
            self.say(f"{record['query_partition']} has caught up")

    def _on_not_yet(self, record: Mapping[str, Any]) -> None:
        lags = [self._lag_seconds(query) for query in self.priorities]
        level = sum(lag is not None and lag < LAG_SECONDS_LEVEL for lag in lags)
        self.say(f"waiting until {record['until']}: {level} of {len(lags)} queries are level")

    def _on_warm(self, _: Mapping[str, Any]) -> None:
        self.limited_seconds = 0.0

    def _on_machine(self, record: Mapping[str, Any]) -> None:
        if machine_limits.is_limited(record):
            self.limited_seconds += record["seconds"]

    def _on_phase(self, record: Mapping[str, Any]) -> None:
        self.say(record["text"])

    def _on_recovered(self, _: Mapping[str, Any]) -> None:
        self.say("all queries are running")

    def _table(self) -> Table:
        table = Table(title=self.phase, title_justify="left", expand=False)
        for name, justify in (("priority", "right"), ("query", "left"), ("lag", "right")):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        ordered = sorted(self.priorities.items(), key=lambda item: (-item[1], item[0]))
        for query, priority in ordered:
            table.add_row(f"{priority:g}", query, self._lag(query))
        if self.limited_seconds:
            table.caption = f"this machine was the limit for {self.limited_seconds:.0f} s so far"
        return table

    def _lag(self, query: str) -> Text:
        lag = self._lag_seconds(query)
        if lag is None:
            return Text("-", style="dim")
        style = "green" if lag < 5 else "yellow" if lag < LAG_SECONDS_LEVEL else "red"
        return Text(f"{lag:.1f} s", style=style)

    def _lag_seconds(self, query: str) -> float | None:
        """How far the last of a query's partitions is behind; None: one has no output yet."""
        names = [f"{query}/{index}" for index in range(self.partitions[query])]
        if any(name not in self.reached for name in names):
            return None
        return time.time() - min(self.reached[name] for name in names)
