"""What tests of benchmarks share: runs that are only noted."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from contests import Ran

from rekindle_bench import recovery_runs


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Note what a benchmark of recoveries runs, in place of running it."""
    found = Ran()
    monkeypatch.setattr(recovery_runs, "rekindle", found.rekindle)
    monkeypatch.setattr(recovery_runs, "peer", found.peer)
    return found
