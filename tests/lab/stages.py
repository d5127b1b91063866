"""Runs the laboratory's tests stage by stage, as many as there is time for.

    stages.py                                 all stages
    stages.py chaos seeds                     these alone
    stages.py --until 4200 --began AT         what fits: AT and now are seconds since 1970

The order rotates with the commit, so that stages which one run leaves out come first in another.
What is left out is said, and is no failure.

Exit codes: 0 no stage failed; 1 one did; 2 wrong usage; 130 interrupted, which ends the stage that
runs.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import turns  # noqa: E402 - it is found there

PYTHON = sys.executable
REKINDLE = str(Path(sys.executable).with_name("rekindle"))
# How long a stage that was told to end may clean up what it has started.
ENDING_SECONDS = 60.0
OF_SEEDS = "1001..3000"


@dataclass(frozen=True, slots=True)
class Stage:
    """Commands that run one after the other, and how long they take on two cores, in seconds.
    `environment` is added to that of this process."""

    name: str
    seconds: float
    commands: Sequence[Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict)


def _pytest(*arguments: str) -> list[str]:
    return [PYTHON, "-m", "pytest", "-v", "--durations=5", *arguments]


def _of_day(day: int) -> Stage:
    """The long files of `make test` whose turn is one of the days, whichever day it is."""
    command = _pytest(*turns.files_of(day), "-n", "2", "--dist", "loadfile")
    return Stage(f"turn-{day}", 700, [command])


INTEGRATION = "tests/lab/integration"
OVER_LINKS = [f"tests/integration/test_faults_{what}.py" for what in ("workers", "links", "memory")]
CALL_SITES = "tests/unit/rekindle_spark/executor/test_call_sites.py"
TYPES = "tests/unit/rekindle_spark/pipeline/test_types.py"
STAGES = (
    Stage("units", 70, [_pytest("tests/lab/unit", "-n", "2", "-q")]),
    # `make test` has a part of the calls each day: here is seen what nothing comes to
    Stage("call-sites", 180, [_pytest(CALL_SITES, "-s")], {"REKINDLE_CALL_SITES": "all"}),
    # `make test` has small tables of each type
    Stage("types", 900, [_pytest(TYPES)], {"REKINDLE_TYPES": "all"}),
    Stage("cases", 180, [_pytest(f"{INTEGRATION}/test_public_cases.py")]),
    Stage("structured-streaming", 200, [_pytest(f"{INTEGRATION}/test_structured_streaming.py")]),
    Stage(
        "spark-releases",
        300,
        [["make", "spark-releases"], _pytest(f"{INTEGRATION}/test_spark_releases.py", "-n", "2")],
    ),
    Stage("peers", 190, [_pytest(f"{INTEGRATION}/test_peers.py")]),
    Stage("flink", 300, [["make", "flink"], _pytest(f"{INTEGRATION}/test_flink.py")]),
    Stage("chaos", 120, [_pytest(f"{INTEGRATION}/test_chaos.py", "-k", "right")]),
    Stage(
        "chaos-kafka",
        300,
        [
            _pytest(f"{INTEGRATION}/test_trial_topics.py"),
            _pytest(f"{INTEGRATION}/test_chaos.py", "-k", "topics"),
        ],
    ),
    Stage("sabotage", 1_000, [_pytest(f"{INTEGRATION}/test_chaos.py", "-k", "broken")]),
    Stage("links", 500, [_pytest(*OVER_LINKS, "-n", "2")], {"REKINDLE_EXCHANGE": "links"}),
    Stage("slow-store", 600, [_pytest("tests/integration/test_slow_store.py")]),
    # without a file pytest would run the whole suite
    *(_of_day(day) for day in range(turns.DAYS) if turns.files_of(day)),
    Stage("seeds", 280, [[REKINDLE, "sim", "--seeds", OF_SEEDS]]),
    Stage("wheels", 60, [_pytest(f"{INTEGRATION}/test_wheels.py")]),
    Stage(
        "console", 120, [["make", "packages", "PACKAGES=chromium"], _pytest("tests/lab/browser")]
    ),
    Stage("images", 1500, [["make", "packages"], ["make", "images"]]),
    Stage(
        "benchmarks",
        240,
        [
            [REKINDLE, "bench", "coordinator", "--applications", "20", "--report", "{report}/a"],
            [REKINDLE, "bench", "soak", "--epochs", "500", "--report", "{report}/b"],
            [REKINDLE, "bench", "kafka", "--rows", "100000", "--report", "{report}/c"],
            [REKINDLE, "bench", "study", "--seeds", "1..2"],
        ],
    ),
)


@dataclass(slots=True)
class Clock:
    """When the run has to be over, and how much slower this machine is than the figures above."""

    until: float | None
    slowness: float

    def left_seconds(self) -> float:
        """Seconds until the end; infinity without one."""
        return float("inf") if self.until is None else self.until - time.time()

    def has_time_for(self, stage: Stage) -> bool:
        """Whether the stage can be expected to end in time."""
        return stage.seconds * self.slowness <= self.left_seconds()


def main(arguments: Sequence[str]) -> int:
    """Run the stages; return the exit code."""
    given = _parser().parse_args(arguments)
    until = None if given.until is None else given.began + given.until
    clock = Clock(until, max(1.0, given.slowness))
    stages = _chosen(given.stages)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, or the stage would go on
    try:
        results = {stage.name: _run_in_time(stage, clock) for stage in stages}
    except KeyboardInterrupt:
        print("stages.py: interrupted; the stages that are left were not run", file=sys.stderr)
        return 130
    print("== the laboratory")
    for name, result in results.items():
        print(f"{name:<22}{result}", flush=True)
    return int(any(result.startswith("FAILED") for result in results.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run the laboratory's tests.")
    parser.add_argument(
        "stages", nargs="*", metavar="STAGE", help=f"of {', '.join(stage.name for stage in STAGES)}"
    )
    parser.add_argument("--until", type=float, help="seconds after --began when it has to end")
    parser.add_argument("--began", type=float, default=time.time(), help="seconds since 1970")
    parser.add_argument(
        "--slowness", type=float, default=1.0, help="how much slower this machine is (1)"
    )
    return parser


def _chosen(names: Sequence[str]) -> Iterator[Stage]:
    known = {stage.name: stage for stage in STAGES}
    if unknown := sorted(set(names) - set(known)):
        print(f"STAGE: there is no {unknown[0]!r}; choose of {', '.join(known)}", file=sys.stderr)
        raise SystemExit(2)
    if names:
        return iter([known[name] for name in names])
    first = _commit_number() % len(STAGES)
    return iter([*STAGES[first:], *STAGES[:first]])


def _commit_number() -> int:
    """A number that each commit changes; 0 outside of a clone."""
    found = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(found.stdout.strip() or "0", 16)


def _run_in_time(stage: Stage, clock: Clock) -> str:
    """Run a stage if it can be expected to end in time; return the result in words."""
    if clock.has_time_for(stage):
        return _run(stage, clock)
    return (
        f"LEFT OUT: it takes {stage.seconds * clock.slowness:.0f} s here, "
        f"and {max(0.0, clock.left_seconds()):.0f} s are left"
    )


def _run(stage: Stage, clock: Clock) -> str:
    """Run the commands of a stage; return the result in words."""
    print(f"== laboratory: {stage.name}", flush=True)
    begin = time.monotonic()
    code: int | None = 0
    for command in stage.commands:
        code = _run_command(command, stage.environment, clock)
        if code != 0:
            break
    seconds = time.monotonic() - begin
    if code is None:
        return f"LEFT OUT: it was ended after {seconds:.0f} s, for the time is over"
    return f"passed in {seconds:.0f} s" if code == 0 else f"FAILED with {code} in {seconds:.0f} s"


def _run_command(
    command: Sequence[str], environment: Mapping[str, str], clock: Clock
) -> int | None:
    """The exit code of a command; None where it was ended because the time is over."""
    with tempfile.TemporaryDirectory(prefix="rekindle-lab-") as report:
        process = subprocess.Popen(
            [part.replace("{report}", report) for part in command],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            left = clock.left_seconds()
            return process.wait(None if left == float("inf") else max(1.0, left))
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the command's session, first by a word that lets it clean up."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
