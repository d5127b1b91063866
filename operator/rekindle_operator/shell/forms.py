"""What msgspec knows of types, worked out before there are threads.

It does so when a type is read for the first time. Where two threads are the first, one sees what
the other has half done, and the process ends without a word. `running` calls it.
"""

from collections.abc import Iterator

import msgspec

__all__ = ["work_out"]


def work_out() -> None:
    """Of all types that have been imported."""
    for form in _below(msgspec.Struct):
        msgspec.json.Decoder(form)


def _below(form: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for found in form.__subclasses__():
        yield found
        yield from _below(found)
