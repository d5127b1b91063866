"""What unit tests share: modules that lie beside them, and a watch on what is put on disk."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rekindle_spark.testing import watched_flushes


@pytest.fixture
def flushed() -> Iterator[list[Path]]:
    """Files and folders that were flushed, in order."""
    with watched_flushes() as paths:
        yield paths
