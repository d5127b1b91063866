"""Errors of a repeat that gave another output than the first run.

On CPUs of several kinds native libraries may rightly give another last bit, and that is another
mistake than a clock or a set in a function. Called by `job_runner`.
"""

from collections.abc import Iterable

from rekindle.model.errors import RunError

WHAT = "gave another output when it ran again on the same input"
REMEDY = "take clocks, random numbers and unordered data out of its function"


def differing(step: str, epoch: int, machines: Iterable[str]) -> RunError:
    """The error for a step whose repeat differs; `machines` are the kinds of CPU of the executors
    that there have been, as `native_libraries.machine` describes them."""
    kinds = sorted(set(machines))
    where = f"step {step}, epoch {epoch}"
    if len(kinds) < 2:
        return RunError(where=where, what=WHAT, remedy=REMEDY)
    return RunError(
        where=where,
        what=f"{WHAT}, and executors have CPUs of several kinds ({', '.join(kinds)}), on which "
        "libraries of numbers may give another last bit",
        remedy="declare the step uncertain (deterministic=False), or run on nodes of one kind "
        f"(docs/pipelines.md); if that changes nothing, {REMEDY}",
    )
