"""What a query is started with: a limit of its batches, and a pool of Spark's scheduler.

    its batches so far ──► rows a second ──► `rows_max` of its next run ──► options of its source
    its priority ──► weight of its pool, and the order of names
    the slots that it takes, and those that are there ──► minShare

A source takes its options when the stream is made, which is the start function's work, and Spark
has no way to change them from outside. So a function that wants the limit takes it as its argument.

Spark makes a pool of weight 1 without a minShare when its name is first used, and reads others from
a file at its own start alone. So a pool is put into the scheduler's tree before a query uses its
name. The figures of a pool cannot be changed, nor can the pool of a query that runs: each start of
a query uses the pool with the figures of that moment. Nothing is done where `spark.scheduler.mode`
is not FAIR, or where a start function's thread has a pool already.
"""

import inspect
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rekindle.model.errors import InputError, first_line

# What a batch of a query that catches up is to take, by the highest rate that was seen. Spark holds
# the limit until the next start, so it leaves room for input that grows.
BATCH_INTERVALS, BATCH_SECONDS_MIN = 4.0, 20.0
# Sizes of files are guesses: a batch with so much of the limit has been cut off by it.
FULL_SHARE = 0.5
KAFKA_OPTION, FILES_OPTION = "maxOffsetsPerTrigger", "maxFilesPerTrigger"
FILE_FORMATS = frozenset({"avro", "binaryFile", "csv", "json", "orc", "parquet", "text", "xml"})
NEEDED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

POOL, MODE = "spark.scheduler.pool", "spark.scheduler.mode"
SLOT_PERCENT = 100.0
# Two digits after the point tell priorities apart; 10 is the highest.
PRIORITY_STEPS, PRIORITY_MAX = 100, 10

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """What a start function is given that takes an argument.

    `rows_max` is how many rows a batch is to take at most; None is no limit, as at the first start
    and where nothing was measured before the loss.
    """

    rows_max: int | None = None

    def options(self, source: str, *, rows_per_file: int | None = None) -> dict[str, str]:
        """Options for `readStream.format(source)`: `kafka`, or a format of files, of which
        `rows_per_file` says how large they are. Empty where there is no limit.

        Raises InputError for another source, at the first start as well: it has options of its own.
        """
        if source == "kafka":
            return self._option(KAFKA_OPTION, 1)
        if source not in FILE_FORMATS:
            raise InputError(
                where=f"BatchLimit: source {source!r}",
                what="has no limit that is known here",
                remedy="give the source's own option the value of `rows_max`, unless that is None",
            )
        if rows_per_file is None or rows_per_file < 1:
            raise InputError(
                where=f"BatchLimit: source {source!r}",
                what="is limited by its number of files",
                remedy="give `rows_per_file`, about as many as a file has",
            )
        return self._option(FILES_OPTION, rows_per_file)

    def is_full(self, rows: int) -> bool:
        """Whether a batch with so many rows may have left more behind."""
        return self.rows_max is not None and rows >= FULL_SHARE * self.rows_max

    def _option(self, name: str, rows_each: int) -> dict[str, str]:
        if self.rows_max is None:
            return {}
        return {name: str(max(1, self.rows_max // rows_each))}


def of_rate(rows_per_second: float, interval_seconds: float) -> BatchLimit:
    """For a query that has worked off so many rows a second, and has such a trigger interval."""
    if rows_per_second <= 0.0:
        return BatchLimit()
    seconds = max(BATCH_SECONDS_MIN, BATCH_INTERVALS * interval_seconds)
    return BatchLimit(math.ceil(seconds * rows_per_second))


def is_taken_by(start: Callable[..., Any], name: str) -> bool:
    """Whether a query's start function takes a limit: whether it needs an argument. InputError
    where it needs more than that one."""
    try:
        parameters = inspect.signature(start).parameters.values()
    except (TypeError, ValueError):  # of functions that are not written in Python
        return False
    needed = [
        one
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if len(needed) > 1 or any(one.kind not in NEEDED for one in needed):
        raise InputError(
            where=f"protect: query {name}",
            what=f"its start function needs {', '.join(one.name for one in needed)}",
            remedy="let it need nothing, or one argument, which is a BatchLimit",
        )
    return bool(needed)


@dataclass(slots=True)
class SchedulerPools:
    """The pools of a session's queries, by their `priorities`. `shares` are the slots that queries
    get before others, set before each start."""

    spark: Any
    priorities: Mapping[str, float]
    shares: Mapping[str, int] = field(default_factory=dict)

    @contextmanager
    def entered(self, query: str) -> Iterator[None]:
        """In this thread, what is started uses the pool of a query."""
        context = self.spark.sparkContext
        mode = context.getConf().get(MODE, "FIFO")
        if mode.upper() != "FAIR" or context.getLocalProperty(POOL) is not None:
            yield
            return
        context.setLocalProperty(POOL, self._pool(query))
        try:
            yield
        finally:
            context.setLocalProperty(POOL, None)

    def _pool(self, query: str) -> str:
        """The name of the pool, which is there afterwards."""
        share = self.shares.get(query, 0)
        name = pool_name(query, self.priorities[query], share)
        try:
            root = self.spark._jsc.sc().taskScheduler().rootPool()
            if root.getSchedulableByName(name) is None:
                scheduler = self.spark._jvm.org.apache.spark.scheduler
                weight = max(1, round(self.priorities[query]))
                first_in_first_out = scheduler.SchedulingMode.FIFO()
                root.addSchedulable(scheduler.Pool(name, first_in_first_out, share, weight))
        except Exception as error:  # a Spark whose scheduler is another: it makes a plain pool
            log.warning("query %s has a plain pool: %s", query, first_line(error))
        return name


def pool_name(query: str, priority: float, share: int) -> str:
    """Of two pools that have as little as each other, Spark serves the one first whose name comes
    first. On few slots this decides more than weights do."""
    rank = round(PRIORITY_STEPS * (PRIORITY_MAX - priority))
    return f"rekindle-{rank:04}-{query}-{share}"


def min_shares(
    loads: Mapping[str, float], priorities: Mapping[str, float], slots: int
) -> dict[str, int]:
    """Slots that queries get before others: as many as they take (`loads`, in percent of one), the
    most important first, as far as there are slots. Queries of one priority have theirs all, or
    none of them has."""
    found = dict.fromkeys(loads, 0)
    order = sorted(loads, key=lambda name: -priorities[name])
    for _, names in groupby(order, key=lambda name: priorities[name]):
        needed = {name: max(1, math.ceil(loads[name] / SLOT_PERCENT)) for name in names}
        slots -= sum(needed.values())
        if slots < 0:
            break
        found.update(needed)
    return found
