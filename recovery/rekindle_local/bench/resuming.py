"""What an interrupted contest has left in its `recovery.json`, and which of it still counts.

    its failures or rate are others ─► refused
    the seed lacks its first run    ─► all of the seed run anew: that run gives rate and victims
    a run's directory is gone       ─► it runs anew

Failures of systems that are not run again are kept. `recovery` calls it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.errors import InputError
from rekindle_local.bench import results, runs
from rekindle_local.bench.runs import Run

__all__ = ["Earlier", "read"]


@dataclass(frozen=True, slots=True)
class Earlier:
    """The runs that count, and failures as records `system, seed, error`."""

    found: Sequence[Run]
    failed: Sequence[dict[str, Any]]


def read(directory: Path, header: Mapping[str, Any], leader: str | None) -> Earlier:
    """What the report in a directory has of a contest with this header, in which `leader`, where
    there is one, is the first of each seed. Raises InputError."""
    path = directory / "recovery.json"
    try:
        written = json.loads(path.read_text())
        there = {name: written[name] for name in ("version", *header)}
        wanted = {"version": results.VERSION, **header}
        if there != wanted:
            raise InputError(
                where=str(path),
                what=f"is of another contest: {there}, and not {wanted}",
                remedy="give the same options, or another --report without --resume",
            )
        found = [runs.restored(directory, record) for record in written["runs"]]
        failed = [
            {key: one[key] for key in ("system", "seed", "error")} for one in written["failed"]
        ]
    except OSError as error:
        raise InputError(
            where=str(path),
            what=f"cannot be read ({error.strerror})",
            remedy="name the report of the run that was interrupted, or leave out --resume",
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            where=str(path),
            what="is not what `rekindle bench recovery` writes, or its runs are damaged",
            remedy="begin anew with another --report, without --resume",
        ) from error
    there_still = [run for run in found if run is not None]
    led = {run.record["seed"] for run in there_still if run.record["system"] == leader}
    kept = [run for run in there_still if leader is None or run.record["seed"] in led]
    return Earlier(kept, failed)
