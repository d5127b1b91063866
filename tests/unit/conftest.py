"""What unit tests share: what was put on disk, and logging as it was before each of them."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle_testing.runtime_builders import watched_flushes


@pytest.fixture
def flushed() -> Iterator[list[Path]]:
    """Files and folders that were flushed, in order."""
    with watched_flushes() as paths:
        yield paths


@pytest.fixture(autouse=True)
def _same_logging() -> Iterator[None]:
    """Take back the handlers that a program sets up when a test calls it in this process."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
