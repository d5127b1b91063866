"""The tree of errors: place, fault and remedy of each.

    RekindleError
    ├── InputError   bad input or wrong usage: exit code 2, nothing was started or lost
    │   └── InputErrorGroup  several of them in one file
    └── RunError     the run failed or a check found a wrong row: exit code 1
        ├── StepError    a step of the pipeline raised, or returned what it did not declare
        │   └── ColumnError  a column has what cannot be taken on; its step is not known yet
        ├── FencedError  a newer generation or plan has taken over
        ├── DamagedError what is in the store is not what was written there
        ├── SourceAwayError  a source cannot be reached now; it is asked again
        ├── DataLossError    a source has rows no more that no epoch has read
        ├── SinkAwayError    a sink cannot be reached now; it is tried again
        └── TimeLimitError   something took too long; the machine may only be busy

Every error prints as one sentence, `where: what; remedy`, a group of them as one on each line. No
terminal obeys it: it may have names and texts of users in it. Assertions stay for bugs of our own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn


class RekindleError(Exception):
    """An error that a person can act on.

    `where` names the place (file and field, or step), `what` says what is wrong there,
    `remedy` what to do.
    """

    def __init__(self, *, where: str, what: str, remedy: str) -> None:
        super().__init__(printable(f"{where}: {what}; {remedy}"))
        self.where = where
        self.what = what
        self.remedy = remedy

    @property
    def text(self) -> str:
        """Fault and remedy, for a report that names the place by itself."""
        return f"{self.what}; {self.remedy}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.where, self.what, self.remedy)


class InputError(RekindleError):
    """Bad input or wrong usage (exit code 2)."""

    @property
    def each(self) -> "tuple[InputError, ...]":
        """The errors that it consists of: itself."""
        return (self,)


class InputErrorGroup(InputError):
    """Several errors of one file. Place, fault and remedy are those of the first."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        first = errors[0]
        super().__init__(where=first.where, what=first.what, remedy=first.remedy)
        self._errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(map(str, self._errors))

    @property
    def each(self) -> tuple[InputError, ...]:
        """The errors, in the order in which they were found."""
        return self._errors

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._errors,)


class RunError(RekindleError):
    """The run failed, or a check found a wrong row (exit code 1)."""


class StepError(RunError):
    """A step of the pipeline raised, or returned what it did not declare."""


class ColumnError(StepError):
    """A column has what cannot be taken on; `where` begins with it."""

    def at(self, step: str) -> StepError:
        """The error with its step."""
        where = f"step {step}, {self.where}"
        return StepError(where=where, what=self.what, remedy=self.remedy)


class FencedError(RunError):
    """A newer generation or plan has taken over: whoever meets it stops."""


class DamagedError(RunError):
    """What is in the store is not what was written there, or is there no more."""


class SourceAwayError(RunError):
    """A source cannot be reached now. Nothing is wrong with what it gives: it is asked again."""


class DataLossError(RunError):
    """A source does not have rows any more that are still to be read."""


class SinkAwayError(RunError):
    """A sink cannot be reached now. What is to be written there waits: it is tried again."""


class TimeLimitError(RunError):
    """Something took longer than it may. Perhaps the machine is only busy: later it may go well."""


def refuse(where: str, what: str, remedy: str) -> NoReturn:
    """Raise the InputError."""
    raise InputError(where=where, what=what, remedy=remedy)


@contextmanager
def collecting(found: list[InputError]) -> Iterator[None]:
    """Go on behind an InputError, which is added to those that were found."""
    try:
        yield
    except InputError as error:
        found += error.each


def refuse_any(found: Sequence[InputError]) -> None:
    """Raise the errors that were found, if any: one by itself, several together."""
    if found:
        raise found[0] if len(found) == 1 else InputErrorGroup(found)


def printable(text: str) -> str:
    """The text with control characters as in a Python literal, so that no terminal obeys them.

    Its lines stay. Lone surrogates, which cannot be written as UTF-8, are escaped as well.
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    return character.encode("unicode_escape").decode()


def first_line(error: BaseException) -> str:
    """The first line of what an error of somebody else's says; its type where it says nothing."""
    return str(error).strip().partition("\n")[0].rstrip() or type(error).__name__


def _rebuild(kind: type[RekindleError], where: str, what: str, remedy: str) -> RekindleError:
    return kind(where=where, what=what, remedy=remedy)
