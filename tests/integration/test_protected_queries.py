"""Queries of Structured Streaming inside one application, on real Spark: the page, and more."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "protected-queries.md"
PROGRAM = Path(__file__).with_name("protecting.py")
BLOCK = re.compile(r"`([\w.]+)`[^`]*?:\n\n```(?:python|yaml)\n(.*?)```", re.DOTALL)
LIMIT_SECONDS = 480.0


def run(program: Path, *arguments: str, folder: Path) -> str:
    """What a program prints; its exit code must be 0."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, str(program), *arguments],
        cwd=folder,
        env={**environment, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert ended.returncode == 0, ended.stdout[-4_000:] + ended.stderr[-8_000:]
    return ended.stdout


@pytest.mark.timeout(540)
def test_the_program_of_the_page_loses_nodes_and_no_row(tmp_path: Path) -> None:
    for name, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(content)
    assert {path.name for path in tmp_path.iterdir()} == {"shop.py", "settings.yaml"}
    said = run(tmp_path / "shop.py", folder=tmp_path).splitlines()
    assert "running: clicks orders stock" in said
    after = next(line for line in said if line.startswith("after the loss:")).split()[3:]
    assert "orders" in after, "the most important one goes on"
    assert "clicks" not in after
    assert "back: clicks orders stock" in said
    for name in ("orders", "stock", "clicks"):
        assert f"{name} has each row once" in said


def test_queries_are_refused_stopped_started_and_left_alone(tmp_path: Path) -> None:
    assert "all is as it should be" in run(PROGRAM, str(tmp_path), folder=tmp_path)
