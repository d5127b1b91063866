"""A long past: what a start takes on a store with a million commits beside one with a thousand.

Both stores are written by the product's own code: segments of commits, a checkpoint that covers
them, and some commits behind it, the same number in each. A process of its own starts a driver's
store on one and then on the other, in turns, in so much memory as a small driver has. It reads what
a driver reads before its first epoch, takes a generation, and seals the log.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rekindle.model import record_format
from rekindle.model.errors import RunError
from rekindle_bench import bar_results
from rekindle_bench.bar_results import Bar, of_median
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import commit_segments

FEW = 1_000
MEMORY_BYTES_MAX = 512 * 2**20
TIME_RATIO_MAX, MEMORY_RATIO_MAX = 2.0, 1.2
# Commits behind the checkpoint: ten seconds of epochs of a second.
BEHIND = 10
KEYED, QUERIES = 4, 4
# In a process that has nothing else: the memory of this one is not a driver's.
START = """
import json, re, resource, sys, time
from pathlib import Path
from rekindle_spark.store.checkpoint_store import CheckpointStore as Store
place, limit = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
begin = time.perf_counter()
store = Store(place)
store.read()
history = store.open(time.time())
seconds = time.perf_counter() - begin
(peak,) = re.findall(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
commits = history.fold.commits
print(json.dumps({"seconds": seconds, "peak_bytes": 1024 * int(peak), "commits": commits}))
"""


@dataclass(frozen=True, slots=True)
class Start:
    """What one start took: `seconds` without those of loading Python, the most memory ever held.
    `commits` are those that it knows of, with its own."""

    seconds: float
    peak_bytes: int
    commits: int


def measure(commits: int, turns: int, directory: Path) -> dict[str, Any]:
    """Start on a store of so many commits, and of few, in turns; returns what `past.json` holds."""
    console = Console(highlight=False)
    places = {FEW: directory / "few", commits: directory / "many"}
    for number, place in places.items():
        began = time.monotonic()
        write_store(place, number)
        took = time.monotonic() - began
        console.print(f"a store of {number:,} commits: written in {took:.0f} s")
    samples: dict[int, list[Start]] = {number: [] for number in places}
    for turn in range(turns):
        for number in [*places][:: 1 if turn % 2 == 0 else -1]:
            samples[number].append(_started(places[number]))
            console.print(f"a start on {number:,} commits: {samples[number][-1]}")
    for place in places.values():
        shutil.rmtree(place)
    return _judge(samples, commits, turns, directory)


def write_store(place: Path, commits: int) -> None:
    """Write a store as a driver leaves it that has committed so many epochs."""
    assert commits > BEHIND
    store = CheckpointStore(place)
    store.open(1.0)
    covered = commits - BEHIND
    records: list[dict[str, Any]] = []
    for number, content in _records(1, covered):
        record = {"generation": 1, **content}
        records.append(record)
        store.fold.take_in(number, record)
        if len(records) == commit_segments.LENGTH and number < covered:
            store.files.create(commit_segments.name_of(number), commit_segments.pack(records))
            store.fold.forget({"epoch": number})
            records.clear()
    for number, record in enumerate(records, covered - len(records) + 1):
        store.files.create(f"commits/{number}.json", record_format.encode("commit", record))
    _write_checkpoint(store, covered)
    for number, content in _records(covered + 1, commits):
        store.log_offsets(number, _cut(number))
        store.commit(content)


def _write_checkpoint(store: CheckpointStore, epoch: int) -> None:
    names = {f"keyed/{index}": 1_000 for index in range(KEYED)}
    store.begin_checkpoint(epoch)
    content = {
        "program": "past",
        "branches": 0,
        "steps": [],
        "at": float(epoch),
        "bytes": names,
        "published": None,
        **RestorePoints(epoch).record(tuple(names)),
    }
    store.complete_checkpoint(epoch, {**content, "cut": {"epoch": epoch, **_cut(epoch)}})


def _records(first: int, last: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Commits of one epoch each: number and content."""
    for epoch in range(first, last + 1):
        digest = f"{epoch * 0x9E3779B97F4A7C15 % 2**64:016x}"
        outputs = [
            [f"query-{index}/0", epoch, 20, f"0-{epoch}.parquet", digest]
            for index in range(QUERIES)
        ]
        finished = {f"keyed/{index}": [epoch, epoch, [digest]] for index in range(KEYED)}
        content = {"at": float(epoch), "plan_epoch": 1, "finished": finished, "outputs": outputs}
        yield epoch, content


def _cut(epoch: int) -> dict[str, Any]:
    return {
        "cut_at": float(epoch),
        "offsets": {"source/0": [1_000 * (epoch - 1), 1_000 * epoch]},
        "watermark": 1_000_000 * epoch,
        "rows_per_second": 1_000.0,
        "final": False,
        "row_fraction": 0.0,
    }


def _started(place: Path) -> Start:
    line = [sys.executable, "-c", START, str(place), str(MEMORY_BYTES_MAX)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(
            where=f"a start on {place}",
            what=f"failed: {' '.join(done.stderr.strip().splitlines()[-1:])[:300]}",
            remedy=f"with {MEMORY_BYTES_MAX // 2**20} MiB a start has to succeed: mend it",
        )
    return Start(**json.loads(done.stdout))


def _judge(
    samples: Mapping[int, Sequence[Start]], commits: int, turns: int, directory: Path
) -> dict[str, Any]:
    few, many = samples[FEW], samples[commits]
    pairs = list(zip(few, many, strict=True))
    time_ratio = median(after.seconds / before.seconds for before, after in pairs)
    memory_ratio = median(after.peak_bytes / before.peak_bytes for before, after in pairs)
    command = f"rekindle bench past --commits {commits} --turns {turns}"
    beside = f"a start on {commits:,} commits: at most {{:g}} x the {{}} of one on {FEW:,}"
    bars = [
        Bar(
            beside.format(TIME_RATIO_MAX, "time"),
            f"{median(one.seconds for one in few):.3f} s -> "
            f"{median(one.seconds for one in many):.3f} s ({time_ratio:.2f} x)",
            time_ratio <= TIME_RATIO_MAX,
            command,
        ),
        Bar(
            beside.format(MEMORY_RATIO_MAX, "memory"),
            f"{max(one.peak_bytes for one in many) / 2**20:.0f} MiB at most, of "
            f"{MEMORY_BYTES_MAX // 2**20} ({memory_ratio:.2f} x)",
            memory_ratio <= MEMORY_RATIO_MAX,
            command,
        ),
    ]
    figures = {
        "time_ratio": time_ratio,
        "memory_ratio": memory_ratio,
        "starts": {
            str(number): [[one.seconds, one.peak_bytes] for one in found]
            for number, found in samples.items()
        },
    }
    bars = [of_median(bar, turns) for bar in bars]
    return bar_results.write(directory / "past.json", figures, bars)
