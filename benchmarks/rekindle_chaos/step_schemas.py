"""Which columns each step of a trial gives, of which kind, and which of them is the event time.

Kinds: text, whole, number, time. `unique_by` are columns that together with the event time tell all
rows apart, None where nothing does: only then is the order of a key's rows the same for everybody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rekindle_chaos import trials
from rekindle_chaos.trials import Step

SOURCE = {"at": "time", "key": "text", "code": "whole", "value": "whole"}
RESULTS = {"count": "whole", "sum": "whole", "min": "whole", "max": "whole", "mean": "number"}


@dataclass(frozen=True, slots=True)
class Shape:
    """The output of one step."""

    columns: Mapping[str, str]
    time: str
    unique_by: frozenset[str] | None

    def named(self, kind: str) -> list[str]:
        """The columns of a kind, in order."""
        return [name for name, found in self.columns.items() if found == kind]


def of_all(steps: Iterable[Step]) -> dict[str, Shape]:
    """Of every step but the sinks, which give what they get."""
    found: dict[str, Shape] = {}
    for step in steps:
        if not isinstance(step, trials.Sink):
            found[step.name] = of(step, found)
    return found


def of(step: Step, before: Mapping[str, Shape]) -> Shape:
    """Of one step, with the shapes of those before it."""
    match step:
        case trials.TrialSource():
            return Shape(SOURCE, "at", frozenset())
        case trials.Filter() | trials.Sink():
            return before[step.input]
        case trials.ScaleStep():
            shape = before[step.input]
            return Shape({**shape.columns, step.into: "whole"}, shape.time, shape.unique_by)
        case trials.Pick():
            return _picked(step, before[step.input])
        case trials.WindowStep():
            keys = {key: before[step.input].columns[key] for key in step.keys}
            results = {name: RESULTS[function] for name, (function, _) in step.aggregates.items()}
            columns = {**keys, "window_start": "time", "window_end": "time", **results}
            return Shape(columns, "window_end", frozenset(step.keys))
        case trials.TopStep():
            shape = before[step.input]
            return Shape({**shape.columns, "rank": "whole"}, shape.time, shape.unique_by)
        case trials.Rises():
            shape = before[step.input]
            keys = {key: shape.columns[key] for key in step.keys}
            columns = {**keys, shape.time: "time", "rise": "whole", "number": "whole"}
            return Shape(columns, shape.time, frozenset(step.keys))
        case trials.Join():
            left, right = before[step.left].columns, before[step.right].columns
            others = {name: kind for name, kind in right.items() if name not in step.keys}
            return Shape({**left, **others, "event_time": "time"}, "event_time", None)
        case trials.Union():
            return before[step.inputs[0]]


def _picked(step: trials.Pick, shape: Shape) -> Shape:
    columns = {new: shape.columns[name] for name, new in step.columns.items()}
    unique_by = shape.unique_by
    if unique_by is not None:
        kept = unique_by <= step.columns.keys()
        unique_by = frozenset(step.columns[name] for name in unique_by) if kept else None
    return Shape(columns, step.columns[shape.time], unique_by)
