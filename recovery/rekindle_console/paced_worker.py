"""A thread for the console's work that leaves the interpreter to others most of the time.

Whatever it works for a second of CPU, it rests for four: it takes a fifth of a core at most, also
with many clients, and the thread that decides gets the interpreter back soon. `console_server`
gives it work.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

REST_PER_WORK = 4.0
SLICE_SECONDS = 0.02
REST_SECONDS_MAX = 2.0
WAITING_MAX = 256

Result = TypeVar("Result")


@dataclass(slots=True)
class Throttle:
    """Rests as long as is due for the CPU time since the last rest; of one thread."""

    _since: float = 0.0

    def begin(self) -> None:
        """Work begins."""
        self._since = time.thread_time()

    def rest(self, least: float = SLICE_SECONDS) -> None:
        """Rest, where at least so many seconds were worked."""
        worked = time.thread_time() - self._since
        if worked >= least:
            time.sleep(min(REST_SECONDS_MAX, REST_PER_WORK * worked))
            self._since = time.thread_time()


@dataclass(slots=True)
class _Job:
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    function: Callable[[], Any]


@dataclass(slots=True)
class Worker:
    """One thread; jobs are done in the order in which they came."""

    throttle: Throttle = field(default_factory=Throttle)
    _jobs: "queue.Queue[_Job | None]" = field(default_factory=lambda: queue.Queue(WAITING_MAX))
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to work."""
        self._thread = threading.Thread(target=self._run, name="console-worker", daemon=True)
        self._thread.start()

    async def do(self, function: Callable[[], Result]) -> Result:
        """What the function returns or raises. Raises queue.Full where too much waits."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._jobs.put_nowait(_Job(loop, future, function))
        return await future

    def close(self) -> None:
        """End once the job in hand is done."""
        while True:
            try:
                self._jobs.put_nowait(None)
                break
            except queue.Full:
                self._jobs.get_nowait()
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.throttle.begin()
            try:
                result, error = job.function(), None
            except Exception as raised:  # it is for whoever waits
                result, error = None, raised
            _deliver(job, result, error)
            self.throttle.rest(0.0)


def _deliver(job: _Job, result: Any, error: Exception | None) -> None:
    def settle() -> None:
        if job.future.done():
            return
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)

    try:
        job.loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the console has ended
        return
