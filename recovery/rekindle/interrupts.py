"""Ctrl-C in the process of a command: it ends with 130, in silence, at whatever moment that comes.

    end_at_once     while modules are imported: nothing has begun, so the process just ends
    raised          while the command runs: KeyboardInterrupt, so that what it began is undone
    raising         the handler of `raised`, for those who need an error or a signal of their own
    never_lost      where such a handler is used without `raised`
    raises_keyboard_interrupt   whether Ctrl-C does so now

Python loses an error that a handler raises where nobody can catch it, such as in the callback that
frees the lock of an imported module: it prints "Exception ignored", and the command goes on. One
that is raised at another place of the import system leaves its lock taken, and the process hangs at
its end. So there the handler waits for a moment, and an error that was lost is raised again.

A process that was started with SIGINT ignored goes on to ignore it.

It waits with SIGALRM and the timer ITIMER_REAL, and takes both from whoever has set them, such as
users' code or pytest-timeout. A thread that waits instead might need a lock that the interrupted
code holds. It takes them only after a signal that ends the run, and does not give them back.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

SIGNALLED = 128
INTERRUPTED = SIGNALLED + signal.SIGINT
AGAIN_SECONDS = 0.01
# How Python names the files of its import system.
IMPORT_SYSTEM = "<frozen importlib"

Handler = Callable[[int, FrameType | None], object]

# A guard of users' code puts another function in its place.
_exit = os._exit
# What the handlers of this process raise.
_raised: set[type[BaseException]] = {KeyboardInterrupt}
# The handler that was called last, with its signal.
_last: list[tuple[int, Handler]] = [(signal.SIGINT, signal.default_int_handler)]


def end_at_once(*others: signal.Signals) -> None:
    """From now on Ctrl-C ends the process, and so do other signals that nobody handles: the first
    process of a container would ignore them. Called first of all by the main of a command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    for other in others:
        if signal.getsignal(other) is signal.SIG_DFL:
            signal.signal(other, _end)


@contextmanager
def raised() -> Iterator[None]:
    """Inside, Ctrl-C raises KeyboardInterrupt, and is never lost. Does nothing where somebody else
    handles or ignores it, and outside of the main thread."""
    before = signal.getsignal(signal.SIGINT)
    if before not in (signal.default_int_handler, _end) or not _handles():
        yield
        return
    with never_lost():
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def never_lost() -> Iterator[None]:
    """Inside, an error of a handler of `raising` comes again where nobody could catch it."""
    hook = sys.unraisablehook
    sys.unraisablehook = _raise_again(hook)
    try:
        yield
    finally:
        sys.unraisablehook = hook


def raising(error: type[BaseException]) -> Handler:
    """Make a handler of a signal that raises such an error where somebody can catch it."""
    _raised.add(error)
    return _Raising(error)


def raises_keyboard_interrupt() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt in the main thread: by Python's handler, or ours."""
    handler = signal.getsignal(signal.SIGINT)
    return handler in (signal.default_int_handler, _RAISING)


@dataclass(frozen=True, slots=True)
class _Raising:
    """A handler that raises the error, or waits where nobody can catch it."""

    error: type[BaseException]

    def __call__(self, number: int, frame: FrameType | None) -> None:
        _last[0] = number, self
        if frame is not None and frame.f_code.co_filename.startswith(IMPORT_SYSTEM):
            _try_again()
        else:
            raise self.error


# What Ctrl-C has while a command runs; equal to all that `raising` makes for KeyboardInterrupt.
_RAISING = _Raising(KeyboardInterrupt)


def _handles() -> bool:
    """Have Ctrl-C raise KeyboardInterrupt; False outside of the main thread, where nobody can."""
    try:
        signal.signal(signal.SIGINT, _RAISING)
    except ValueError:
        return False
    return True


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    _exit(SIGNALLED + number)


def _raise_again(others: Callable[[Any], object]) -> Callable[[Any], None]:
    """Make a hook for errors that nobody can catch: one of ours comes again."""

    def hook(lost: Any) -> None:
        if lost.exc_type in _raised:
            _try_again()
        else:
            others(lost)

    return hook


def _try_again() -> None:
    """Call the handler that has raised last once more, in a moment."""
    signal.signal(signal.SIGALRM, _handle_again)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)


def _handle_again(_number: int, frame: FrameType | None) -> None:
    number, handler = _last[0]
    # For Ctrl-C the handler of now: a guard whose error was put off may have ended meanwhile.
    again = signal.getsignal(number) if number == signal.SIGINT else handler
    if callable(again):
        again(number, frame)
