"""What all tests share: a limit on each unit test, and hypothesis without chance or deadlines."""

from pathlib import Path

import pytest
from hypothesis import settings

UNIT = [Path(__file__).parent / "unit", Path(__file__).parent / "lab" / "unit"]
# A unit test takes under 2 s; the limit is for one that hangs, on a machine that is busy.
UNIT_SECONDS_MAX = 120

settings.register_profile("rekindle", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("rekindle")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives every unit test its limit, unless it carries one of its own."""
    for item in items:
        if not set(UNIT).isdisjoint(item.path.parents) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(UNIT_SECONDS_MAX))
