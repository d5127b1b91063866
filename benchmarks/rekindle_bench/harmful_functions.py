"""Functions that end, hang or slow down their process, beside an important query.

The query must not notice. An application runs quietly for a while. Then a function sleeps in each
epoch; that counts from when its query runs behind the epochs. Then one function after the other
does harm, until its query has stopped. Of each epoch the important query's lag is the time from the
arrival of its newest row to the commit of all its partitions. The 99th percentile of quiet time is
compared with that of a time as long that begins with each of these, and of all harm together.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from rekindle.model.errors import RunError
from rekindle_bench import bar_results, text_runs
from rekindle_bench.bar_results import Bar
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.flights import flight_data

Event = Mapping[str, Any]

# What a function does, by its name.
HARMS = {
    "segfault": "ctypes.string_at(0)",
    "exit": "os._exit(0)",
    "kill": "os.kill(os.getpid(), 9)",
    "memory": "hoarded = [b'x' * 20_000_000 for _ in range(1_000)]",
    "loop": "exec('while True: pass')",
    "regex": "re.match(r'(a+)+$', 'a' * 60 + 'b')",
    "deadlock": "[lock.acquire() for lock in [threading.Lock()] * 2]",
}
# One that does no harm, but takes long for each epoch.
SLOW, SLEEP = "sleep", "time.sleep(0.2)"
FUNCTIONS = {**HARMS, SLOW: SLEEP}
PIPELINE = '''"""An important window, and a query for each harm."""

import ctypes
import os
import re
import threading
import time
from pathlib import Path

from rekindle_local.flights import flight_data as data
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.pipeline.replay import Replay

TRAPS = Path({traps!r})


def {functions}

def pipeline():
    built = Pipeline("harmful")
    path = {path!r}

    def source(name, parallelism):
        replay = Replay(path, "event_time", repeat_every_seconds=data.repeat_every_seconds(path))
        return built.source(name, replay, parallelism=parallelism)

    source("flights", 2).window(
        "by-day",
        keys=["carrier"],
        size_seconds=86_400,
        aggregates={{"flights": count()}},
        parallelism=2,
    ).sink("important", priority=10)
    for name, function in {names}:
        found = source("source-" + name, 1)
        found.map(name, function, schema=found.schema).sink("query-" + name)
    return built
'''
FUNCTION = """harm_{name}(table):
    if (TRAPS / {name!r}).exists():
        {harm}
    return table
"""
NODES = 3
IMPORTANT, PARTITIONS = "important", 2
RUNTIME = {
    "nodes_expected": NODES,
    "rows_per_second": 2_000,
    "function_seconds_max": 2,
    "host_memory_mib_max": 400,
    "classes": "apart",
}
LAG_RATIO_MAX, SLOW_RATIO_MAX = 1.2, 1.1
# Who is blamed instead of the function, or pays for it.
OTHERS_HARMED = ("plan", "nodes-requested", "nodes-lost", "confirmed", "host-failed")
WAIT_SECONDS_MAX = 300.0


def measure(seconds: float, directory: Path) -> dict[str, Any]:
    """Look at `seconds` of quiet time and as long at each harm; returns what `harmful.json`
    holds."""
    flight_data.prepare(directory / "input", year_fraction=0.25)
    traps = directory / "traps"
    traps.mkdir()
    pipeline = PIPELINE.format(
        traps=str(traps),
        path=str(directory / "input" / flight_data.file_name("flights_ewr")),
        functions="\n\ndef ".join(FUNCTION.format(name=n, harm=h) for n, h in FUNCTIONS.items()),
        names=f"({', '.join(f'({name!r}, harm_{name})' for name in FUNCTIONS)})",
    )
    with (
        text_runs.cluster(NODES, directory) as cluster,
        text_runs.started(pipeline, RUNTIME, cluster, directory) as driver,
    ):
        spans, events = _follow(driver, traps, seconds)
    return _judge(spans, events, seconds, directory)


def lags(events: Sequence[Event]) -> dict[float, float]:
    """Of each epoch, by the moment when its newest row arrived, how long the important query took
    until it was committed, in seconds. What is run again has been committed before; epochs that
    never are, are left out."""
    committed: dict[int, dict[str, float]] = {}
    for event in events:
        if event["kind"] == "commit" and event["query"] == IMPORTANT:
            for epoch in range(event["from_epoch"], event["epoch"] + 1):
                committed.setdefault(epoch, {}).setdefault(event["query_partition"], event["at"])
    cuts = (event for event in events if event["kind"] == "cut")
    return {
        cut["cut_at"]: max(committed[cut["epoch"]].values()) - cut["cut_at"]
        for cut in cuts
        if len(committed.get(cut["epoch"], ())) == PARTITIONS
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least this share of all is not above."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _follow(
    driver: DriverProcess, traps: Path, seconds: float
) -> tuple[dict[str, tuple[float, float]], Sequence[Event]]:
    """When there was quiet and when each harm, by wall clock, and all events."""
    console, events = Console(highlight=False), list[Event]()

    def wait_for(what: str, is_there: Callable[[Event], bool], behind: int) -> None:
        end = time.monotonic() + WAIT_SECONDS_MAX
        while not any(map(is_there, events[behind:])):
            events.extend(driver.fresh_events())
            driver.check()
            if time.monotonic() > end:
                raise RunError(where="harmful", what=f"no {what}", remedy=f"see {driver.log}")
            time.sleep(0.1)

    def wait_until(moment: float) -> None:
        wait_for("epoch", lambda event: event["kind"] == "cut" and event["cut_at"] >= moment, 0)

    wait_for("recovery", lambda event: event["kind"] == "recovered", 0)
    begin = time.time() + seconds / 3  # caches are warm then
    wait_until(begin + seconds)
    spans = {"quiet": (begin, begin + seconds)}
    console.print(f"slow: {SLOW}")
    behind = len(events)
    (traps / SLOW).touch()
    wait_for("slow query behind the epochs", _runs_behind, behind)
    begin = time.time()
    wait_until(begin + seconds)
    spans[SLOW] = (begin, begin + seconds)
    (traps / SLOW).unlink()
    for name in HARMS:
        console.print(f"harm: {name}")
        begin, behind = time.time(), len(events)
        (traps / name).touch()
        wait_for(f"end of query-{name}", partial(_has_stopped, name), behind)
        wait_until(begin + seconds)
        spans[name] = (begin, begin + seconds)
    wait_for("checkpoint", lambda event: event["kind"] == "checkpoint", len(events))
    return spans, events


def _runs_behind(event: Event) -> bool:
    return bool(event["kind"] == "ran-behind")


def _has_stopped(name: str, event: Event) -> bool:
    return bool(event["kind"] == "query-stopped" and event["query"] == f"query-{name}")


def _judge(
    spans: Mapping[str, tuple[float, float]],
    events: Sequence[Event],
    seconds: float,
    directory: Path,
) -> dict[str, Any]:
    command = f"rekindle bench harmful --seconds {seconds:g}"
    found = lags(events)
    by_span = {
        name: [lag for at, lag in found.items() if begin <= at < end]
        for name, (begin, end) in spans.items()
    }
    high = {name: percentile(values, 0.99) for name, values in by_span.items()}
    harmed = [lag for name in HARMS for lag in by_span[name]]
    high["all"] = percentile(harmed, 0.99)
    ratio, slow_ratio = high["all"] / high["quiet"], high[SLOW] / high["quiet"]
    begin = spans["quiet"][0]
    others = [
        event["kind"] for event in events if event["kind"] in OTHERS_HARMED and event["at"] >= begin
    ]
    bars = [
        Bar(
            f"99th percentile of the important query's lag: at most {LAG_RATIO_MAX} x that of "
            "quiet time",
            f"{high['quiet']:.2f} s -> {high['all']:.2f} s ({ratio:.2f} x)",
            ratio <= LAG_RATIO_MAX,
            command,
        ),
        Bar(
            "the same beside a function that sleeps 0.2 s in each epoch: at most "
            f"{SLOW_RATIO_MAX} x",
            f"{high['quiet']:.2f} s -> {high[SLOW]:.2f} s ({slow_ratio:.2f} x)",
            slow_ratio <= SLOW_RATIO_MAX,
            command,
        ),
        Bar(
            "no executor is dropped, nothing is planned, no node asked for",
            f"{len(others)} events",
            not others,
            command,
        ),
    ]
    figures = {"p99_seconds": high, "lags": by_span, "others": others}
    return bar_results.write(directory / "harmful.json", figures, bars)
