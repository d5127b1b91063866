"""What tests in a browser share: a ZooKeeper.

Nothing but `make packages PACKAGES=chromium` installs a browser, so a machine without it fails no
tests, under `CI=true` either: they are skipped loudly.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "integration"))
sys.path.insert(0, str(Path(__file__).parent))

from rekindle_local.local_zookeeper import LocalZookeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZookeeper]:
    """One server, used by one test after the other."""
    with LocalZookeeper(directory=tmp_path_factory.mktemp("zookeeper")) as started:
        yield started
