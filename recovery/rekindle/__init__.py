"""The pure core: classifies failures, and decides which queries come back where.

No clock, no chance, no Spark: values in, values out. Runtime and shells stand on it.

    rekindle.read(store, query).polars()     the committed rows of a query
    rekindle.committed_files(store, query)   the files with these rows
    rekindle.protect(spark, queries)         streaming queries of one application, by priority

Their code is in `rekindle_store` and `rekindle_spark`, and loaded when one of them is first used.

    planning      solvers, upper bound and placement
    protocol      messages between driver, sidecar and coordinator
    coordination  the coordinator: state and event in, state and instructions out
    report        every figure of `report.json`, computed from a run's records
    verification  the same figures again, and every output row against a batch computation
    history       a checker of released output: possible without failures or not
    forecast      simulated failures, before they happen
    page_style    the style sheet that all our pages share
    interrupts    Ctrl-C in the processes of commands
    model         values that all parts share: topology, settings, reasons, errors
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rekindle_store.committed_files import CommittedFile, committed_files
    from rekindle_store.query_output import Output, read

__all__ = ["CommittedFile", "Output", "committed_files", "read"]

__version__ = "0.1.0"

# `protect` has no import above, nor a place in `__all__`: the runtime imports this package, so
# packages of it that know nothing of each other would all seem to import the control plane.
IMPORTED_FOR_USERS = {
    "CommittedFile": "rekindle_store.committed_files",
    "Output": "rekindle_store.query_output",
    "committed_files": "rekindle_store.committed_files",
    "protect": "rekindle_spark.protection.protection",
    "read": "rekindle_store.query_output",
}


def __getattr__(name: str) -> Any:
    """What users import: an executor's host imports this package too, and must start fast."""
    if name not in IMPORTED_FOR_USERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(IMPORTED_FOR_USERS[name]), name)
