"""Values of records as rows of Arrow; what cannot be decoded is told by its place.

A batch is decoded at once, and where that fails its halves are, down to single values. So what one
value gives does not depend on its neighbours. Called by `kafka`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Protocol

import pyarrow as pa
import pyarrow.json

from rekindle_spark.user_code import argument_checks, dead_letter_sieve

UNITS = ("s", "ms", "us", "ns")
BLOCK_BYTES_MIN, CHUNK_BYTES_MAX = 1 << 20, 1 << 26
WHY_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of values, `places` of these among all, and by place why others could not be."""

    rows: pa.Table
    places: list[int]
    rejected: dict[int, str]


class Decoder(Protocol):
    """Makes rows with `schema` of values."""

    @property
    def schema(self) -> pa.Schema: ...
    def check(self, where: str) -> None: ...
    def decode(self, values: Sequence[bytes]) -> Decoded: ...


@dataclass(frozen=True, slots=True)
class Json:
    """Each value is a JSON object; fields that `schema` lacks are ignored, absent ones are null.

    Times are texts of ISO 8601 in UTC or with an offset, but columns in `units` are whole numbers
    of "s", "ms", "us" or "ns" since 1970. What has another type is rejected, never cast.
    """

    schema: pa.Schema
    units: Mapping[str, str] = field(default_factory=dict)

    def check(self, where: str) -> None:
        """Raise InputError for a type that JSON does not give, and for a unit of no time."""
        argument_checks.check_kind(
            f"{where}: schema", self.schema, pa.Schema, "give a pyarrow.Schema"
        )
        for column in self.schema:
            if not _is_readable(column.type):
                what = f"has the type {column.type}, which is not read from JSON"
                remedy = "declare a number, text, time or list of such, and convert it in a map"
                argument_checks.refuse(f"{where}: column {column.name!r}", what, remedy)
        for name, unit in self.units.items():
            if name not in self.schema.names or unit not in UNITS:
                what = f"is {argument_checks.shown(unit)}"
                remedy = f"name a time column of the schema, and one of: {', '.join(UNITS)}"
                argument_checks.refuse(f"{where}: units of {name!r}", what, remedy)
            if not pa.types.is_timestamp(self.schema.field(name).type):
                what = "is of a column that is no timestamp"
                argument_checks.refuse(f"{where}: units of {name!r}", what, "leave it out")

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """The rows of values."""
        # two values that are none could be read as one otherwise: an object ends where it should
        objects = [value.strip().replace(b"\n", b" ") for value in values]
        whole = [n for n, value in enumerate(objects) if value[:1] == b"{" and value[-1:] == b"}"]
        rejected = dict.fromkeys({*range(len(values))} - {*whole}, "is no JSON object")
        return sifted([objects[n] for n in whole], whole, rejected, self._read, self.schema)

    def _read(self, values: Sequence[bytes]) -> pa.Table:
        data = b"\n".join(values)
        fields = [
            pa.field(one.name, pa.int64()) if one.name in self.units else one for one in self.schema
        ]
        table = pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=max(BLOCK_BYTES_MIN, len(data) + 1)
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(values):
            raise ValueError("is not one JSON object")
        for name, unit in self.units.items():
            index = table.schema.get_field_index(name)
            kind = self.schema.field(name).type
            moments = table[name].cast(pa.timestamp(unit, kind.tz)).cast(kind)
            table = table.set_column(index, pa.field(name, kind), moments)
        table.validate(full=True)  # texts that are no UTF-8
        return table.cast(self.schema)


@dataclass(frozen=True, slots=True)
class Bytes:
    """`function` makes rows of a binary array: a table with `schema`, a row for each value.

    Where it raises, halves of the values show for which ones.
    """

    schema: pa.Schema
    function: Callable[[pa.BinaryArray], pa.Table]

    def check(self, where: str) -> None:
        """Raise InputError for what is no schema or no function."""
        argument_checks.check_kind(
            f"{where}: schema", self.schema, pa.Schema, "give a pyarrow.Schema"
        )
        remedy = "give a function of a binary array"
        argument_checks.check_kind(f"{where}: function", self.function, Callable, remedy)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """The rows of values."""
        return sifted(list(values), [*range(len(values))], {}, self._read, self.schema)

    def _read(self, values: Sequence[bytes]) -> pa.Table:
        table = self.function(pa.array(values, pa.binary()))
        if not isinstance(table, pa.Table) or table.num_rows != len(values):
            raise ValueError("its function gave no table with a row for each value")
        return table.select(self.schema.names).cast(self.schema)


def sifted(
    values: Sequence[bytes],
    places: Sequence[int],
    rejected: dict[int, str],
    read: Callable[[Sequence[bytes]], pa.Table],
    schema: pa.Schema,
) -> Decoded:
    """Read values together, or halves of them where that fails."""
    tables, kept = [schema.empty_table()], list[int]()
    spans = _chunks(values)[::-1]
    while spans:
        begin, end = spans.pop()
        table, error = dead_letter_sieve.attempt(partial(read, values[begin:end]))
        if error is None:
            tables.append(table)
            kept += places[begin:end]
        elif end - begin == 1:
            rejected[places[begin]] = dead_letter_sieve.raised(error)[:WHY_LENGTH_MAX]
        else:
            middle = (begin + end) // 2
            spans += [(middle, end), (begin, middle)]
    return Decoded(pa.concat_tables(tables), kept, rejected)


def _chunks(values: Sequence[bytes]) -> list[tuple[int, int]]:
    """Stretches of values, each with one value or of no more than so many bytes."""
    bounds, size = [0], 0
    for place, value in enumerate(values):
        if size + len(value) > CHUNK_BYTES_MAX and place > bounds[-1]:
            bounds.append(place)
            size = 0
        size += len(value)
    bounds.append(len(values))
    return [(begin, end) for begin, end in pairwise(bounds) if begin < end]


def _is_readable(kind: pa.DataType) -> bool:
    """Whether values of the type can be read from JSON as they are."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_readable(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_readable(kind.field(n).type) for n in range(kind.num_fields))
    plain = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_float32,
        pa.types.is_float64,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_timestamp,
        pa.types.is_decimal128,
    )
    return any(is_kind(kind) for is_kind in plain)
