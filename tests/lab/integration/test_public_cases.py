"""Cases from public bug reports of neighbouring projects: each runs in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import loud_skips
import pytest

from rekindle_local import local_run

ROOT = Path(__file__).parents[3]
CASES = sorted((ROOT / "tests/lab/cases").glob("case_*.py"))
SECONDS_MAX = 600
# Two GiB of text, twice, and some.
MEBIBYTES = {"case_06_two_gib_of_text_in_an_epoch": 5_500}


def test_all_cases_are_here() -> None:
    assert len(CASES) == 18


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_product_does_right_in_a_case(case: Path, tmp_path: Path) -> None:
    needed, free = MEBIBYTES.get(case.stem, 0), local_run.free_mebibytes()
    if free is not None and free < needed:
        loud_skips.skip(f"{case.stem} needs {needed} MiB of memory, {free:.0f} are free")
    builders = os.pathsep.join(map(str, (ROOT / "tests/unit/builders", *sys.path)))
    ended = subprocess.run(
        [sys.executable, case],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": builders},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    print(ended.stdout, ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr
