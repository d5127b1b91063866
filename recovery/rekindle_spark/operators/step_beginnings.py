"""Where steps begin that are new in a pipeline which goes on: nothing is half of a whole.

    rows are whole from an event time on: all that have it, or a later one, will come

A window of which rows have gone by before would be wrong without a sign of it. So the first window
of a new step is the first one that is whole, and what is made of it is whole from later on. Pure;
`savepoint_upgrade` asks.
"""

from typing import Any

from rekindle_spark.operators.joins import IntervalJoin
from rekindle_spark.operators.windows import WindowAggregate


def initial_from(operator: Any, moment: int) -> Any:
    """The state of a step that is new, and whose rows are whole from an event time in microseconds
    on."""
    if isinstance(operator, WindowAggregate):
        return operator.initial_from(moment)
    return operator.initial()


def new_from(operator: Any, moment: int) -> int:
    """From when on the output of a new step is whole, whose input is from `moment` on."""
    if isinstance(operator, WindowAggregate):
        # the newest window that is left out ends here
        return operator.first_whole_start(moment) - operator.slide + operator.size + 1
    if isinstance(operator, IntervalJoin):
        return moment + operator.within
    return moment


def kept_from(operator: Any, watermark: int) -> int:
    """From when on the output of a step that goes on at a watermark is all still to come."""
    # a window is emitted when the watermark has passed its last moment: the one before its end
    return watermark + (2 if isinstance(operator, WindowAggregate) else 1)
