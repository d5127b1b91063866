"""Threads of a testbed: context managers, inside of which a thread runs beside the caller.

BackgroundThread    a loop that looks now and then
EventLoopThread     an event loop whose coroutines other threads call
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Self, TypeVar

from rekindle.model.errors import RunError

Value = TypeVar("Value")


class BackgroundThread(ABC):
    """A context manager: inside, a thread of its own runs `_run`."""

    def __init__(self, name: str) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread, and wait for its end."""
        self._ended.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """Runs in the thread, and returns soon after `_ended` has been set."""


class EventLoopThread(BackgroundThread):
    """A context manager: inside, an event loop runs in a thread of its own, within `_serving`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        self._ready.wait()
        return self

    def close(self) -> None:
        """End the thread, and wait for its end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
        super().close()

    @abstractmethod
    def _serving(self) -> AbstractAsyncContextManager[None]:
        """A context of the event loop: it serves inside."""

    def _call(self, action: Coroutine[Any, Any, Value]) -> Value:
        """What a coroutine returns that runs in the event loop; called from any other thread."""
        if self._failure is not None or not self._thread.is_alive():
            action.close()
            raise RunError(
                where=f"the thread {self._thread.name}",
                what=f"does not run ({self._failure!r})",
                remedy="use it inside its context, and see the cause",
            )
        return asyncio.run_coroutine_threadsafe(action, self._loop).result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # told by the next call
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with self._serving():
            self._ready.set()
            await self._end.wait()
