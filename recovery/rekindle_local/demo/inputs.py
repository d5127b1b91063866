"""The files that the driver of a run over flights is given: its pipeline, and its settings.

Input is `flights.data`'s. `performance` writes them, and whoever runs flights on other machines.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["LOAD_TARGET_PERCENT", "write"]

LOAD_TARGET_PERCENT = 66.0
PIPELINE = '''"""The pipeline of this run."""

from rekindle_local.flights import pipeline as flights


def pipeline():
    return flights.build({directory!r}, seed={seed})
'''

Section = Mapping[str, Any]


def write(
    directory: Path, flights: Path, seed: int, *, policy: Section, runtime: Section
) -> tuple[Path, Path]:
    """Write pipeline and settings into a folder; `flights` has the input. Returns both paths."""
    pipeline, settings = directory / "pipeline.py", directory / "settings.yaml"
    pipeline.write_text(PIPELINE.format(directory=str(flights), seed=seed))
    content = {"version": 1, "policy": dict(policy), "runtime": dict(runtime)}
    settings.write_text(yaml.safe_dump(content, sort_keys=False))
    return pipeline, settings
