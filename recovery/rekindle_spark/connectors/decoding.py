"""Values of records, or lines, as rows of Arrow; what cannot be decoded is told by its place.

A batch is decoded at once, and where that fails its halves are, down to single values. So what one
value gives does not depend on its neighbours. Called by `kafka` and `file_source`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from rekindle.model.errors import ColumnError, refuse
from rekindle_spark.operators import column_types
from rekindle_spark.user_code import argument_checks, dead_letter_sieve

UNITS = ("s", "ms", "us", "ns")
# Columns whose values may be whole numbers of a unit.
COUNTED = (pa.types.is_timestamp, pa.types.is_time, pa.types.is_duration)
BLOCK_BYTES_MIN, CHUNK_BYTES_MAX = 1 << 20, 1 << 26
WHY_LENGTH_MAX = 300
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEXADECIMAL = r"^\s*0[xX]"
OF_CSV = re.compile(r"(?:In CSV column #(\d+): )?(?:CSV parse error: )?Row #1: ")


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of values, `places` of these among all, and by place why others could not be."""

    rows: pa.Table
    places: list[int]
    rejected: dict[int, str]


@runtime_checkable
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
                refuse(f"{where}: column {column.name!r}", what, remedy)
        check_units(where, self.schema, self.units)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """The rows of values."""
        # Two values that are none could be read as one otherwise: an object ends where it should.
        # A tab is a blank between tokens as a line break is, and like it refused in a text; where
        # a blank took its place, a text that is no JSON would become another text.
        objects = [value.strip().replace(b"\n", b"\t") for value in values]
        whole = [n for n, value in enumerate(objects) if value[:1] == b"{" and value[-1:] == b"}"]
        rejected = dict.fromkeys({*range(len(values))} - {*whole}, "is no JSON object")
        return sifted([objects[n] for n in whole], whole, rejected, self._read, self.schema)

    def _read(self, values: Sequence[bytes]) -> pa.Table:
        data, schema = b"\n".join(values), counted(self.schema, self.units)
        table = self._parsed(data, schema)
        if table.num_rows != len(values):
            raise ValueError("is not one JSON object")
        check_floats(table, partial(self._parsed, data))
        table = with_moments(table, self.schema, self.units)
        table.validate(full=True)  # texts that are no UTF-8
        return table.cast(self.schema)

    def _parsed(self, data: bytes, schema: pa.Schema) -> pa.Table:
        return pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=max(BLOCK_BYTES_MIN, len(data) + 1)
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )


@dataclass(frozen=True, slots=True)
class Csv:
    """Each value is a line of values with `delimiter` between them, which are those of the columns
    `names`; without names those of the schema. Columns that `schema` lacks are ignored.

    Values may be in double quotes, and have no line breaks. One without quotes that is empty is
    null. Times are as in `Json`. A value that is not of its column's type is rejected.
    """

    schema: pa.Schema
    units: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","
    names: Sequence[str] = ()

    def check(self, where: str) -> None:
        """Raise InputError for a type that CSV does not give, and for what is no delimiter."""
        argument_checks.check_kind(
            f"{where}: schema", self.schema, pa.Schema, "give a pyarrow.Schema"
        )
        for column in self.schema:
            if pa.types.is_nested(column.type) or not _is_readable(column.type):
                what = f"has the type {column.type}, which is not read from CSV"
                remedy = "declare a number, text or time, and convert it in a map"
                refuse(f"{where}: column {column.name!r}", what, remedy)
        check_units(where, self.schema, self.units)
        one = self.delimiter
        if not isinstance(one, str) or len(one) != 1 or one in '"\r\n' or not one.isascii():
            what = f"is {argument_checks.shown(one)}"
            refuse(f"{where}: delimiter", what, 'give one character, as ","')

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """The rows of values."""
        # an open quote would take the next value in, and a line break would make two of one
        rejected = {}
        for place, value in enumerate(values):
            if value.count(b'"') % 2:
                rejected[place] = "has a quote that is not closed in its line"
            elif b"\n" in value or b"\r" in value or not value.strip():
                rejected[place] = "is no line of CSV"
        whole = [place for place in range(len(values)) if place not in rejected]
        found = sifted([values[n] for n in whole], whole, rejected, self._read, self.schema)
        for place, why in found.rejected.items():
            found.rejected[place] = OF_CSV.sub(self._place, why)
        return found

    def _place(self, found: re.Match[str]) -> str:
        """What Arrow says of a place in a block of lines, which here is one line."""
        names = self.names or self.schema.names
        return f"column {names[int(found[1])]!r}: " if found[1] else ""

    def _read(self, values: Sequence[bytes]) -> pa.Table:
        # Arrow takes one such mark away; those of values are no others than in any other line
        data = BYTE_ORDER_MARK + b"\n".join(values)
        # zones are taken by a cast alone, which wants texts
        schema = pa.schema(
            [
                pa.field(one.name, pa.string()) if pa.types.is_timestamp(one.type) else one
                for one in counted(self.schema, self.units)
            ]
        )
        table = self._parsed(data, schema)
        if table.num_rows != len(values):
            raise ValueError("is not one line of CSV")
        check_numbers(table, data, partial(self._parsed, data))
        table = with_moments(table, self.schema, self.units)
        for index, one in enumerate(self.schema):
            if pa.types.is_string(table.schema.field(index).type) and one.name not in self.units:
                table = table.set_column(index, one, _of_texts(table[one.name], one.type))
        table.validate(full=True)
        return table.cast(self.schema)

    def _parsed(self, data: bytes, schema: pa.Schema) -> pa.Table:
        """The columns of a schema, which may have other types here."""
        return pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False,
                column_names=list(self.names or self.schema.names),
                block_size=max(BLOCK_BYTES_MIN, len(data) + 1),
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.delimiter, ignore_empty_lines=False
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=schema,
                include_columns=schema.names,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


@dataclass(frozen=True, slots=True)
class Bytes:
    """`function` makes rows of a binary array: a table with `schema`, a row for each value.

    Where it raises, halves of the values show for which ones. A column whose type is none of the
    schema's, even in what the function makes of no values at all, ends the step instead: it is the
    same for all values.
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
        table = self._made(values)
        columns = table.select(self.schema.names)
        if found := self._misfits(columns):
            none, _ = dead_letter_sieve.attempt(lambda: self._made([]).select(self.schema.names))
            always = {} if none is None else self._misfits(none)
            for name in found.keys() & always.keys():
                remedy = f"give it as {self.schema.field(name).type} in the function of Bytes"
                raise ColumnError(where=f"column {name!r}", what=found[name], remedy=remedy)
        return column_types.exact(columns, self.schema)

    def _made(self, values: Sequence[bytes]) -> pa.Table:
        table = self.function(pa.array(values, pa.binary()))
        if not isinstance(table, pa.Table) or table.num_rows != len(values):
            raise ValueError("its function gave no table with a row for each value")
        return table

    def _misfits(self, table: pa.Table) -> dict[str, str]:
        """The columns whose types are none of the schema's, and why."""
        pairs = zip(table.schema, self.schema.types, strict=True)
        whys = {one.name: column_types.misfit(one.type, kind) for one, kind in pairs}
        return {name: why for name, why in whys.items() if why}


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


def check_floats(table: pa.Table, parsed: Callable[[pa.Schema], pa.Table]) -> None:
    """Refuse numbers of JSON that are too large for a short float; Arrow itself refuses what a
    double cannot hold. `parsed` reads the same as other types."""
    if found := _infinities(table):
        fields = [pa.field(one.name, _with_doubles(one.type)) for one in table.schema]
        _check_infinities(found, _infinities(parsed(pa.schema(fields))))


def check_numbers(table: pa.Table, data: bytes, parsed: Callable[[pa.Schema], pa.Table]) -> None:
    """Refuse numbers of CSV of which Arrow makes others without a word: infinity where they are too
    large, and what the bits of hexadecimal digits are, -1 of 0xFF. `parsed` reads `data` as other
    types."""

    def texts(kind: Callable[[pa.DataType], bool]) -> Iterator[tuple[str, pa.ChunkedArray]]:
        names = [one.name for one in table.schema if kind(one.type)]
        found = parsed(pa.schema([(name, pa.string()) for name in names])) if names else None
        yield from zip(names, found.select(names).columns if found else (), strict=True)

    if b"0x" in data or b"0X" in data:
        for name, column in texts(pa.types.is_integer):
            if pc.any(pc.match_substring_regex(column, HEXADECIMAL)).as_py():
                raise ValueError(f"column {name!r}: has a number in hexadecimal digits")
    if found := _infinities(table):
        said = (column_types.leaf_infinities(one) for _, one in texts(pa.types.is_floating))
        _check_infinities(found, sum(said))


def check_units(where: str, schema: pa.Schema, units: Mapping[str, str]) -> None:
    """Refuse a unit of no time."""
    for name, unit in units.items():
        if name not in schema.names or unit not in UNITS:
            what = f"is {argument_checks.shown(unit)}"
            remedy = f"name a time column of the schema, and one of: {', '.join(UNITS)}"
            refuse(f"{where}: units of {name!r}", what, remedy)
        kind = schema.field(name).type
        if not any(is_kind(kind) for is_kind in COUNTED):
            what = "is of a column that is no timestamp, time of day or duration"
            refuse(f"{where}: units of {name!r}", what, "leave it out")


def counted(schema: pa.Schema, units: Mapping[str, str]) -> pa.Schema:
    """The schema with whole numbers where times are counted in units."""
    return pa.schema(
        [pa.field(one.name, pa.int64()) if one.name in units else one for one in schema]
    )


def _infinities(table: pa.Table) -> int:
    """How many infinite numbers a table has."""
    return sum(map(column_types.infinities, table.columns))


def _check_infinities(found: int, said: int) -> None:
    """Refuse infinite numbers where fewer of the values say so: others are too large."""
    if said < found:
        raise ValueError("has a number that is too large for its type")


def _with_doubles(kind: pa.DataType) -> pa.DataType:
    """A type with doubles in the place of shorter floats."""
    doubles = lambda part: pa.float64() if pa.types.is_floating(part) else part  # noqa: E731
    return column_types.replaced(kind, doubles)


def with_moments(table: pa.Table, schema: pa.Schema, units: Mapping[str, str]) -> pa.Table:
    """A table with times in the place of what counts units."""
    for name, unit in units.items():
        index = table.schema.get_field_index(name)
        kind = schema.field(name).type
        moments = _moments(table[name], kind, unit).cast(kind)
        table = table.set_column(index, pa.field(name, kind), moments)
    return table


def _moments(counted: pa.ChunkedArray, kind: pa.DataType, unit: str) -> pa.ChunkedArray:
    """What whole numbers count, as a type of their unit."""
    if pa.types.is_timestamp(kind):
        return counted.cast(pa.timestamp(unit, kind.tz))
    if pa.types.is_duration(kind):
        return counted.cast(pa.duration(unit))
    if unit in ("s", "ms"):
        return counted.cast(pa.int32()).cast(pa.time32(unit))
    return counted.cast(pa.time64(unit))


def _of_texts(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Texts as what they say: times with an offset from UTC or without one, else the texts."""
    if not pa.types.is_timestamp(kind):
        return texts.cast(kind)
    zoned = pc.match_substring_regex(texts, r"(Z|[+-]\d\d(:?\d\d)?)$")
    dated = pc.and_(zoned, pc.match_substring(texts, ":"))  # the day of a date is no offset
    blank = pa.scalar(None, pa.string())
    local = pc.if_else(dated, blank, texts).cast(pa.timestamp("us"))
    exact = pc.if_else(dated, texts, blank).cast(pa.timestamp("us", "UTC"))
    return pc.coalesce(exact.cast(pa.timestamp("us")), local).cast(kind)


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
