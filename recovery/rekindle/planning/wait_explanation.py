"""Why a query waits while a less important one runs: values, and one sentence.

The planner brings back the set with the highest sum of priorities that fits, and stops nothing
that runs. So an important query waits where what it misses needs more room than there is, or a
larger piece of one node. Pure; the report's plans and `explain` say the sentence.
"""

from dataclasses import dataclass

from rekindle.model.sentences import percent

LEAST_PERCENT = 0.05


@dataclass(frozen=True, slots=True)
class Lesser:
    """A less important query that runs or is being brought back; `ran_before` the plan, or comes
    back with it."""

    query: str
    priority: float
    ran_before: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """A query that waits, what it needs and what there is, in percent of one core.

    `needed` is what its missing partitions cost together, `largest` the largest of them; `free` is
    what is left on all nodes together, `free_on_one` on the node with most; None where nodes are
    not told apart.
    """

    query: str
    priority: float
    needed: float
    largest: float
    free: float
    free_on_one: float | None = None


def sentence(wait: Wait, running: Lesser) -> str:
    """Say why `wait.query` waits while a less important query runs."""
    does, why = "comes back", f"and {running.query} needed less"
    if running.ran_before:
        does, why = "runs", "and what runs is not stopped for it"
    return (
        f"{wait.query} (priority {wait.priority:g}) waits while {running.query} "
        f"(priority {running.priority:g}) {does}: {_room(wait)}, {why}."
    )


def _room(wait: Wait) -> str:
    needs, left = percent(wait.needed), percent(wait.free)
    if wait.free < LEAST_PERCENT:
        return f"it needs {needs} of a core and nothing is left"
    if wait.needed > wait.free + LEAST_PERCENT:
        return f"it needs {needs} of a core and {left} is left"
    if wait.free_on_one is not None and wait.largest > wait.free_on_one + LEAST_PERCENT:
        largest, on_one = percent(wait.largest), percent(wait.free_on_one)
        return f"a partition of it needs {largest} of a core and no node has more than {on_one}"
    return f"it needs {needs} of a core and the {left} that is left does not hold it in pieces"
