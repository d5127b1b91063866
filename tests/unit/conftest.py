"""What unit tests share: modules beside them, what was put on disk, runs that are only noted."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rekindle_testing.runtime_builders import watched_flushes

if TYPE_CHECKING:
    from contests import Ran


@pytest.fixture
def flushed() -> Iterator[list[Path]]:
    """Files and folders that were flushed, in order."""
    with watched_flushes() as paths:
        yield paths


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> "Ran":
    """Notes what a benchmark of recoveries runs, in place of running it."""
    from contests import Ran  # slow to import, and needed by few

    from rekindle_bench import runs

    found = Ran()
    monkeypatch.setattr(runs, "rekindle", found.rekindle)
    monkeypatch.setattr(runs, "peer", found.peer)
    return found
