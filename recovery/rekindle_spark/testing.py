"""Builders for tests of the runtime: what a pipeline needs to be built but not to be run."""

from dataclasses import dataclass

import pyarrow as pa

__all__ = ["UnreadSource"]


@dataclass(frozen=True, slots=True)
class UnreadSource:
    """A source with a schema, whose rows nobody reads."""

    schema: pa.Schema
    event_time: str

    def check(self, step: str) -> None:
        """It is always sound."""

    def read(self, begin: int, end: int) -> pa.Table:
        """There is nothing to read."""
        raise NotImplementedError

    def rows_at(self, event_time: int) -> int:
        """There are no rows."""
        raise NotImplementedError

    def event_time_at(self, offset: int) -> int:
        """There are no rows."""
        raise NotImplementedError
