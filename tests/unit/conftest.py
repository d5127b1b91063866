"""What unit tests share: modules beside them, and what was put on disk."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rekindle_testing.runtime_builders import watched_flushes


@pytest.fixture
def flushed() -> Iterator[list[Path]]:
    """Files and folders that were flushed, in order."""
    with watched_flushes() as paths:
        yield paths
