"""Records for which a user's function raises: found, named, and left out as dead letters.

A function gets a whole table. Where it raises, halves of the table show for which rows; such a row
is tried alone, some times where the step has dead letters. Without them the first such row ends
it, in an error that says which one it is. Which rows are left out may depend on what was away for a
moment, so it is a choice: once an epoch is committed, a repeat leaves out exactly the same. The
same holds for records that a source cannot decode. Called by `partition`, and by operators with
user code.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from rekindle import interrupts
from rekindle.model.errors import RekindleError, StepError, printable
from rekindle_spark import intervals
from rekindle_spark.user_code import code_locations
from rekindle_spark.user_code.watchdog import EndedProcess, Watchdog
from rekindle_store.committed_files import DEAD_LETTERS

# The output of a step's dead letters has the step's name with this behind; its rows have these
# columns behind those of the step's input.
ENDING = DEAD_LETTERS
COLUMNS = (
    pa.field("dead_letter_step", pa.string()),
    pa.field("dead_letter_epoch", pa.int64()),
    pa.field("dead_letter_error", pa.string()),
)

# What a user's function may raise without an end to the host: a panic of a library in Rust is no
# Exception, nor are SystemExit and KeyboardInterrupt.
USERS_ERRORS = BaseException
# What is no function's fault, though it comes out of one.
PASSED_ON = (RekindleError, code_locations.Stopped)
MEND = "mend the step's function and start again: committed output stays"
# A note for each key would take a tenth of the time of a short `handle`.
KEYS_NOTED = 64
SHOWN_COLUMNS_MAX, SHOWN_VALUE_MAX, SHOWN_ERROR_MAX = 4, 40, 300


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How often a row is tried alone, and how many rows a step may leave out in an epoch of a
    partition: a number, or a share of the rows where that is more."""

    tries: int
    letters_max: int
    percent_max: float = 0.0

    def letters_of(self, rows: int) -> int:
        """Return how many of so many rows may be left out."""
        return max(self.letters_max, int(rows * self.percent_max / 100))


# of a step without dead letters
STRICT = Tolerance(1, 0)
# What stands in the place of an error that nobody has kept.
LEFT_OUT = "was left out when the epoch ran first"


@dataclass(frozen=True, slots=True)
class LeftOutRows:
    """Places of the rows that a step left out in one partition and epoch, and of those that it took
    one by one because rows of one key raised together, as stretches (`intervals`)."""

    left: tuple[int, ...] = ()
    alone: tuple[int, ...] = ()

    def divides(self, span: tuple[int, int]) -> bool:
        """Whether one of the rows of a key, at these places, was left out, or taken by itself."""
        return intervals.meets(self.left, *span) or intervals.meets(self.alone, *span)


@dataclass(slots=True)
class Sieve:
    """Runs one step's function in one partition and epoch; `letters` are the rows it left out.

    `columns` tell a row best. `first_row` is the offset in the source of the table's first row,
    where the rows come straight from one. `rows` is how many there are, `function` the user's.
    `known` is what was chosen when the epoch was run and committed; None: it has not been.
    """

    step: str
    partition: str
    epoch: int
    columns: Sequence[str]
    tolerance: Tolerance
    first_row: int | None = None
    rows: int = 0
    function: object = None
    letters: list[pa.Table] = field(default_factory=list)
    watchdog: Watchdog = field(default_factory=Watchdog)
    known: LeftOutRows | None = None
    left_places: list[int] = field(default_factory=list)
    alone_places: list[int] = field(default_factory=list)

    @property
    def choice(self) -> LeftOutRows:
        """What has been chosen in this run."""
        return LeftOutRows(intervals.of(self.left_places), intervals.of(self.alone_places))

    def run(self, table: pa.Table, function: Callable[[pa.Table], Any]) -> Any:
        """What `function` makes of the table without the rows that become letters.

        Raises StepError where the step has no dead letters, or too many.
        """
        self.rows = table.num_rows
        places: Sequence[int] = range(table.num_rows)
        if self.known is not None and self.known.left:
            table, places = self._without_known(table, self.known)
        result, error = self.attempt(partial(function, table))
        if error is None:
            return result
        rest = self._rest(table, function, places)
        if self.tolerance.letters_max:
            result, error = self.attempt(partial(function, rest))
        if error is not None:
            raise self._fault(error, "no single row")
        return result

    def attempt(self, function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """What a call of the step's function gives, or what it raises. One that is known to end its
        process is not made."""
        ended = self.watchdog.calling(self.step)
        return attempt(function) if ended is None else (None, ended)

    def progress(self) -> None:
        """Note that the function goes on, where its calls are too short to be noted one by one."""
        if not self.watchdog.counts:
            self.watchdog.calling(self.step)

    @property
    def is_watched(self) -> bool:
        """Whether `known_end` has to be asked before each call, or choices are to be repeated."""
        return self.known is not None or self.watchdog.counts

    def known_end(self) -> BaseException | None:
        """Where calls are noted one by one, note the next; what is known to come of it."""
        return self.watchdog.calling(self.step) if self.watchdog.counts else None

    def _without_known(self, table: pa.Table, known: LeftOutRows) -> tuple[pa.Table, Sequence[int]]:
        """The rows that were not left out, and their places in the table."""
        left = set(intervals.numbers(known.left))
        for place in sorted(left):
            self._leave_out(table.slice(place, 1), LEFT_OUT, place)
        places = [place for place in range(table.num_rows) if place not in left]
        return table.take(pa.array(places, pa.int64())).combine_chunks(), places

    def alone(
        self,
        row: pa.Table,
        function: Callable[[], Any],
        number: int | None = None,
        place: int | None = None,
        *,
        always: bool = False,
    ) -> tuple[Any, BaseException | None]:
        """What `function` gives for one row, or what it raised: the row is a letter then.

        `number` is the row's place in its table, to be shown, `place` the one by which it is known
        in a repeat. With `always` that is no choice: every repeat will find the same. Raises
        StepError as `run` does.
        """
        known = None if always else self.known
        if known is not None and place is not None and intervals.has(known.left, place):
            error: BaseException | None = RuntimeError(LEFT_OUT)
            self._leave_out(row, LEFT_OUT, place)
            return None, error
        for _ in range(self.tolerance.tries):
            result, error = self.attempt(function)
            if error is None:
                if place is not None:
                    self.alone_places.append(place)
                return result, None
            if isinstance(error, EndedProcess):
                break
        assert error is not None
        if known is not None:
            raise self._fault(error, f"{self._shown(row, number)}, which it took before")
        if len(self.letters) >= self.tolerance.letters_of(self.rows):
            raise self._fault(error, self._shown(row, number), one_too_many=True)
        self._leave_out(row, raised(error), place)
        return None, error

    def _leave_out(self, row: pa.Table, why: str, place: int | None) -> None:
        """Make a letter of a row."""
        for column, value in zip(COLUMNS, (self.step, self.epoch, why), strict=True):
            row = row.append_column(column, pa.array([value], column.type))
        self.letters.append(row)
        if place is not None:
            self.left_places.append(place)

    def together(self, error: BaseException) -> None:
        """Rows raise together, and none of them alone: that is no letter's fault."""
        if not self.tolerance.letters_max:
            raise self._fault(error, "no single row")

    def refuse(self, error: BaseException) -> None:
        """Rows of a key raise that have been taken together in an epoch that is committed."""
        raise self._fault(error, "rows of one key, which it took before")

    def _rest(
        self, table: pa.Table, function: Callable[[pa.Table], Any], places: Sequence[int]
    ) -> pa.Table:
        """The rows that raise neither alone nor in the halves that were looked at."""
        kept, spans = [table.slice(0, 0)], [(0, table.num_rows)]
        while spans:
            begin, end = spans.pop()
            part = table.slice(begin, end - begin)
            if end - begin == 1:
                place = places[begin]
                _, error = self.alone(part, partial(function, part), place, place)
            else:
                _, error = self.attempt(partial(function, part))
            if error is None:
                kept.append(part)
            elif end - begin > 1:
                middle = (begin + end) // 2
                spans += [(middle, end), (begin, middle)]
        return pa.concat_tables(kept).combine_chunks()

    def _shown(self, row: pa.Table, number: int | None) -> str:
        """What finds a row in the input: its number, event time and keys, then other columns."""
        names = dict.fromkeys(name for name in self.columns if name in row.column_names)
        names |= dict.fromkeys(row.column_names)
        values = [f"{name}={_short(row[name][0])}" for name in [*names][:SHOWN_COLUMNS_MAX]]
        if number is not None and self.first_row is not None:
            values.insert(0, f"source row {self.first_row + number}")
        elif number is not None:
            values.insert(0, f"row {number}")
        return ", ".join(values)

    def _fault(self, error: BaseException, place: str, *, one_too_many: bool = False) -> StepError:
        what = f"{raised(error)}, at epoch {self.epoch} of {self.partition}, {place}"
        remedy = MEND
        if self.letters:
            what += f", after {len(self.letters)} dead letters"
            if one_too_many:
                what += f" of {self.rows:,} rows, the most it may have"
                remedy += "; or raise dead_letters_max or dead_letters_percent_max in the settings"
        elif not self.tolerance.letters_max:
            remedy += "; or give the step dead_letters=True"
        # what is called with the wrong parameters raises in here
        if function := code_locations.raised_at(error) or code_locations.defined_at(self.function):
            what += f", in {function}"
        fault = StepError(where=f"step {self.step}", what=what, remedy=remedy)
        fault.__cause__ = error
        return fault


def letters_of(
    name: str, epoch: int, rejects: pa.Table, rows_read: int, tolerance: Tolerance | None
) -> pa.Table:
    """Dead letters of what a source could not make rows of, beside so many that it could; the last
    column says why. `tolerance` is None where the source has no dead letters.

    Raises StepError then, and where there are more than there may be.
    """
    rows_read += rejects.num_rows
    if tolerance is None or rejects.num_rows > tolerance.letters_of(rows_read):
        remedy = "mend what writes them, or how they are decoded, and start again"
        if tolerance is None:
            remedy += "; or give the source dead_letters=True"
        else:
            remedy += "; or raise dead_letters_max in the settings"
        raise _undecoded(name, f"in epoch {epoch}", rejects, remedy)
    return _with_reasons(name, epoch, rejects)


def letters_again(
    name: str, epoch: int, rejects: pa.Table, places: Sequence[int], known: Collection[int]
) -> pa.Table:
    """The same of an epoch that is committed, in which the records at the places `known` were left
    out. Raises StepError where the source cannot decode others."""
    others = [row for row, place in enumerate(places) if place not in known]
    if others:
        remedy = "bring back what decodes them, as a schema or a service, and start again"
        when = f"in epoch {epoch} that it decoded before"
        raise _undecoded(name, when, rejects.take(others), remedy)
    return _with_reasons(name, epoch, rejects)


def _undecoded(name: str, when: str, rejects: pa.Table, remedy: str) -> StepError:
    names = rejects.column_names[:-1]
    shown = ", ".join(f"{column}={_short(rejects[column][0])}" for column in names[:4])
    what = f"cannot decode {rejects.num_rows} records {when}, first {shown}: "
    return StepError(
        where=f"step {name}", what=what + str(rejects.columns[-1][0].as_py()), remedy=remedy
    )


def _with_reasons(name: str, epoch: int, rejects: pa.Table) -> pa.Table:
    """Rejects as dead letters; their last column says why."""
    rows, count = rejects.drop_columns([rejects.column_names[-1]]), rejects.num_rows
    reasons = rejects.columns[-1]
    added = (pa.array([name] * count), pa.array([epoch] * count, pa.int64()), reasons)
    for column, values in zip(COLUMNS, added, strict=True):
        rows = rows.append_column(column, values)
    return rows


def attempt(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a user's function gives, or what it raises; nothing of that may end the host."""
    try:
        return function(), None
    except USERS_ERRORS as error:
        if is_passed_on(error):
            raise
        return None, error


def is_passed_on(error: BaseException) -> bool:
    """Say whether what comes out of a user's function is no fault of it."""
    # Ctrl-C raises it in a command and in a user's test, but neither in a host nor under a guard:
    # there the function has raised it.
    if isinstance(error, KeyboardInterrupt):
        in_main_thread = threading.current_thread() is threading.main_thread()
        return in_main_thread and interrupts.raises_keyboard_interrupt()
    return isinstance(error, PASSED_ON)


def raised(error: BaseException) -> str:
    """What was raised, or how a process ended, on one line."""
    if isinstance(error, EndedProcess):
        return str(error)
    said = _said(error)[:SHOWN_ERROR_MAX]
    return f"raised {type(error).__name__}: {said}" if said else f"raised {type(error).__name__}"


def _said(error: BaseException) -> str:
    """The text of an error, on one line that can be shown, whatever its class makes of it."""
    try:
        return printable(" ".join(str(error).split()))
    except Exception as raised_by_it:
        return f"(its text raised {type(raised_by_it).__name__})"


def _is_text(value: pa.Scalar) -> bool:
    return bool(pa.types.is_string(value.type) or pa.types.is_large_string(value.type))


def _short(value: pa.Scalar) -> str:
    """A value on one line, long ones cut."""
    try:
        if pa.types.is_temporal(value.type) and value.is_valid:
            return str(value.cast(pa.string()).as_py())
        text = repr(value.as_py())
    except Exception:  # Python has no such value: a year above 9999, text that is no UTF-8
        text = " ".join(str(value.cast(pa.binary()).as_py() if _is_text(value) else value).split())
    return text if len(text) <= SHOWN_VALUE_MAX else f"{text[: SHOWN_VALUE_MAX - 3]}..."
