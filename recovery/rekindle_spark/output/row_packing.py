"""Packs the rows of many Parquet files into few, unchanged and in order.

    tables ──groups of rows──► Parquet in memory ──unpacked, compared──► store ──read again──►

A file ends where the columns change, and once it is large. What cannot be packed so that exactly
the same comes out of it is refused. Called by `output_compaction`; readers:
`rekindle_store.output_rows`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle.model.errors import DamagedError
from rekindle_store.compacted_outputs import DataFile
from rekindle_store.output_rows import opened
from rekindle_store.store_files import Files

# A driver has a file three times in memory, and a reader once.
FILE_BYTES_MAX = 16 * 2**20
# Of rows that are packed and unpacked together, in memory.
GROUP_BYTES = 4 * 2**20


@dataclass(slots=True)
class _Draft:
    """A file that is being made; `sums` are those of its groups of rows."""

    schema: pa.Schema
    sink: pa.BufferOutputStream
    writer: pq.ParquetWriter
    sums: list[str] = field(default_factory=list)
    rows: int = 0


@dataclass(slots=True)
class RowPacker:
    """Packs tables into files of a store, which `name` names by their numbers."""

    files: Files
    name: Callable[[int], str]
    made: list[DataFile] = field(default_factory=list)
    draft: _Draft | None = None
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0

    def add(self, tables: Iterable[pa.Table]) -> tuple[int, int]:
        """Pack tables of the same columns, which stay in one file: its number, and the first of
        their rows in it.

        Raises DamagedError where something else would come out, OSError while the store is away.
        """
        place: tuple[int, int] | None = None
        for table in tables:
            if place is None:
                place = self._begin(table.schema)
            self._take(table)
        assert place is not None, "there is at least one table"
        return place

    def finish(self) -> list[DataFile]:
        """The files, which are all in the store now. Raises as `add`."""
        self._close()
        return self.made

    def _begin(self, schema: pa.Schema) -> tuple[int, int]:
        draft = self.draft
        if draft is not None:
            is_same = draft.schema.equals(schema, check_metadata=True)
            if not is_same or draft.sink.tell() + self.waiting_bytes > FILE_BYTES_MAX // 2:
                self._close()
        if self.draft is None:
            sink = pa.BufferOutputStream()
            writer = pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True)
            self.draft = _Draft(schema, sink, writer)
        return len(self.made), self.draft.rows

    def _take(self, table: pa.Table) -> None:
        assert self.draft is not None
        self.waiting.append(table)
        self.waiting_bytes += table.nbytes
        self.draft.rows += table.num_rows
        if self.waiting_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Pack what waits as a group of rows."""
        draft = self.draft
        if draft is None or not self.waiting:
            return
        table = pa.concat_tables(self.waiting).combine_chunks()
        self.waiting, self.waiting_bytes = [], 0
        if table.num_rows:
            draft.writer.write_table(table, row_group_size=table.num_rows)
            draft.sums.append(_sum_of(table))

    def _close(self) -> None:
        self._flush()
        draft, self.draft = self.draft, None
        if draft is None:
            return
        draft.writer.close()
        data = draft.sink.getvalue().to_pybytes()
        name = self.name(len(self.made))
        where = f"{self.files.place}/{name}"
        _check(where, data, draft)
        self.files.put({name: data})
        if self.files.read(name) != data:
            raise _not_the_same(where)
        self.made.append(DataFile(name, draft.rows, len(data)))


def _check(where: str, data: bytes, draft: _Draft) -> None:
    """Raise DamagedError unless exactly what was packed comes out."""
    file = opened(where, data)
    groups = range(len(file.ends))
    is_same = (
        file.parquet.schema_arrow.equals(draft.schema, check_metadata=True)
        and file.rows == draft.rows
        and [_sum_of(file.group(number)) for number in groups] == draft.sums
    )
    if not is_same:
        raise _not_the_same(where)


def _sum_of(table: pa.Table) -> str:
    """A digest of rows: as Parquet has them, so that neither memory behind nulls counts nor the
    order of a dictionary."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        _plain(table).combine_chunks(),
        sink,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        row_group_size=max(1, table.num_rows),
    )
    return sha256(sink.getvalue()).hexdigest()


def _plain(table: pa.Table) -> pa.Table:
    for at, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            values = table.column(at).cast(column.type.value_type)
            table = table.set_column(at, column.name, values)
    return table


def _not_the_same(where: str) -> DamagedError:
    return DamagedError(
        where=where,
        what="is not what was packed into it",
        remedy="nothing is lost: the single files stay",
    )
