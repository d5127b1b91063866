"""The page for the first pipeline: its commands work as they stand, and say what it shows.

They run one after the other in an empty folder, all but those that need a cluster.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rekindle_cli import command_line

ROOT = Path(__file__).parents[3]
PAGE, OVERVIEW = ROOT / "docs" / "first-pipeline.md", ROOT / "docs" / "overview.md"
# Lines that are indented by four are commands; a block behind them is what the last one prints.
PART = re.compile(r"((?:^    \S[^\n]*\n)+)(?:\n```\n(.*?)```\n)?", re.MULTILINE | re.DOTALL)
NEEDS_A_CLUSTER = "rekindle run "


def parts() -> Iterator[tuple[list[str], str]]:
    """Commands of the page, with what the last of them prints, as far as the page shows it."""
    text = re.sub(r"```python\n.*?```\n", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    for commands, shown in PART.findall(text):
        yield [line.strip() for line in commands.splitlines()], shown


def plain(text: str) -> str:
    """Text without what depends on the width of a column."""
    return " ".join(re.sub("[─]+", " ", text).split())


class Shell:
    """Runs commands as a terminal does, `rekindle` in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capfd, self.monkeypatch = capfd, monkeypatch

    def run(self, command: str) -> str:
        """What a command prints; the exit code must be 0, or 2 where an error is printed."""
        name, *arguments = command.split()
        if name == "cd":
            self.monkeypatch.chdir(arguments[0])
            return ""
        if name == "rekindle":
            code = command_line.run(command_line.application, arguments)
            out, err = self.capfd.readouterr()
            assert code == (2 if err.startswith("error: ") else 0), err
            return str(err + out)
        if name == "pytest":
            command = f"{sys.executable} -m pytest -p no:cacheprovider {' '.join(arguments)}"
        ended = subprocess.run(command, shell=True, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


def test_the_commands_of_the_page_work_as_they_stand(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shell, ran = Shell(capfd, monkeypatch), 0
    for commands, shown in parts():
        said = ""
        for command in commands:
            if not command.startswith(NEEDS_A_CLUSTER):
                said, ran = shell.run(command), ran + 1
        for line in shown.splitlines():
            assert plain(line) in plain(said), f"{commands[-1]} does not print {line!r}"
    assert ran >= 10


def test_the_pipeline_of_the_overview_runs_on_the_data_of_the_example(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", OVERVIEW.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert command_line.run(command_line.application, ["init", "."]) == 0
    Path("traffic.py").write_text(code, encoding="utf-8")
    capfd.readouterr()
    assert (
        command_line.run(
            command_line.application, ["test", "traffic.py", "--rows", "500", "--show", "1"]
        )
        == 0
    )
    out, _ = capfd.readouterr()
    assert "failures, priority 10: " in out
    assert "traffic, priority 2: " in out


def test_the_cells_of_a_notebook_run_as_the_page_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## In a notebook")[2]
    (path,) = re.findall(r"a cell says\s`(LOG = .*?)`", section)
    (last,) = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert command_line.run(command_line.application, ["init", "."]) == 0
    rest = re.sub("^LOG = .*$", path, Path("web_log.py").read_text(), flags=re.MULTILINE)
    cells: dict[str, Any] = {"__name__": "__main__"}  # and no __file__
    for cell in (rest, last):
        exec(cell, cells)
    assert cells["outputs"]["failures"].num_rows > 20


def test_the_page_shows_code_of_the_example() -> None:
    """What is shown of the pipeline is in it, and of the tests, up to layout."""
    example = Path(command_line.__file__).parent / "example"
    files = [example / "web_log.py", example / "test_web_log.py.template"]
    there = plain("\n".join(file.read_text(encoding="utf-8") for file in files))
    first, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert plain(first) in there
