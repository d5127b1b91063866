"""The output of `rekindle run`: a live table on a terminal, plain lines elsewhere, or JSON lines.

It is fed with the driver's events (docs/formats.md) and decides nothing. `commands.run` calls it
for a cluster that exists, `rekindle_local.local_run` for one on this machine.

Until the first epoch it shows what the start waits for, and for how long; a thread keeps that up to
date where the main thread waits.

For a driver in this very process a thread follows its event file, what Spark, its Java and
libraries print goes to a log file, so that it does not tear the table apart, and the first Ctrl-C
ends the run in order.
"""

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rekindle import interrupts
from rekindle.model.errors import RekindleError
from rekindle.model.sentences import counted
from rekindle_cli.jsonl_tail import EventFile

REFRESH_SECONDS = 0.5
# The event file of a driver in this process is read so often.
POLL_SECONDS = 0.2
# Without a terminal: a line about rate and lag so often.
LINE_SECONDS = 10.0
# What a start waits for is a line when it has taken so long.
AWAITED_SECONDS = 2.0
# The rate that is shown is the mean over so many epochs.
EPOCHS_OF_RATE = 20
QUERIES_SHOWN_MAX = 30
LEVEL_SECONDS, LATE_SECONDS = 5.0, 15.0
STARTING, WAITING = "starting", "waiting for nodes"
HOSTS, FIRST_PLAN, FIRST_EPOCH = "an executor on each node", "the first plan", "the first epoch"
# Sources have had no rows for so long: whoever waits for an end learns how to end the run.
QUIET_SECONDS = 10.0
# Events that are one sentence, with their fields in it.
SENTENCES = {
    "store-away": "the checkpoint store cannot be used ({text}); the run waits for it: make room "
    "there, or let it be reached",
    "store-back": "the checkpoint store can be used again",
    "checkpoint-failed": "a checkpoint was given up, and is tried again later: {text}",
    "source-away": "the source {source} cannot be reached ({text}); its queries wait, the others "
    "go on",
    "source-back": "the source {source} can be reached again",
    "rows-ahead": "the source {source}: {rows:,} rows have event times more than "
    "{future_seconds_max:,.0f} s ahead, most of them in {source_partition}; they do not move the "
    "watermark",
    "source-busy": "the source {source}: {text}",
    "sink-away": "the topic of {query} cannot be reached ({text}); its output waits in the store",
    "sink-fenced": "{query}: {text}",
    "sink-back": "the topic of {query} is written again",
    "disk-full": "node {node} has no room on its disk: its partitions go elsewhere",
    "slots-few": "{text}",
    "classes-stay-together": "{text}",
    "function-suspected": "{text}",
    "function-cleared": "{text}",
    "branch-stopped": "step {step} is left out of {partition} from epoch {epoch} on: {text}",
}


class RunDisplay(Protocol):
    """Shows a run to whoever started it.

    `is_ending`: an orderly end has been asked for. For a query that stops after that the view adds
    the sentence of `no_savepoint`.
    """

    is_ending: bool

    @property
    def stopped(self) -> Mapping[str, str]:
        """The queries that the present driver has stopped, each with the reason."""

    def start(self) -> None:
        """Begin to show."""

    def show(self, record: Mapping[str, Any]) -> None:
        """Take in one event of the driver."""

    def say(self, text: str) -> None:
        """Show one sentence."""

    def note(self, label: str, text: str) -> None:
        """Show something that is needed as long as the run lasts, such as an address."""

    def await_next(self, what: str) -> None:
        """Show what the start waits for from now on."""

    def refresh(self) -> None:
        """Show the time that has passed; called several times a second."""

    def stop(self) -> None:
        """Show the last state and end."""


def make(nodes_expected: int, output: str, *, as_json: bool) -> RunDisplay:
    """Return the view for standard output as it is: terminal, file or pipe, or JSON."""
    if as_json:
        return JsonView()
    return RunView(nodes_expected, output)


@dataclass(slots=True, kw_only=True)
class _StoppedQueries:
    """What both views know of an orderly end. A driver that starts again starts all queries."""

    stopped: dict[str, str] = field(default_factory=dict)
    is_ending: bool = False
    _generation: int = 0

    def _take_stop(self, record: Mapping[str, Any]) -> bool:
        """Take in an event, and return whether a query has stopped in it that ran before."""
        generation = record.get("generation", 0)  # the events of a coordinator have none
        if generation > self._generation:
            self._generation, self.stopped = generation, {}
        if record["kind"] != "query-stopped":
            return False
        is_news = record["query"] not in self.stopped  # else another partition of it
        self.stopped[record["query"]] = record["text"]
        return is_news


@dataclass(slots=True)
class JsonView(_StoppedQueries):
    """Passes events on, a JSON object a line; sentences go to standard error."""

    def start(self) -> None:
        """Begin to show."""

    def show(self, record: Mapping[str, Any]) -> None:
        """Print one event."""
        has_stopped = self._take_stop(record)
        print(json.dumps(record), flush=True)
        if has_stopped and self.is_ending:
            self.say(no_savepoint(self.stopped))

    def say(self, text: str) -> None:
        """Print one sentence where it does not disturb the JSON."""
        print(text, file=sys.stderr, flush=True)

    def note(self, label: str, text: str) -> None:
        """Print it where it does not disturb the JSON."""
        self.say(f"{label}: {text}")

    def await_next(self, what: str) -> None:
        """Print it where it does not disturb the JSON."""
        self.say(f"waiting for {what}")

    def refresh(self) -> None:
        """Nothing changes by itself."""

    def stop(self) -> None:
        """End."""


@dataclass(slots=True)
class RunView(_StoppedQueries):
    """State, nodes, rate, lag by query, losses, the newest plan, and where the output is.

    Sentences are lines. On a terminal they go above the table with the next `refresh`: users'
    functions may print thousands, and each time something is printed the table is drawn again.
    `awaited` is what the start waits for; `notes` stay in the table, by label."""

    nodes_expected: int
    output: str
    console: Console = field(default_factory=lambda: Console(highlight=False))
    state: str = STARTING
    nodes: set[str] = field(default_factory=set)
    awaited: str = ""
    losses: int = 0
    plan: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    priorities: dict[str, float] = field(default_factory=dict)
    late_rows: dict[str, int] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    _cuts: dict[int, float] = field(default_factory=dict)
    _rates: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=EPOCHS_OF_RATE))
    _reached: dict[str, dict[str, float]] = field(default_factory=dict)
    # when the sources last had rows, by the driver's clock; None: never
    _rows_at: float | None = None
    _quiet_said: bool = False
    # of the newest event: its moment by the driver's clock, and when it was taken in
    _told_at: tuple[float, float] = (0.0, 0.0)
    # when the newest cut was told of, by the driver's clock
    _cut_told_at: float = 0.0
    # sentences that are not on the terminal yet
    _waiting: deque[str] = field(default_factory=deque)
    _live: Live | None = None
    _shown_at: float = 0.0
    _line_at: float = field(default_factory=time.monotonic)
    _began_at: float = field(default_factory=time.monotonic)
    _awaited_at: float = 0.0

    def start(self) -> None:
        """Open the live table where there is a terminal."""
        if self.console.is_terminal:
            self._live = Live(self._picture(), console=self.console, auto_refresh=False)
            self._live.start()

    def stop(self) -> None:
        """Close the live table; what it showed last stays on screen."""
        if self._live is not None:
            self._print_waiting()
            self._live.update(self._picture(), refresh=True)
            self._live.stop()
            self._live = None
            self._print_waiting()  # what another thread has said meanwhile

    def say(self, text: str) -> None:
        """Show one sentence: as a line, above the table where there is one."""
        self._waiting.append(text)
        if self._live is None:
            self._print_waiting()

    def note(self, label: str, text: str) -> None:
        """Keep it in the table; without a terminal it is a line."""
        self.notes[label] = text
        if not self.console.is_terminal:
            self._print(f"{label}: {text}")

    def await_next(self, what: str) -> None:
        """Show what the start waits for from now on, and for how long."""
        if what != self.awaited:
            self.awaited, self._awaited_at = what, time.monotonic()

    def show(self, record: Mapping[str, Any]) -> None:
        """Take in one event; kinds that are not known here are passed over."""
        if "at" in record:
            self._told_at = (record["at"], time.monotonic())
        if self._take_stop(record):
            self.say(f"{record['query']} stopped: {record['text']}")
            if self.is_ending:
                self.say(no_savepoint(self.stopped))
        if sentence := SENTENCES.get(record["kind"]):
            self.say(sentence.format_map(record))
        handler = getattr(self, f"_on_{record['kind'].replace('-', '_')}", None)
        if handler is not None:
            handler(record)

    def refresh(self) -> None:
        """Print what waits, and draw the table again when it is due, or print a line about rate and
        lag."""
        self._print_waiting()
        now = time.monotonic()
        if self._live is not None and now - self._shown_at > REFRESH_SECONDS:
            self._shown_at = now
            self._live.update(self._picture(), refresh=True)
        elif self._live is None and self._is_line_due(now):
            self._line_at = now
            self._print(self._line())

    def summary(self) -> list[str]:
        """Return sentences about the whole run, for its end."""
        rows = counted(self.rows, "row was", "rows were")
        lost = counted(self.losses, "node was", "nodes were")
        found = [f"{rows} read; {lost} lost."]
        found += [f"{query} stopped: {why}" for query, why in sorted(self.stopped.items())]
        if self.dead_letters:
            left_out = ", ".join(f"{step} {rows:,}" for step, rows in self.dead_letters.items())
            found.append(f"Rows that became dead letters: {left_out}.")
        if self.late_rows:
            late = ", ".join(f"{step} {rows:,}" for step, rows in sorted(self.late_rows.items()))
            found.append(f"Rows that came too late: {late}.")
        return [*found, f"Read the output with: rekindle output {shlex.quote(self.output)}"]

    # The events of the driver, and of a coordinator of ours, one method for each kind.

    def _on_coordinator_started(self, record: Mapping[str, Any]) -> None:
        if port := record.get("console_port"):
            self.note("web console", f"http://127.0.0.1:{port}/")

    def _on_joined(self, record: Mapping[str, Any]) -> None:
        if record["node"] in self.nodes:
            return
        self.nodes.add(record["node"])
        self.say(f"node {record['node']} joined, {self._of_nodes()}")
        if self.state in (STARTING, WAITING):
            is_short = len(self.nodes) < self.nodes_expected
            self.state = WAITING if is_short else STARTING
            self.await_next(HOSTS if is_short else FIRST_EPOCH if self.plan else FIRST_PLAN)

    def _on_confirmed(self, record: Mapping[str, Any]) -> None:
        self.nodes.discard(record["node"])
        self.losses += 1
        self.state = "recovering"
        how = "fell silent" if record.get("silent") else "is gone"
        self.say(f"node {record['node']} {how}, {self._of_nodes()}")

    def _on_plan(self, record: Mapping[str, Any]) -> None:
        self.priorities = _of_queries(record["priorities"])
        self.plan = record["text"]
        self.say(record["text"])
        if self.state == STARTING:
            self.await_next(FIRST_EPOCH)

    def _on_recovered(self, _: Mapping[str, Any]) -> None:
        self.state = "running"
        self.say("all other queries are running" if self.stopped else "all queries are running")

    def _on_dead_letters(self, record: Mapping[str, Any]) -> None:
        step = record["step"]
        if step not in self.dead_letters:
            self.say(
                f"{step} leaves out rows that it cannot process; see them with: "
                f"rekindle output {shlex.quote(self.output)} {step} --dead-letters"
            )
        self.dead_letters[step] = self.dead_letters.get(step, 0) + record["rows"]

    def _on_nodes_requested(self, record: Mapping[str, Any]) -> None:
        self.say(counted(record["count"], "node is", "nodes are") + " asked for")

    def _on_data_lost(self, record: Mapping[str, Any]) -> None:
        where = f"offsets {record['begin']:,} to {record['end']:,} of {record['partition']}"
        self.say(f"{where} are gone from the source {record['source']}: {record['why']}")

    def _on_paused(self, _: Mapping[str, Any]) -> None:
        self.state = "paused"

    def _on_resumed(self, _: Mapping[str, Any]) -> None:
        self.state = "running"

    def _on_late_rows(self, record: Mapping[str, Any]) -> None:
        self.say(f"rows come too late for {record['step']}: {record['total']:,} up to now")

    def _on_steps_begun(self, record: Mapping[str, Any]) -> None:
        self.say(f"new steps begin, with their next whole window: {', '.join(record['steps'])}")

    def _on_statistics(self, record: Mapping[str, Any]) -> None:
        self.late_rows = dict(record.get("late_rows", {}))

    def _on_finish(self, record: Mapping[str, Any]) -> None:
        self.state = "finished"
        self._on_statistics(record)

    def _on_savepoint(self, record: Mapping[str, Any]) -> None:
        self.state = "ended at a savepoint"
        self._on_statistics(record)

    def _on_cut(self, record: Mapping[str, Any]) -> None:
        self._cuts[record["epoch"]] = record["cut_at"]
        self._rates.append((record["cut_at"], record["rows"]))
        self._cut_told_at = record.get("at", 0.0)
        self.rows += record["rows"]
        self._note_quiet(record["rows"], record["cut_at"])
        for epoch in [one for one in self._cuts if one < record["epoch"] - 10_000]:
            del self._cuts[epoch]

    def _on_commit(self, record: Mapping[str, Any]) -> None:
        cut_at = self._cuts.get(record["epoch"])
        if cut_at is not None:
            self._reached.setdefault(record["query"], {})[record["query_partition"]] = cut_at

    def _note_quiet(self, rows: int, at: float) -> None:
        """Say once how a run ends, at the first pause: the end of its input ends nothing."""
        if rows:
            self._rows_at = at
        elif self._rows_at is None or self._quiet_said:
            return
        elif at - self._rows_at >= QUIET_SECONDS:
            self._quiet_said = True
            self.say(
                f"no rows for {QUIET_SECONDS:g} s; the run waits for more: Ctrl-C ends it at a "
                "savepoint; "
                "a file named finish in the store closes the last windows and ends it for good"
            )

    # What is drawn.

    def _print(self, text: str) -> None:
        # a line stays one line: whoever looks for words in a file finds them
        self.console.print(Text(text), soft_wrap=True)
        sys.stdout.flush()

    def _print_waiting(self) -> None:
        """Print all sentences that wait at once; other threads may do the same."""
        lines = []
        with suppress(IndexError):
            while True:
                lines.append(self._waiting.popleft())
        if lines:
            self._print("\n".join(lines))

    def _is_line_due(self, now: float) -> bool:
        """Every ten seconds, and once for each thing that a start waits for, if that takes long."""
        is_new = not self._rates and self._line_at < self._awaited_at
        return now - self._line_at > LINE_SECONDS or (
            is_new and now - self._awaited_at > AWAITED_SECONDS
        )

    def _of_nodes(self) -> str:
        return f"{len(self.nodes)} of {counted(self.nodes_expected, 'node')}"

    @property
    def _now(self) -> float:
        """The time by the driver's clock."""
        at, taken_in = self._told_at
        return at + time.monotonic() - taken_in

    def _rate(self) -> float:
        """Rows a second over the newest epochs, and less once the next one is late."""
        if len(self._rates) < 2:
            return 0.0
        (first, _), *rest = self._rates
        seconds = rest[-1][0] - first
        seconds += max(0.0, self._now - self._cut_told_at - seconds / len(rest))
        return sum(rows for _, rows in rest) / seconds if seconds > 0 else 0.0

    def _lag_seconds(self, query: str) -> float | None:
        """Seconds since the cut of the newest epoch that all partitions of a query committed."""
        reached = self._reached.get(query)
        if not reached:
            return None
        return self._now - min(reached.values())

    def _line(self) -> str:
        reached = [self._lag_seconds(one) for one in self._reached if one not in self.stopped]
        lags = [lag for lag in reached if lag is not None]
        worst = f", lag at most {max(lags):.1f} s" if lags else ""
        if not self._rates:
            return self._start_line()
        return f"{self.state}: {self._of_nodes()}, {self._rate():,.0f} rows/s{worst}"

    def _start_line(self) -> str:
        """Before the first epoch."""
        now = time.monotonic()
        state = STARTING if self.state == WAITING else self.state
        line = f"{state} for {now - self._began_at:.0f} s: {self._of_nodes()}"
        if not self.awaited:
            return line
        return f"{line}; waiting for {self.awaited} ({now - self._awaited_at:.0f} s)"

    def _picture(self) -> Table:
        outer = Table.grid(padding=(0, 0))
        outer.add_row(Text(self._line(), style="bold"))
        if self.priorities:
            outer.add_row(self._queries())
        if self.plan:
            outer.add_row(Text(f"plan: {self.plan}", style="dim"))
        outer.add_row(Text(f"output: {self.output}", style="dim"))
        for label, text in tuple(self.notes.items()):  # other threads note something meanwhile
            outer.add_row(Text(f"{label}: {text}", style="dim"))
        return outer

    def _queries(self) -> Table:
        table = Table(expand=False, show_edge=False)
        for name in ("priority", "lag"):
            table.add_column(name, justify="right")
        table.add_column("query")
        names = {**dict.fromkeys(self._reached, 1.0), **self.priorities}
        ordered = sorted(names.items(), key=lambda item: (-item[1], item[0]))
        for query, priority in ordered[:QUERIES_SHOWN_MAX]:
            table.add_row(f"{priority:g}", self._lag(query), Text(query))
        if len(ordered) > QUERIES_SHOWN_MAX:
            table.add_row("", "", f"and {len(ordered) - QUERIES_SHOWN_MAX} more")
        return table

    def _lag(self, query: str) -> Text:
        if query in self.stopped:
            return Text("stopped", style="red")
        lag = self._lag_seconds(query)
        if lag is None:
            return Text("-", style="dim")
        style = "green" if lag < LEVEL_SECONDS else "yellow" if lag < LATE_SECONDS else "red"
        return Text(f"{lag:.1f} s", style=style)


def _of_queries(priorities: Mapping[str, float]) -> dict[str, float]:
    """Priorities of queries, from the shares that their partitions have of them in a plan."""
    found: dict[str, float] = {}
    for partition, share in priorities.items():
        query, _, _ = partition.rpartition("/")
        found[query] = found.get(query, 0.0) + share
    return found


@contextmanager
def shown(events: Path, view: RunDisplay) -> Iterator[None]:
    """Inside, the view is fed with what is appended to the event file."""
    followed = EventFile.at_end(events)

    def take() -> None:
        with suppress(OSError):  # a reader of events ends no run
            for record in followed.fresh():
                view.show(record)
        view.refresh()

    view.start()
    try:
        with repeated(take):
            yield
    finally:
        take()
        view.stop()


@contextmanager
def repeated(work: Callable[[], None]) -> Iterator[None]:
    """Inside, a thread does the work several times a second, while this one may wait."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(POLL_SECONDS):
            work()

    thread = threading.Thread(target=repeat, name="view", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def log_apart(log: Path) -> Iterator[None]:
    """Inside, file descriptor 2 is the log; what Python code of ours writes to `sys.stderr` is
    still shown."""
    before = sys.stderr
    own = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    sys.stderr = TextIOWrapper(open(os.dup(own), "wb", buffering=0), write_through=True)  # noqa: SIM115 - closed below
    try:
        yield
    finally:
        sys.stderr.close()
        os.dup2(own, 2)
        os.close(own)
        sys.stderr = before


def interrupts_end_in_order(request_end: Callable[[], None], view: RunDisplay) -> None:
    """Have the first SIGINT ask for an orderly end, and each later one end the run at once.

    To be called by the main thread once Spark's context is there, which sets a handler of its own.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, interrupts.raising(KeyboardInterrupt))
        # not here: the signal may have interrupted code that holds a lock of the view
        threading.Thread(
            target=ask_to_end, args=(request_end, view), name="interrupt", daemon=True
        ).start()

    signal.signal(signal.SIGINT, handle)


def ask_to_end(request_end: Callable[[], None], view: RunDisplay) -> None:
    """Ask for an orderly end, and say so, or why it cannot be asked for: a store may be away, and a
    savepoint has the states of all queries."""
    view.is_ending = True  # before the queries are looked at: one may stop meanwhile
    if view.stopped:
        view.say(no_savepoint(view.stopped))
        return
    try:
        request_end()
    except (OSError, RekindleError) as error:
        view.say(f"no orderly end can be asked for: {error}; press Ctrl-C again to end at once")
        return
    if not view.stopped:  # else the view has said that there is no savepoint
        view.say("ending at a savepoint; press Ctrl-C again to end at once")


def no_savepoint(stopped: Iterable[str]) -> str:
    """Return the sentence that these queries keep the run from ending at a savepoint."""
    names = sorted(stopped)
    which = f"query {names[0]} has" if len(names) == 1 else f"queries {', '.join(names)} have"
    return (
        f"no savepoint can be taken, because {which} stopped; press Ctrl-C again to end at once: "
        "the run goes on from its newest checkpoint when it starts again"
    )
