"""Reports how much of a file has been transferred, while it is on its way.

A state may be larger than what a store takes or gives in minutes. So a large file goes in pieces,
each with a request and a time limit of its own, and whoever waits for it is told of each piece:
that it goes on is what counts, not for how long.
"""

from collections.abc import Callable, Iterator

# Is given the bytes that have come or gone since the last call.
Moved = Callable[[int], None]

# S3 takes no smaller parts of an object.
PIECE_BYTES = 5 << 20


def unwatched(_: int) -> None:
    """Take no notice."""


def pieces(data: bytes | memoryview, moved: Moved) -> Iterator[memoryview]:
    """The pieces of a file, each of which has gone when the next is asked for."""
    view = memoryview(data)
    for begin in range(0, len(view), PIECE_BYTES):
        piece = view[begin : begin + PIECE_BYTES]
        yield piece
        moved(len(piece))
