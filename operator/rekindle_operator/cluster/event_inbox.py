"""Events from watching threads to whoever goes by them, in the order in which they came.

News are small changes to what is known (`cluster_view` in the operator), made ready where they
arrive, so that the deciding thread only carries them out. Nothing is lost or told twice here; the
queue is without bounds, since what is told again replaces what was known.
"""

from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from rekindle.model.errors import InputError


class KnownObjects(Protocol):
    """What news change."""

    def see_unreadable(self, kind: str, name: str, why: InputError) -> None:
        """A resource that the API server has let in and that means nothing."""


Known = TypeVar("Known", bound=KnownObjects)
News = Callable[[Known], None]


class EventInbox(Generic[Known]):
    """Any thread puts, one takes."""

    def __init__(self) -> None:
        self._news: SimpleQueue[News[Known]] = SimpleQueue()

    def put(self, news: News[Known]) -> None:
        """Something has changed."""
        self._news.put(news)

    def take(self) -> Iterator[News[Known]]:
        """All that is there."""
        while True:
            try:
                yield self._news.get_nowait()
            except Empty:
                return
