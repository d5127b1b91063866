"""Errors that callers of the coordination store must handle.

Whatever else goes wrong is a RunError that names the record.
"""

from rekindle.model.errors import RunError


class StoreUnreachable(RunError):
    """The store did not answer in time. A write may have been carried out all the same, then or
    later: read again, and write what must not happen twice on the condition of a version."""


class Conflict(Exception):
    """A record is not at the version that the write was made for; nothing has been written."""
