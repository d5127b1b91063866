"""Chaos as a user calls it: a short seed, on a cluster of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# A seed takes about a minute on two cores, and the first one that finds a sabotage ends the run.
SEEDS_MAX = 20
LIMIT_SECONDS = 300.0 * SEEDS_MAX

pytestmark = pytest.mark.timeout(LIMIT_SECONDS + 60.0)


def chaos(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rekindle_cli", "chaos", *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )


def test_a_seed_comes_to_its_end_with_every_row_right(tmp_path: Path) -> None:
    done = chaos("--seeds", "2", "--minutes", "0.35", "--report", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "chaos.json").read_text())
    assert (found["runs"], found["seeds"], found["failures"]) == (1, [2], {})
    assert [found[kind] for kind in ("missing", "duplicated", "wrong")] == [0, 0, 0]
    assert found["rows_checked"] > 0
    assert found["faults"]


def test_topics_have_every_row_once_though_brokers_are_lost(tmp_path: Path) -> None:
    options = ("--kafka", "--seeds", "13", "--minutes", "0.6")
    kinds = "kill-broker,kill-driver,kill-node"
    done = chaos(*options, "--faults", kinds, "--report", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "chaos.json").read_text())
    assert [found[kind] for kind in ("missing", "duplicated", "wrong")] == [0, 0, 0]
    assert {*found["faults"]} == {"kill-broker", "kill-driver", "kill-node"}
    assert found["rows_checked"] > 0


@pytest.mark.parametrize(
    "kind", ["watermark", "late-checkpoint", "forgotten-letter", "unchecked-frame"]
)
def test_what_is_broken_on_purpose_is_found(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By which seed depends on what a driver was at when it was harmed, so there are many. Which
    it was is shown where the test passes too: that one takes more seeds than before is news."""
    options = ("--break", kind, "--seeds", f"1..{SEEDS_MAX}", "--minutes", "0.4")
    done = chaos(*options, "--report", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.endswith(f"finds {kind}")
    with capsys.disabled():
        print(f"\n{last}, of {SEEDS_MAX} seeds", flush=True)
    found = json.loads((tmp_path / "out" / "chaos.json").read_text())
    assert found["failures"]
