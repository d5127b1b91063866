"""Tries many faults: unit tests of two side by side on two copies, then all others one by one.

Two copies are as much as two cores carry; a cluster of Spark or a control plane of Kubernetes has
the machine to itself. Whoever is interrupted ends the tests that run, and removes the copies.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from mutants import trials
from mutants.catalogue import Fault
from mutants.copies import Copy, copied
from mutants.trials import Outcome, Verdict

COPIES = 2

Report = Callable[[Fault, Verdict], None]


@dataclass(frozen=True, slots=True)
class _Campaign:
    """Trials on some copies, each of which is used by one trial at a time."""

    copies: Sequence[Copy]
    without_first: bool

    def verdicts(self, faults: Sequence[Fault]) -> Iterator[tuple[Fault, Verdict]]:
        """The verdicts as they come, of faults that are tried side by side on the copies."""
        free: SimpleQueue[Copy] = SimpleQueue()
        for copy in self.copies:
            free.put(copy)

        def tried(fault: Fault) -> Verdict:
            copy = free.get()
            try:
                return self._tried(copy, fault)
            finally:
                free.put(copy)

        with ThreadPoolExecutor(len(self.copies)) as pool:
            waiting = {pool.submit(tried, fault): fault for fault in faults}
            for done in as_completed(waiting):
                yield waiting[done], done.result()

    def _tried(self, copy: Copy, fault: Fault) -> Verdict:
        wrong = "" if fault.is_unit_only else trials.prepare(copy)
        if self.without_first and fault.tests and not wrong:
            wrong = trials.passes(copy, fault.tests)
        if wrong:
            return Verdict(fault.name, Outcome.ERROR, 0.0, text=wrong)
        return trials.tried(copy, fault)


def try_all(
    tree: Path, faults: Sequence[Fault], report: Report, *, without_first: bool = False
) -> list[Verdict]:
    """Tries all faults on copies of a checkout, and reports each verdict as it comes.

    `without_first`: the tests of each fault run without it first; where they fail, the verdict is
    an error.
    """
    beside = [fault for fault in faults if fault.is_unit_only]
    alone = [fault for fault in faults if not fault.is_unit_only]
    verdicts: list[Verdict] = []
    with ExitStack() as stack:
        count = min(COPIES, max(1, len(beside)))
        copies = [stack.enter_context(copied(tree)) for _ in range(count)]
        stack.enter_context(_interruptible(copies))
        for some, used in ((beside, copies), (alone, copies[:1])):
            for fault, verdict in _Campaign(used, without_first).verdicts(some):
                verdicts.append(verdict)
                report(fault, verdict)
    return verdicts


@contextmanager
def _interruptible(copies: Sequence[Copy]) -> Iterator[None]:
    """Inside, SIGINT and SIGTERM end what runs on the copies, and then this program."""

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        for copy in copies:
            copy.end()
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
