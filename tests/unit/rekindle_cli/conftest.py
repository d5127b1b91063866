"""What the tests of commands share: a source file, and runs that must be refused."""

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from wrong_pipelines import NOBODY, write

from rekindle_cli import command_line

# Loaded here, or each child process of a command would load them for itself, in seconds.
for name in ("networkx", "pandas", "rekindle_cli.pipeline_file"):
    import_module(name)

# Of this process, so that it does not depend on what else the machine does.
SECONDS_MAX = 15.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A sound source file of three rows."""
    path = tmp_path / "readings.parquet"
    write(path, [1, 2, 3])
    return path


@pytest.fixture
def refuse(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a pipeline file that must be refused; gives the message."""

    def run(pipeline: Path | str, *options: str) -> str:
        store = ("--store", str(tmp_path / "store"), "--master", NOBODY)
        began = time.process_time()
        code = command_line.run(command_line.application, ["run", str(pipeline), *store, *options])
        out, said = capfd.readouterr()
        assert time.process_time() - began < SECONDS_MAX
        assert code == 2, said
        assert said.count("\n") == 1, said
        assert out == ""
        assert "; " in said
        return said

    return run
