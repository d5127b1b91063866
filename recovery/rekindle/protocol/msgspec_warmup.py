"""Lets msgspec inspect all types before there are threads.

It does so when a type is read for the first time. Where two threads are the first, one sees what
the other has half done, and the process ends without a word. Driver, sidecar, coordinator and
operator call it as they start.
"""

from collections.abc import Iterator

import msgspec


def work_out() -> None:
    """Of all our types that have been imported; a driver has its user's as well."""
    for form in _below(msgspec.Struct):
        if form.__module__.startswith("rekindle"):
            msgspec.json.Decoder(form)


def _below(form: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for found in form.__subclasses__():
        yield found
        yield from _below(found)
