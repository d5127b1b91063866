"""The watcher: an owner that is killed leaves neither processes nor temporary files."""

import subprocess
import sys
from pathlib import Path

from rekindle_local import process_sets

OWNER = """
import subprocess, sys, time
from pathlib import Path
from rekindle_local.process_reaper import ProcessReaper

folder = Path(sys.argv[1])
reaper = ProcessReaper((), folder / "log", [folder / "scratch space"])
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
reaper.add(child.pid)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_what_an_owner_that_is_killed_has_started_and_written_goes(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch space"
    scratch.mkdir()
    (scratch / "file").touch()
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        assert process_sets.start_ticks(child) is not None
        owner.kill()
    assert process_sets.await_condition(
        lambda: process_sets.start_ticks(child) is None and not scratch.exists(),
        limit_seconds=60.0,
    )
