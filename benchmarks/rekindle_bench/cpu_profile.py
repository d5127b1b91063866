"""Where an epoch's time and CPU go: processes, operators, functions, stages.

One run of the flights without a quota (`saturated_run`), at full speed or at a rate. Threads of the
JVMs are told apart by their names (`thread_cpu`), the Python of driver and hosts by samples of
their stacks (`stack_sampler`), which cost them some percent themselves. CPU is given per million
rows of input.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from rekindle_bench import bar_results, flame_graph, saturated_run
from rekindle_bench.thread_cpu import cpu_by_kind
from rekindle_local.flights import flight_data
from rekindle_spark.executor import stack_sampler

FUNCTIONS_SHOWN = 25
HOST = "host"

Spent = dict[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU seconds so far by process and kind of thread, and by stack of Python's frames."""

    threads: Mapping[tuple[str, ...], float]
    stacks: Mapping[tuple[str, ...], float]


def measure(
    seconds: float, directory: Path, nodes: int, rows_per_second: float | None = None
) -> dict[str, Any]:
    """Run the flights for `seconds`, at full speed where there is no rate; returns what
    `profile.json` holds."""
    way = saturated_run.Way(
        "all on",
        "always",
        "always",
        saturated_run.CHECKPOINT_SECONDS,
        rows_per_second=rows_per_second or saturated_run.FLOOD_ROWS_PER_SECOND,
    )
    flights, samples = directory / "input", directory / "samples"
    flight_data.prepare(flights)
    samples.mkdir()
    folder = str(samples.absolute())
    with saturated_run.cluster(directory / "cluster", nodes) as cluster:
        driver = saturated_run.start(
            way,
            directory / "run",
            flights,
            cluster,
            conf={f"spark.executorEnv.{stack_sampler.FOLDER}": folder},
            environment={stack_sampler.FOLDER: folder},
        )
        try:
            run = saturated_run.SaturatedRun(driver, cluster, lambda run: _reading(run, samples))
            saturated_run.follow([run], seconds, "bench profile")
        finally:
            driver.end()
    return _told(run, directory)


def _reading(run: saturated_run.SaturatedRun[CpuReading], samples: Path) -> CpuReading:
    stacks: Spent = {}
    for path in samples.glob("*.stacks"):
        for line in path.read_text().splitlines():
            frames, _, microseconds = line.rpartition(" ")
            stack = tuple(frames.split(";"))
            stacks[stack] = stacks.get(stack, 0.0) + int(microseconds) / 1e6
    return CpuReading(cpu_by_kind([*run.driver.processes, *run.cluster.all_processes()]), stacks)


def _told(run: saturated_run.SaturatedRun[CpuReading], directory: Path) -> dict[str, Any]:
    """Print, draw and write what was found."""
    begin, end = run.readings
    millions = run.rows / 1e6
    threads = _spent(begin.threads, end.threads, millions)
    stacks = _spent(begin.stacks, end.stacks, millions)
    processes = _summed(threads, " ".join)
    operators = _summed(stacks, _operator)
    functions = _summed(stacks, lambda stack: f"{stack[0]} {_own(stack)}")
    seconds = _epoch_seconds(run)
    cpu_seconds = sum(threads.values())
    rows_per_epoch = run.rows / (len(run.cuts) - 1)
    figures = {
        "nodes": len(run.cluster.nodes),
        "rows_per_second": run.rows / run.seconds,
        "rows_per_epoch": rows_per_epoch,
        "cpu_seconds_per_million_rows": cpu_seconds,
        "cpu_seconds_per_epoch": cpu_seconds * rows_per_epoch / 1e6,
        "processes": processes,
        "operators": operators,
        "functions": functions,
        "epoch_seconds": seconds,
    }
    console = Console(highlight=False)
    console.print(
        f"{figures['rows_per_second']:,.0f} rows a second in epochs of "
        f"{rows_per_epoch:,.0f}; {cpu_seconds:.2f} s of CPU per million rows, "
        f"{figures['cpu_seconds_per_epoch']:.2f} s per epoch"
    )
    for title, spent in (
        ("process and threads", processes),
        ("operator, Python", operators),
        ("function itself, Python", functions),
    ):
        console.print(_table(title, spent))
    console.print(_seconds_table(seconds))
    picture = flame_graph.draw(
        stacks,
        eyebrow="rekindle bench profile",
        headline="CPU seconds per million rows in the Python of driver and hosts",
        unit="s",
    )
    (directory / "profile.svg").write_text(picture)
    return bar_results.write(directory / "profile.json", figures, [])


def _spent(
    begin: Mapping[tuple[str, ...], float], end: Mapping[tuple[str, ...], float], millions: float
) -> Spent:
    """Between two readings, per million rows; what has ended in between counts for nothing."""
    spent = {name: (seconds - begin.get(name, 0.0)) / millions for name, seconds in end.items()}
    return {name: seconds for name, seconds in spent.items() if seconds > 0}


def _summed(spent: Spent, name: Callable[[tuple[str, ...]], str]) -> dict[str, float]:
    """By name, what was spent most of first."""
    found: dict[str, float] = {}
    for stack, seconds in spent.items():
        found[name(stack)] = found.get(name(stack), 0.0) + seconds
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _operator(stack: tuple[str, ...]) -> str:
    """The label of a host's stack, which has no dot that a frame has."""
    if stack[0] != HOST:
        return f"{stack[0]}, all of it"
    return stack[1] if len(stack) > 1 and "." not in stack[1] else "host beside its operators"


def _own(stack: tuple[str, ...]) -> str:
    """The innermost function of ours; what libraries do counts for who calls them."""
    ours = [frame for frame in stack if frame.startswith("rekindle")]
    return (ours[-1] if ours else stack[-1]).removeprefix("rekindle_spark.")


def _epoch_seconds(run: saturated_run.SaturatedRun[CpuReading]) -> dict[str, Any]:
    """Means of the epochs that count: from cut to cut, of the job, and of each of its stages."""
    ran = [event for event in run.events if event["kind"] == "ran"]
    depth = max((len(event["stage_seconds"]) for event in ran), default=0)
    stages = [
        fmean(event["stage_seconds"][stage] for event in ran if len(event["stage_seconds"]) > stage)
        for stage in range(depth)
    ]
    cut_to_cut = run.seconds / (len(run.cuts) - 1)
    job = fmean(event["seconds"] for event in ran)
    return {"from cut to cut": cut_to_cut, "job": job, "stages": stages}


def _table(title: str, spent: Mapping[str, float]) -> Table:
    table = Table(title, "CPU s per million rows", "share")
    table.columns[1].justify = table.columns[2].justify = "right"
    total = sum(spent.values()) or 1.0
    for name, seconds in list(spent.items())[:FUNCTIONS_SHOWN]:
        table.add_row(name, f"{seconds:.3f}", f"{seconds / total:.1%}")
    return table


def _seconds_table(seconds: Mapping[str, Any]) -> Table:
    table = Table("of an epoch, mean", "s")
    table.columns[1].justify = "right"
    table.add_row("from cut to cut", f"{seconds['from cut to cut']:.3f}")
    table.add_row("its job", f"{seconds['job']:.3f}")
    for number, took in enumerate(seconds["stages"]):
        table.add_row(f"  stage {number}", f"{took:.3f}")
    return table
