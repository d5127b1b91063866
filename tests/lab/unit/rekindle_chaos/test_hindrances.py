"""What hinders processes of a trial where a trap is set, and nobody where there is none."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rekindle.model.errors import FencedError
from rekindle_chaos.late_puts import LatePut
from rekindle_chaos.sabotage import FOLDER
from rekindle_chaos.trials import Fault
from rekindle_local import process_sets
from rekindle_spark.store.checkpoint_store import CheckpointStore

COMMIT = {"at": 1.0, "plan_epoch": 1, "finished": {}, "outputs": []}
LIMIT_SECONDS = 90.0
WRITE = """
import sys, time
from pathlib import Path
from rekindle_store.local_files import LocalFiles
files = LocalFiles(Path(sys.argv[1], "store"))
files.make_folder("outputs")
begin = time.monotonic()
moved = []
files.put({"outputs/a": bytes(100_000)}, moved.append)
assert len(files.read("outputs/a", moved.append)) == sum(moved) / 2 == 100_000
print(time.monotonic() - begin)
"""
DRIVE = """
import sys
from pathlib import Path
from rekindle_spark.store.checkpoint_store import CheckpointStore as Store
store = Store(Path(sys.argv[1], "store"))
store.open(1.0)
print("open", flush=True)
sys.stdin.readline()
store.{call}
"""
CALLS = {
    "commits": f"commit({COMMIT})",
    "offsets": "log_offsets(1, {'offsets': {}})",
    "checkpoints": "complete_checkpoint(1, {'bytes': {}, 'older': {}, 'program': 'p'})",
}
CLOCK = (
    "import time; from rekindle_spark.driver import driver_clock as clock;"
    " print(clock.now(), time.time())"
)


def started(code: str, directory: Path, *, driver: bool = False) -> subprocess.Popen[str]:
    """A process of a trial."""
    path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    variables = {"REKINDLE_CHAOS_DIRECTORY": str(directory)} if driver else {}
    return subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        env={**os.environ, "PYTHONPATH": path, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """The folder of a trial, without traps."""
    (tmp_path / "traps").mkdir()
    return tmp_path


def test_a_store_is_slow_only_while_the_trap_is_there(trial: Path) -> None:
    def seconds() -> float:
        said, _ = started(WRITE, trial).communicate(timeout=LIMIT_SECONDS)
        return float(said)

    trap = trial / "traps" / "slow-store"
    trap.touch()
    least = 0.3  # a put and a read of a tenth of a megabyte, and what each waits for
    assert seconds() > least
    trap.unlink()
    # a disk may be as slow now and then
    assert process_sets.await_condition(lambda: seconds() < least, limit_seconds=LIMIT_SECONDS)


@pytest.mark.parametrize("kind", CALLS)
def test_a_record_is_late_and_what_it_meets_then_is_as_without_any_trap(
    trial: Path, kind: str
) -> None:
    (trial / "traps" / f"late-put-{kind}").touch()
    older = started(DRIVE.format(call=CALLS[kind]), trial, driver=True)
    assert older.stdout is not None
    assert older.stdout.readline() == "open\n"
    assert older.stdin is not None
    older.stdin.write("go\n")
    older.stdin.flush()
    mark = trial / "traps" / f"held-{older.pid}"
    end = time.monotonic() + LIMIT_SECONDS
    while not mark.exists():
        assert older.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    newer = CheckpointStore(trial / "store")
    newer.open(2.0)
    os.killpg(older.pid, signal.SIGCONT)
    _, said = older.communicate(timeout=LIMIT_SECONDS)
    assert (older.returncode, FencedError.__name__ in said) == {
        "commits": (1, True),
        "offsets": (0, False),  # which is adopted
        "checkpoints": (1, True),
    }[kind]
    late = (trial / "store" / "checkpoints" / "1.json").exists()
    assert late == (kind == "checkpoints"), "the put itself is not refused"
    assert CheckpointStore(trial / "store").open(3.0).checkpoint is None, "it does not count"


def test_a_driver_that_was_superseded_before_it_came_to_the_trap_goes_on(trial: Path) -> None:
    """It stood still for ever, and kept all executors from its successor."""
    trap = trial / "traps" / "late-put-commits"
    trap.touch()
    superseded = started(DRIVE.format(call=CALLS["commits"]), trial, driver=True)
    assert superseded.stdout is not None
    assert superseded.stdout.readline() == "open\n"
    CheckpointStore(trial / "store").open(2.0)
    newer = SimpleNamespace(process=SimpleNamespace(pid=1), store=trial / "store")
    planned: list[Callable[[], None]] = []
    fault = LatePut(
        Fault(0.0, "late-put", (), 1.0, "commits"),
        cast(Any, newer),
        trial / "traps",
        lambda _, action: planned.append(action),
        lambda: None,
        lambda: None,
    )
    fault.begin()
    assert superseded.stdin is not None
    superseded.stdin.write("go\n")
    superseded.stdin.flush()
    end = time.monotonic() + LIMIT_SECONDS
    while superseded.poll() is None:
        assert time.monotonic() < end
        planned.pop()()
        time.sleep(0.01)
    assert superseded.returncode == 1, "it is fenced"
    assert trap.exists(), "the trap is for the driver that runs"


@pytest.mark.parametrize("hours", [1, -1])
def test_a_driver_starts_with_the_clock_of_the_trap(trial: Path, hours: int) -> None:
    (trial / "traps" / "clock").write_text(f"{hours * 3_600}")
    said, _ = started(CLOCK, trial, driver=True).communicate(timeout=LIMIT_SECONDS)
    for told in map(float, said.split()):
        assert told - time.time() == pytest.approx(hours * 3_600, abs=20)
    said, _ = started(CLOCK, trial).communicate(timeout=LIMIT_SECONDS)
    assert float(said.split()[1]) == pytest.approx(time.time(), abs=20), "hosts have another clock"
