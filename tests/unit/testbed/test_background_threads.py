"""Threads beside the caller: they run inside a context, and end with it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rekindle.model.errors import RunError
from testbed.background_threads import BackgroundThread, EventLoopThread


class Sleeper(BackgroundThread):
    def _run(self) -> None:
        self._ended.wait()


class Service(EventLoopThread):
    """Serves until it is ended, or until a task of its own fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__("service")
        self.failure = failure
        self.is_over = False

    def thread_of_answer(self) -> str:
        async def name() -> str:
            return threading.current_thread().name

        return self._call(name())

    def fail(self) -> None:
        self._call(self._fail())
        self._thread.join()

    async def _fail(self) -> None:
        self.wanted.set()

    async def _work(self) -> None:
        await self.wanted.wait()
        assert self.failure is not None
        raise self.failure

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        self.wanted = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._work())
            yield
            work.cancel()
        self.is_over = True


def test_a_thread_runs_inside_its_context_alone() -> None:
    with Sleeper("sleeper"):
        assert "sleeper" in {thread.name for thread in threading.enumerate()}
    assert "sleeper" not in {thread.name for thread in threading.enumerate()}


def test_coroutines_run_in_the_thread_of_the_event_loop_until_it_is_ended() -> None:
    with Service() as service:
        assert service.thread_of_answer() == "service"
        before = service.is_over
    assert (before, service.is_over) == (False, True)
    with pytest.raises(RunError, match=r"the thread service: does not run \(None\)"):
        service.thread_of_answer()


def test_who_calls_learns_of_what_has_failed_inside() -> None:
    with Service(ValueError("away")) as service:
        service.fail()
        with pytest.raises(RunError, match="away"):
            service.thread_of_answer()
    assert not service.is_over
