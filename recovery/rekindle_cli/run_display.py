"""Shows a run of the driver in this very process, and ends it in order at the first Ctrl-C.

A thread follows the driver's event file. On a terminal what Spark, its Java and libraries print
goes to a log file, so that it does not tear the table apart. `commands.run` calls it.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import FrameType

from rekindle import interrupts
from rekindle.model.errors import RekindleError
from rekindle_cli.jsonl_tail import EventFile
from rekindle_cli.run_view import RunDisplay

POLL_SECONDS = 0.2


@contextmanager
def shown(events: Path, view: RunDisplay) -> Iterator[None]:
    """Inside, the view is fed with what is appended to the event file."""
    followed = EventFile.at_end(events)
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(POLL_SECONDS):
            take()

    def take() -> None:
        with suppress(OSError):  # a reader of events ends no run
            for record in followed.fresh():
                view.show(record)
        view.refresh()

    thread = threading.Thread(target=follow, name="view", daemon=True)
    view.start()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        take()
        view.stop()


@contextmanager
def log_apart(log: Path) -> Iterator[None]:
    """Inside, file descriptor 2 is the log; what Python code of ours writes to `sys.stderr` is
    still shown."""
    before = sys.stderr
    own = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    sys.stderr = TextIOWrapper(open(os.dup(own), "wb", buffering=0), write_through=True)  # noqa: SIM115 - closed below
    try:
        yield
    finally:
        sys.stderr.close()
        os.dup2(own, 2)
        os.close(own)
        sys.stderr = before


def interrupts_end_in_order(request_end: Callable[[], None], view: RunDisplay) -> None:
    """Have the first SIGINT ask for an orderly end, and each later one end the run at once.

    To be called by the main thread once Spark's context is there, which sets a handler of its own.
    """
    asked = False
    end_at_once = interrupts.raising(KeyboardInterrupt)

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            end_at_once(number, frame)
            return
        asked = True
        # not here: the signal may have interrupted code that holds a lock of the view
        threading.Thread(
            target=ask_to_end, args=(request_end, view), name="interrupt", daemon=True
        ).start()

    signal.signal(signal.SIGINT, handle)


def ask_to_end(request_end: Callable[[], None], view: RunDisplay) -> None:
    """Ask for an orderly end, and say so, or why it cannot be asked for: a store may be away."""
    try:
        request_end()
    except (OSError, RekindleError) as error:
        view.say(f"no orderly end can be asked for: {error}; press Ctrl-C again to end at once")
    else:
        view.say("ending at a savepoint; press Ctrl-C again to end at once")
