"""The folders in which processes that a test starts find product and laboratory."""

import os
from pathlib import Path

import rekindle
import rekindle_peers

SOURCES = os.pathsep.join(
    str(Path(str(package.__file__)).parents[1]) for package in (rekindle_peers, rekindle)
)
