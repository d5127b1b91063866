"""What an interrupted contest has left in its `recovery.json`, and which of it still counts.

    its failures or rate are others     ─► refused
    it has systems that are not asked for, or seeds without a run of the first one
                                        ─► refused: these would be lost
    a run's directory is gone           ─► it runs anew
    ... that of a seed's first run      ─► all of the seed: that run gives rate and victims

Failures of systems that are not run again are kept. `recovery` calls it.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rekindle.errors import InputError
from rekindle_local.bench import comparison, results, runs
from rekindle_local.bench.runs import Run

__all__ = ["FILE", "Earlier", "read"]

FILE = "recovery.json"
Positive = Annotated[float, msgspec.Meta(gt=0)]


class _Recorded(msgspec.Struct, kw_only=True):
    """What ratios, bars and what is still to run take of a record."""

    system: str
    seed: int
    rate: Positive
    share_of_rate: Annotated[float, msgspec.Meta(gt=0, le=1)]
    sustained: bool
    weighted_unavailable_seconds: float | None
    exactly_once: dict[str, int] | None
    quota_enforced: bool | None
    lag_growth: float | None = None

    def __post_init__(self) -> None:
        if self.sustained and self.weighted_unavailable_seconds is None:
            raise ValueError("sustained, and without a failure")


class _Incremental(_Recorded, kw_only=True):
    """Those whose plans are judged."""

    bound: float | None
    first_plan_epochs: float | None
    first_plan_seconds: float | None
    survivors_epochs_lost: int


class _Failure(msgspec.Struct):
    """A run that there is no record of."""

    system: str
    seed: int
    error: str


@dataclass(frozen=True, slots=True)
class Earlier:
    """The runs that count, failures as records `system, seed, error`, and the names of the runs
    that there is nothing left of but the record, or that have to be run anew with these."""

    found: Sequence[Run]
    failed: Sequence[dict[str, Any]]
    gone: Sequence[str]


def read(
    directory: Path, header: Mapping[str, Any], systems: Sequence[str], leader: str | None
) -> Earlier:
    """What the report in a directory has of a contest with this header, of whose `systems` the
    `leader`, where there is one, is the first of each seed. Raises InputError."""
    path = directory / FILE
    records, failed = _parsed(path, header)
    there = [run for run in (_restored(directory, record) for record in records) if run is not None]
    _check_systems(path, there, systems)
    led = {run.record["seed"] for run in there if run.record["system"] == leader}
    kept = [run for run in there if leader is None or run.record["seed"] in led]
    _check_led(path, there, {one["seed"] for one in records if one["system"] == leader}, leader)
    left = [id(run.record) for run in kept]
    gone = [f"{one['system']}, seed {one['seed']}" for one in records if id(one) not in left]
    return Earlier(kept, failed, gone)


def _parsed(
    path: Path, header: Mapping[str, Any]
) -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]:
    """The records of runs and of failures."""
    try:
        written = json.loads(path.read_text())
        there = {name: written[name] for name in ("version", *header)}
        records, failed = written["runs"], msgspec.convert(written["failed"], list[_Failure])
        for record in records:
            ours = record["system"] == comparison.OURS
            msgspec.convert(record, _Incremental if ours else _Recorded)
    except OSError as error:
        raise InputError(
            where=str(path),
            what=f"cannot be read ({error.strerror})",
            remedy="name the report of the run that was interrupted, or leave out --resume",
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(path) from error
    wanted = {"version": results.VERSION, **header}
    if there != wanted:
        raise InputError(
            where=str(path),
            what=f"is of another contest: {there}, and not {wanted}",
            remedy="give the same options, or another --report without --resume",
        )
    return records, [msgspec.structs.asdict(one) for one in failed]


def _restored(directory: Path, record: dict[str, Any]) -> Run | None:
    try:
        return runs.restored(directory, record)
    except OSError as error:
        raise InputError(
            where=str(error.filename),
            what=f"cannot be read ({error.strerror})",
            remedy="remove its directory, so that this run is run again",
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(directory / FILE) from error


def _check_systems(path: Path, there: Sequence[Run], systems: Sequence[str]) -> None:
    others = {run.record["system"] for run in there} - set(systems)
    if others:
        raise InputError(
            where=str(path),
            what=f"has runs of {', '.join(sorted(others))}, which --strategies leaves out",
            remedy="add them, or begin anew with another --report, without --resume",
        )


def _check_led(path: Path, there: Sequence[Run], led: Set[int], leader: str | None) -> None:
    """Whether each seed of the runs that are there has a record of its first run."""
    for seed in sorted({run.record["seed"] for run in there} - led if leader else ()):
        raise InputError(
            where=str(path),
            what=f"has seed {seed} without a run of {leader}, which tells others their rate",
            remedy=f"leave {leader} out, or begin anew with another --report, without --resume",
        )


def _damaged(path: Path) -> InputError:
    return InputError(
        where=str(path),
        what="is not what `rekindle bench recovery` writes, or its runs are damaged",
        remedy="begin anew with another --report, without --resume",
    )
