"""Turns log lines of libraries into lines of the operator's own log, so that all of it is JSON.

kopf, urllib3, kazoo and asyncio write where Python's logging sends it, and threads that end by a
bug write to standard error. What is no news is left out: that the store comes and goes is told by
whoever notices, and what is said again and again is said once a while. Decides nothing; `wiring`
calls it.
"""

import logging
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from rekindle_coordinator.coordinator_log import Log

QUIET_SECONDS = 300.0
KEPT_MAX = 1_000
TEXT_MAX = 1_000
LEVELS = {
    "": logging.WARNING,
    # its troubles are those of the connection, which the coordinator's loop tells of
    "rekindle_zookeeper.kazoo": logging.CRITICAL,
    # every request that fails is told by who has made it
    "urllib3": logging.ERROR,
}
# kopf says so at each start. Signals are ours, and not everybody has each SparkApplication.
EXPECTED = ("OS signals are ignored", "Unresolved resources cannot be served")
VARYING = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(eq=False)
class Lines(logging.Handler):
    """Python's logging as lines of the log; the same of one logger once in `QUIET_SECONDS`."""

    log: Log
    clock: Callable[[], float] = time.monotonic
    _said: dict[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def emit(self, record: logging.LogRecord) -> None:
        """Write it, unless it is no news. Whoever logs is not to fail for it."""
        with suppress(Exception):
            self._emit(record)

    def _emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith(EXPECTED) or not self._is_news(record.name, text):
            return
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        more = {"trace": trace} if trace else {}
        level = record.levelname.lower()
        self.log.write("library", library=record.name, level=level, text=text[:TEXT_MAX], **more)

    def _is_news(self, name: str, text: str) -> bool:
        """Numbers aside, as in counts of attempts."""
        key, now = (name, VARYING.sub("", text)), self.clock()
        said = self._said.get(key)
        if said is not None and now - said < QUIET_SECONDS:
            return False
        if len(self._said) >= KEPT_MAX:
            self._said.clear()
        self._said[key] = now
        return True


def hush() -> None:
    """Nothing of it on standard error, also before there is a log and after it."""
    root = logging.getLogger()
    root.addHandler(logging.NullHandler())
    for name, level in LEVELS.items():
        logging.getLogger(name).setLevel(level)


@contextmanager
def heard(log: Log) -> Iterator[None]:
    """Into this log, meanwhile."""
    lines, root, before = Lines(log), logging.getLogger(), threading.excepthook

    def ended(what: threading.ExceptHookArgs) -> None:
        trace = "".join(traceback.format_exception(what.exc_value))
        name = what.thread.name if what.thread is not None else ""
        log.write("thread-ended", thread=name, text=f"{what.exc_value!r}"[:TEXT_MAX], trace=trace)

    hush()
    root.addHandler(lines)
    logging.captureWarnings(True)
    threading.excepthook = ended
    try:
        yield
    finally:
        threading.excepthook = before
        logging.captureWarnings(False)
        root.removeHandler(lines)
