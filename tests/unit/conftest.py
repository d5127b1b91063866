"""What unit tests share: what was put on disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle_testing.runtime_builders import watched_flushes


@pytest.fixture
def flushed() -> Iterator[list[Path]]:
    """Files and folders that were flushed, in order."""
    with watched_flushes() as paths:
        yield paths
