"""Syntax trees of the project's files, for tests that look at all of them.

They are more than a million objects without cycles. While they are made Python's collector would
walk through them again and again, which takes five times as long as parsing, and again when the
process ends. So it stands still meanwhile, and a module of tests keeps them no longer than it runs.
"""

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


@cache
def parsed(file: Path) -> ast.Module:
    """Return the tree of a file, which is kept until the end of `kept`."""
    return ast.parse(file.read_text(), filename=str(file))


@contextmanager
def kept() -> Iterator[None]:
    """Inside, trees may be made and kept; the collector stands still."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        parsed.cache_clear()
        if was_enabled:
            gc.enable()
