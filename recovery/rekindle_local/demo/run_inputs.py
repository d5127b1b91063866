"""The files that the driver of a run over flights is given: its pipeline, and its settings.

Input is `flight_data`'s. `demo_run` writes them, and so does whoever runs flights elsewhere.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

LOAD_TARGET_PERCENT = 66.0
PIPELINE = '''"""The pipeline of this run."""

from rekindle_local.flights import flight_pipeline as flights


def pipeline():
    return flights.build({directory!r}, seed={seed}, names={names!r}, servers={servers!r})
'''

Section = Mapping[str, Any]


class Contents(NamedTuple):
    """The text of each file."""

    pipeline: str
    settings: str


def contents(
    flights: Path,
    seed: int,
    *,
    policy: Section,
    runtime: Section,
    names: Collection[str] | None = None,
    servers: str = "",
) -> Contents:
    """What the files say; `flights` is the folder of the input, as the driver sees it. `names` are
    the queries that run, all without it. With `servers` of Kafka they read and write topics."""
    settings = {"version": 1, "policy": dict(policy), "runtime": dict(runtime)}
    return Contents(
        PIPELINE.format(
            directory=str(flights),
            seed=seed,
            names=None if names is None else sorted(names),
            servers=servers,
        ),
        yaml.safe_dump(settings, sort_keys=False),
    )


def write(
    directory: Path,
    flights: Path,
    seed: int,
    *,
    policy: Section,
    runtime: Section,
    names: Collection[str] | None = None,
    servers: str = "",
) -> tuple[Path, Path]:
    """Write pipeline and settings into a folder; `flights` has the input. Returns both paths."""
    pipeline, settings = directory / "pipeline.py", directory / "settings.yaml"
    said = contents(flights, seed, policy=policy, runtime=runtime, names=names, servers=servers)
    pipeline.write_text(said.pipeline)
    settings.write_text(said.settings)
    return pipeline, settings
