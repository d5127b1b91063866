"""Checks that the libraries of earlier epochs are still used, since others may give other output.

Digests are of bytes that pyarrow makes, and of sums that polars adds up. Another version may give
another byte, which is no fault of the pipeline; the run would end at each start. So a start with
other versions goes on from a savepoint alone, behind which nothing runs again. Called by
`driver_main`.
"""

from collections.abc import Mapping
from importlib import metadata

import rekindle
from rekindle.model.errors import InputError
from rekindle_spark.store.commit_summary import CommitSummary
from rekindle_store import commit_log
from rekindle_store.store_files import Files

LIBRARIES = ("polars", "pyarrow")


def installed() -> dict[str, str]:
    """The version of each library here by its name, and that of Rekindle."""
    libraries = {name: metadata.version(name) for name in LIBRARIES}
    return {"rekindle": rekindle.__version__, **libraries}


def check(files: Files, fold: CommitSummary) -> None:
    """Raise InputError where epochs whose digests are known may run again with other versions than
    those of the driver before. Of drivers of earlier versions it is not known which they were."""
    starts = commit_log.generations(files)
    if not starts or not fold.has_digests:
        return
    before = commit_log.generation(files, starts[-1]).get("libraries")
    now = installed()
    if before in (None, now):
        return
    raise InputError(
        where=f"checkpoint store {files.place}",
        what=f"was written with {_named(before, now)}, and this is {_named(now, before)}: epochs "
        "that have to run again may give other bytes, at which the run would end",
        remedy="start it as it was, end it with `rekindle savepoint STORE`, and start this one "
        "then (docs/operations.md)",
    )


def _named(versions: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The versions that differ, in words."""
    names = sorted(name for name in {*versions, *other} if versions.get(name) != other.get(name))
    return ", ".join(f"{name} {versions.get(name, '(none)')}" for name in names)
