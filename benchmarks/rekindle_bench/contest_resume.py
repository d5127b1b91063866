"""What an interrupted contest has left in its `recovery.json`, and which of it still counts.

    its failures or rate are others ─► refused
    a run's directory is gone       ─► it runs anew
    the first run of a seed is gone, or failed
                                    ─► all of the seed: that run gives rate and victims
    what would be lost and not run anew, or was measured without a first run
                                    ─► refused

Failures of systems that are not run again are kept. `recovery_benchmark` calls it.
"""

import json
import shutil
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rekindle.model.errors import InputError
from rekindle_bench import bar_results, recovery_runs, system_comparison
from rekindle_bench.contest_order import Contest
from rekindle_bench.recovery_runs import RecoveryRun
from rekindle_cli.cli_options import STRATEGIES

FILE = "recovery.json"
Seed = Annotated[int, msgspec.Meta(ge=0)]
Record = dict[str, Any]


class _Rows(msgspec.Struct):
    missing: int
    duplicated: int
    wrong: int


class _Killed(msgspec.Struct):
    at: float
    nodes: Sequence[str]


class _OfPeer(msgspec.Struct, kw_only=True):
    """What ratios, bars and what is still to run take of a record."""

    system: str
    seed: Seed
    rate: Annotated[float, msgspec.Meta(gt=0)]
    share_of_rate: Annotated[float, msgspec.Meta(gt=0, le=1)]
    sustained: bool
    weighted_unavailable_seconds: float | None
    exactly_once: _Rows | None
    quota_enforced: bool | None
    lag_growth: float | None = None
    commit: str = "unknown"
    failures: Sequence[_Killed] = ()

    def __post_init__(self) -> None:
        failed = self.weighted_unavailable_seconds is not None
        if failed != bool(self.failures) or (self.sustained and not failed):
            raise ValueError("a figure without a failure, or the other way round")


class _OfRekindle(_OfPeer, kw_only=True):
    weighted_unavailable_seconds: float


class _OfIncremental(_OfRekindle, kw_only=True):
    bound: float | None
    first_plan_epochs: float | None
    first_plan_seconds: float | None
    survivors_epochs_lost: int


class _Failure(msgspec.Struct):
    system: str
    seed: Seed
    error: str


@dataclass(frozen=True, slots=True)
class Earlier:
    """The runs that count, failures as records `system, seed, error`, and "SYSTEM, seed N" of each
    run that is run again though there is a record of it."""

    found: Sequence[RecoveryRun]
    failed: Sequence[Record]
    gone: Sequence[str]


def read(directory: Path, asked: Contest) -> Earlier:
    """What the report in a directory has of a contest. Raises InputError."""
    path = directory / FILE
    records, failed = _parsed(path, asked.header)
    _check_systems(path, records, asked.systems)
    restored = [(record, recovery_runs.restored(directory, record)) for record in records]
    there = [run for _, run in restored if run is not None]
    anew = _anew(path, there, [*records, *failed], asked)
    kept = [run for run in there if run.record["seed"] not in anew]
    gone = [record for record, run in restored if run is None or record["seed"] in anew]
    for record in gone:
        if record["seed"] not in asked.seeds:
            raise InputError(
                where=str(path),
                what=f"has a run of {_named(record)}, whose directory is gone",
                remedy="give its seed, so that it is run again, or take it out of the file",
            )
    return Earlier(kept, failed, [_named(record) for record in gone])


def keep(directory: Path) -> Path:
    """Copy the report to a file beside it that is not there yet, and name that."""
    names = (directory / f"recovery-before-{n}.json" for n in count(1))
    beside = next(name for name in names if not name.exists())
    shutil.copy(directory / FILE, beside)
    return beside


def _parsed(path: Path, header: Mapping[str, Any]) -> tuple[Sequence[Record], Sequence[Record]]:
    """The records of runs and of failures."""
    wanted = {"version": bar_results.VERSION, **header}
    try:
        written = json.loads(path.read_text())
        there = {name: written[name] for name in wanted}
    except OSError as error:
        raise InputError(
            where=str(path),
            what=f"cannot be read ({error.strerror})",
            remedy="name the report of the run that was interrupted, or leave out --resume",
        ) from error
    except (ValueError, LookupError, TypeError) as error:
        raise _damaged(path) from error
    others = [name for name in wanted if there[name] != wanted[name]]
    if others:
        told = ", ".join(
            f"{name} {json.dumps(there[name])} and not {json.dumps(wanted[name])}"
            for name in others
        )
        raise InputError(
            where=str(path),
            what=f"is of another contest: {told}",
            remedy="give the same options, or another --report without --resume",
        )
    try:
        records = msgspec.convert(written["runs"], list[Record])
        for record in records:
            msgspec.convert(record, _kind(record["system"]))
        failed = msgspec.convert(written["failed"], list[_Failure])
    except (ValueError, LookupError, TypeError) as error:
        raise _damaged(path) from error
    return records, [msgspec.structs.asdict(one) for one in failed]


def _kind(system: str) -> type[_OfPeer]:
    if system == system_comparison.OURS:
        return _OfIncremental
    return _OfRekindle if system in STRATEGIES else _OfPeer


def _check_systems(path: Path, records: Sequence[Record], systems: Sequence[str]) -> None:
    others = {record["system"] for record in records} - set(systems)
    if others:
        raise InputError(
            where=str(path),
            what=f"has runs of {', '.join(sorted(others))}, which --strategies leaves out",
            remedy="add them, or begin anew with another --report, without --resume",
        )


def _anew(
    path: Path, there: Sequence[RecoveryRun], told: Sequence[Record], asked: Contest
) -> Set[int]:
    """The seeds of this contest that have runs and have lost their first one. Raises InputError
    where they never had one."""
    if asked.leader is None:
        return set()
    found = {run.record["seed"] for run in there} & set(asked.seeds)
    lost = found - {run.record["seed"] for run in there if run.record["system"] == asked.leader}
    never = lost - {one["seed"] for one in told if one["system"] == asked.leader}
    if never:
        raise InputError(
            where=str(path),
            what=f"has runs of seeds {', '.join(map(str, sorted(never)))} that were made without "
            f"{asked.leader}, the first of each seed",
            remedy=f"leave {asked.leader} out, or begin anew with another --report",
        )
    return lost


def _named(record: Record) -> str:
    return f"{record['system']}, seed {record['seed']}"


def _damaged(path: Path) -> InputError:
    return InputError(
        where=str(path),
        what="is not what `rekindle bench recovery` writes, or its runs are damaged",
        remedy="begin anew with another --report, without --resume",
    )
