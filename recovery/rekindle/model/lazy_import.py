"""Modules that are loaded when something of them is first used.

For what is slow to import and not needed by all who import us: a host on a small node spends its
CPU on imports before its executor takes part.
"""

from importlib import import_module
from typing import Any


class Imported:
    """Stands for the module `name`. Threads may be the first to use it at the same time, which
    `importlib.util.LazyLoader` does not allow everywhere."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
