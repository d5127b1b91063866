"""Topics of Kafka as sinks: which rows become which records.

    rows ──key, value──► records: bytes of a key column, and one JSON object for each row

An object has all columns, in their order:

    numbers, texts, booleans   as they are; NaN and infinities are null, for JSON has none
    decimals                   texts, with all digits
    times                      texts of ISO 8601; zoned ones with their offset; null outside of
                               the years 1 to 9999
    lists and structs          arrays and objects of these

Columns of other types are refused when the pipeline is built.

The rows of a query are in Parquet files whether it has a topic or not. What a commit record names
is then written to the topic, exactly once (`sink_publishing`, `kafka_transactions`).
docs/kafka.md has an example and the guarantees.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rekindle.model.errors import RekindleError, RunError, refuse
from rekindle_spark.connectors import kafka_options
from rekindle_spark.user_code import argument_checks, dead_letter_sieve

SECONDS_MAX = 30 * 86_400.0
TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time32,
    pa.types.is_timestamp,
)
LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
# From the second day of year 1 to the last but one of 9999, in seconds since 1970: in any zone.
SECONDS_OF_PYTHON = (-62_135_510_400, 253_402_214_400)
# Of Python's objects at a time.
ROWS_AT_ONCE = 10_000
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}
REMEDY = "change its type in a map step before, or give the sink a function as `value`"


@dataclass(frozen=True, slots=True)
class SinkRecords:
    """Keys and values of records, one for each row; keys are None where a sink has none. `bytes` of
    all of them are counted once, for they are asked for several times."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        columns = (self.values, self.keys or ())
        size = sum(len(one) for column in columns for one in column if one is not None)
        object.__setattr__(self, "bytes", size)


@dataclass(frozen=True, slots=True, eq=False)
class KafkaSink:
    """The topic in which a query's rows are records too.

    Values are JSON objects of all columns (`json_objects`), or what the function `value` makes of a
    table: an array of texts or bytes, one for each row, null for a record without a value. `key`
    is a column of texts or bytes: rows of one key get into one partition of the topic. Without it
    each partition of the query writes to one of them. While Kafka cannot be reached it is asked
    again for `patience_seconds`. `options` go to the client, secrets in them as FromFile or
    FromEnvironment.
    """

    servers: str
    topic: str
    key: str = ""
    value: Callable[[pa.Table], pa.Array] | None = None
    patience_seconds: float = 600.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = "KafkaSink"
        kafka_options.check_servers(where, self.servers)
        kafka_options.check_topic(where, self.topic)
        kafka_options.check_options(where, self.options)
        remedy = f"give seconds from 0 to {SECONDS_MAX:,.0f}"
        argument_checks.check_number(
            f"{where}: patience_seconds", self.patience_seconds, 0, SECONDS_MAX, remedy
        )
        if self.value is not None:
            remedy = "give a function of a table"
            argument_checks.check_kind(f"{where}: value", self.value, Callable, remedy)
            argument_checks.check_not_async(f"{where}: value", self.value)

    def check(self, where: str, schema: pa.Schema) -> None:
        """Raise InputError where rows with a schema cannot be made records."""
        if self.key:
            if self.key not in schema.names:
                what, remedy = "is no column", f"name one of: {', '.join(schema.names)}"
                refuse(f"{where}: key {argument_checks.shown(self.key)}", what, remedy)
            kind = schema.field(self.key).type
            if not any(is_kind(kind) for is_kind in TEXTS):
                what, remedy = f"has the type {kind}", "make it a text in a map step before"
                refuse(f"{where}: key {argument_checks.shown(self.key)}", what, remedy)
        if self.value is None:
            check_json(where, schema)

    def records(self, query: str, table: pa.Table) -> SinkRecords:
        """The records of rows. Raises RunError where the function of values fails."""
        keys = None
        if self.key:
            column = table.column(self.key)
            keys = column.cast(pa.large_binary()).to_pylist()
        if self.value is None:
            return SinkRecords(json_objects(table), keys)
        return SinkRecords(self._values(query, table), keys)

    def _values(self, query: str, table: pa.Table) -> list[bytes | None]:
        assert self.value is not None
        function = self.value
        made, error = dead_letter_sieve.attempt(lambda: function(table))
        if error is not None and not isinstance(error, RekindleError):
            what = dead_letter_sieve.raised(error)
        elif error is not None:
            raise error
        elif not isinstance(made, pa.Array | pa.ChunkedArray) or len(made) != table.num_rows:
            what = "gave no array with a value for each row"
        elif not any(is_kind(made.type) for is_kind in TEXTS):
            what = f"gave values of type {made.type}, not texts or bytes"
        else:
            values: list[bytes | None] = made.cast(pa.large_binary()).to_pylist()
            return values
        raise RunError(
            where=f"query {query}: value of its KafkaSink",
            what=what,
            remedy="mend the function and start again: committed output stays",
        )


def check_json(where: str, schema: pa.Schema) -> None:
    """Raise InputError for a column with a type that JSON has no form for."""
    for column in schema:
        if not (_is_nanoseconds(column.type) or _is_writable(column.type)):
            what = f"has the type {column.type}, which is not written as JSON"
            refuse(f"{where}: column {column.name!r}", what, REMEDY)


def json_objects(table: pa.Table) -> list[bytes]:
    """One JSON object for each row. As Python's objects rows take several times as much memory, so
    there are never many of them."""
    found: list[bytes] = []
    for begin in range(0, table.num_rows, ROWS_AT_ONCE):
        found += _json_objects(table.slice(begin, ROWS_AT_ONCE))
    return found


def _json_objects(table: pa.Table) -> list[bytes]:
    encode = msgspec.json.Encoder(decimal_format="string").encode
    plain = _plain(table)
    try:
        rows = plain.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_value(one) for one in column] for column in plain.columns]
        names = plain.column_names
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return [encode(row) for row in rows]


def _value(scalar: pa.Scalar) -> Any:
    """A value in Python, in which times that it cannot hold are null."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        kind = scalar.type
        if any(is_kind(kind) for is_kind in LISTS):
            return [_value(one) for one in scalar.values]
        if pa.types.is_struct(kind):
            fields = range(kind.num_fields)
            return {kind.field(index).name: _value(scalar[index]) for index in fields}
        if pa.types.is_dictionary(kind):
            return _value(scalar.value)
        if not pa.types.is_temporal(kind) or _is_in_python(scalar):
            raise
        return None


def _is_in_python(scalar: pa.Scalar) -> bool:
    """Whether Python holds a time, in any zone."""
    if pa.types.is_date32(scalar.type):
        seconds = scalar.value * 86_400
    else:
        unit = "ms" if pa.types.is_date64(scalar.type) else scalar.type.unit
        seconds = scalar.value // PER_SECOND[unit]
    return bool(SECONDS_OF_PYTHON[0] <= seconds < SECONDS_OF_PYTHON[1])


def _plain(table: pa.Table) -> pa.Table:
    """The table with times in nanoseconds as texts: Python has none of them."""
    for index, column in enumerate(table.schema):
        if _is_nanoseconds(column.type):
            moments = table.column(index).cast(pa.timestamp("ns"))  # of zoned ones that in UTC
            texts = pc.replace_substring(moments.cast(pa.string()), " ", "T", max_replacements=1)
            if column.type.tz is not None:
                texts = pc.binary_join_element_wise(texts, "Z", "")
            table = table.set_column(index, column.name, texts)
    return table


def _is_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _is_writable(kind: pa.DataType) -> bool:
    """Whether values of a type have a form in JSON, and in Python on the way there."""
    if any(is_kind(kind) for is_kind in LISTS):
        return _is_writable(kind.value_type)
    if pa.types.is_dictionary(kind):
        return _is_writable(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_writable(kind.field(n).type) for n in range(kind.num_fields))
    if _is_nanoseconds(kind):
        return False
    if pa.types.is_time64(kind):
        return bool(kind.unit == "us")
    return any(is_kind(kind) for is_kind in PLAIN)
