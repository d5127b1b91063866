"""Events from watching threads to the deciding one, in the order in which they came.

News are small changes to what is known (`cluster_view`), made ready where they arrive, so that the
deciding thread only carries them out. Nothing is lost or told twice here; the queue is without
bounds, since what is told again replaces what was known.
"""

from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from rekindle_operator.cluster.cluster_view import ClusterView

News = Callable[[ClusterView], None]


class EventInbox:
    """Any thread puts, one takes."""

    def __init__(self) -> None:
        self._news: SimpleQueue[News] = SimpleQueue()

    def put(self, news: News) -> None:
        """Something has changed."""
        self._news.put(news)

    def take(self) -> Iterator[News]:
        """All that is there."""
        while True:
            try:
                yield self._news.get_nowait()
            except Empty:
                return
