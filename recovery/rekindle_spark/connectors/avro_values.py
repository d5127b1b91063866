"""Values in Avro, each with the number of its schema, which a registry knows.

    byte 0: 0 │ bytes 1-4: number of the schema, big end first │ the value

A schema never changes once it has a number, so a process asks for each once. A registry that is
away makes the source away; a number that it does not know makes the value a reject. fastavro is
imported when it is first needed.
"""

import base64
import datetime as dt
import http.client
import io
import json
import logging
import ssl
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from rekindle.model.errors import InputError, SourceAwayError, first_line, refuse
from rekindle_spark.connectors import decoding, hidden_values
from rekindle_spark.connectors.decoding import Decoded
from rekindle_spark.connectors.hidden_values import FromEnvironment, FromFile
from rekindle_spark.operators import column_types, python_rows
from rekindle_spark.user_code import argument_checks

log = logging.getLogger(__name__)

HEAD = struct.Struct(">bI")
ASK_SECONDS_MAX = 5.0
# One that has just been registered may not be known to every server of the registry yet.
ASKS_MAX, ASK_AGAIN_SECONDS = 3, 0.5
# So long a number counts as unknown that the registry has lacked, and to the end of the batch:
# values are looked at many times, in halves, where one of them cannot be decoded.
UNKNOWN_SECONDS = 5.0
SCHEMA_BYTES_MAX = 1 << 24
DIGITS_MAX = 1_000
DAY_MICROSECONDS = 86_400_000_000
AWAY_REMEDY = "see that it is there, and can be reached from the nodes"
TLS_REMEDY = "let the nodes trust its certificate, as by SSL_CERT_FILE"
REMEDIES = {401: "see its credentials", 403: "let its user read schemas"}
# Registries say it with the status 404. Without it, what is between us and one has no such page.
ERROR_CODE = "error_code"


@dataclass(slots=True)
class Avro:
    """Each value is a record of Avro with the number of its schema in `registry`, an http or https
    URL. Fields that `schema` lacks are ignored, absent ones are null.

    Times are those of Avro's logical types, but columns in `units` are whole numbers of "s", "ms",
    "us" or "ns": since 1970, since midnight or of a duration. A value that its column's type cannot
    hold exactly is rejected.
    `credentials` are FromFile or FromEnvironment of "USER:PASSWORD".
    """

    schema: pa.Schema
    registry: str
    credentials: FromFile | FromEnvironment | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    _known: dict[int, Any] = field(init=False, default_factory=dict)
    _unknown: dict[int, float] = field(init=False, default_factory=dict)
    _unread: dict[int, str] = field(init=False, default_factory=dict)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.schema, self.registry, self.credentials, self.units

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        self.schema, self.registry, self.credentials, self.units = saved
        self._known, self._unknown, self._unread = {}, {}, {}

    def check(self, where: str) -> None:
        """Raise InputError for what is no schema, unit or URL, and for a password in the open."""
        _library()
        argument_checks.check_kind(
            f"{where}: schema", self.schema, pa.Schema, "give a pyarrow.Schema"
        )
        decoding.check_units(where, self.schema, self.units)
        if not str(self.registry).startswith(("http://", "https://")):
            what = f"is {argument_checks.shown(self.registry)}"
            refuse(f"{where}: registry", what, "give an http or https URL")
        hidden = isinstance(self.credentials, FromFile | FromEnvironment)
        if "@" in self.registry or not (hidden or self.credentials is None):
            remedy = "give credentials=FromFile(path), a file with USER:PASSWORD"
            what = "has a password, and pipelines are written into the store"
            refuse(f"{where}: registry", what, remedy)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """The rows of values. Raises SourceAwayError where the registry cannot be reached."""
        since = time.monotonic() - UNKNOWN_SECONDS
        self._unknown = {number: at for number, at in self._unknown.items() if at > since}
        return decoding.sifted(list(values), [*range(len(values))], {}, self._read, self.schema)

    def _read(self, values: Sequence[bytes]) -> pa.Table:
        rows = [self._row(value) for value in values]
        schema = decoding.counted(self.schema, self.units)
        columns = [_column([row.get(one.name) for row in rows], one.type) for one in schema]
        table = pa.Table.from_arrays(columns, schema=schema)
        table = decoding.with_moments(table, self.schema, self.units)
        table.validate(full=True)
        return column_types.converted(table, self.schema)

    def _row(self, value: bytes) -> dict[str, Any]:
        if len(value) < HEAD.size or value[0] != 0:
            raise ValueError("does not begin with the number of a schema")
        _, number = HEAD.unpack_from(value)
        body = io.BytesIO(value[HEAD.size :])
        row = _library().schemaless_reader(body, self._schema(number), None)
        if body.read(1) or not isinstance(row, dict):
            raise ValueError(f"is not one record of schema {number}")
        return row

    def _schema(self, number: int) -> Any:
        """The schema of a number, parsed once. Raises ValueError where there is none, and where it
        is not one of Avro."""
        if number in self._unread:
            raise ValueError(self._unread[number])
        if number not in self._known:
            text, library = self._fetch(number), _library()
            try:
                parsed = library.parse_schema(json.loads(text))
                _have_exact(parsed)
                library.read.LOGICAL_READERS.update(TIMES_OF_DAY)
                self._known[number] = parsed
            # which it raises as well, for what is nothing like a schema
            except (
                library.schema.SchemaParseException,
                ValueError,
                LookupError,
                TypeError,
            ) as error:
                why = f"has schema {number}, which cannot be read ({first_line(error)})"
                self._unread[number] = why
                log.warning("schema registry %s: a value %s", self.registry, why)
                raise ValueError(why) from error
        return self._known[number]

    def _fetch(self, number: int) -> str:
        """The schema of a number. Raises ValueError where the registry has none."""
        if number in self._unknown:
            raise _no_schema(number)
        for left in reversed(range(ASKS_MAX)):
            try:
                return self._ask(number)
            except urllib.error.HTTPError as error:
                if not _is_unknown(error):
                    remedy = REMEDIES.get(error.code, AWAY_REMEDY)
                    raise self._away(f"answers {error.code}", remedy) from None
                if not left:
                    self._unknown[number] = time.monotonic()
                    log.warning("schema registry %s: has no schema %d", self.registry, number)
                    raise _no_schema(number) from None
            except urllib.error.URLError as error:
                is_refused = isinstance(error.reason, ssl.SSLError)
                remedy = TLS_REMEDY if is_refused else AWAY_REMEDY
                raise self._away(str(error.reason), remedy) from None
            except (
                OSError,
                http.client.HTTPException,
                ValueError,
                LookupError,
                TypeError,
            ) as error:
                raise self._away(type(error).__name__) from None
            time.sleep(ASK_AGAIN_SECONDS)
        raise AssertionError("the last time has returned or raised")

    def _ask(self, number: int) -> str:
        url = f"{self.registry.rstrip('/')}/schemas/ids/{number}"
        request = urllib.request.Request(url)
        if self.credentials is not None:
            pair = str(hidden_values.revealed("schema registry", self.credentials))
            coded = base64.b64encode(pair.encode()).decode()
            request.add_header("Authorization", f"Basic {coded}")
        with urllib.request.urlopen(request, timeout=ASK_SECONDS_MAX) as answer:
            return str(json.loads(answer.read(SCHEMA_BYTES_MAX))["schema"])

    def _away(self, why: str, remedy: str = AWAY_REMEDY) -> SourceAwayError:
        where = f"schema registry {self.registry}"
        return SourceAwayError(where=where, what=f"cannot be reached ({why})", remedy=remedy)


def _have_exact(schema: Any) -> None:
    """Have the library give decimals with all of their digits, which it rounds to the precision in
    their schema, and times of day by `TIMES_OF_DAY`: it takes -1 us for 00:00:00.999999."""
    if isinstance(schema, dict):
        kind = schema.get("logicalType")
        if kind == "decimal":
            schema["precision"] = DIGITS_MAX
        elif kind in ("time-millis", "time-micros"):
            schema["logicalType"] = f"exact-{kind}"
    inner = schema.values() if isinstance(schema, dict) else schema
    for part in inner:
        if isinstance(part, dict | list):
            _have_exact(part)


def _time_of_day(microseconds: int) -> dt.time:
    if not 0 <= microseconds < DAY_MICROSECONDS:
        raise ValueError(f"has {microseconds} us for a time of day, which is none")
    return (dt.datetime.min + dt.timedelta(microseconds=microseconds)).time()


# By what the library calls the reader of a logical type.
TIMES_OF_DAY = {
    "int-exact-time-millis": lambda given, *_: _time_of_day(given * 1_000),
    "long-exact-time-micros": lambda given, *_: _time_of_day(given),
}


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kinds.is_nested(kind) or kinds.is_temporal(kind):
        values = [_part(value, kind) for value in values]
    return python_rows.typed(values, kind)


def _part(value: Any, kind: pa.DataType) -> Any:
    """What a type takes of a value: of records the fields that it has. Raises TypeError for a
    number in the place of a time: its unit is not known."""
    if kinds.is_temporal(kind) and isinstance(value, int | float):
        remedy = "name the column's unit in `units`"
        if kinds.is_date(kind):
            remedy = "declare a whole number, and convert it in a map"
        raise TypeError(f"found the number {value!r:.60} for a time: {remedy}")
    if kinds.is_struct(kind) and isinstance(value, dict):
        return {one.name: _part(value.get(one.name), one.type) for one in kind.fields}
    if kinds.is_map(kind) and isinstance(value, dict):
        return {key: _part(item, kind.item_type) for key, item in value.items()}
    if kinds.is_nested(kind) and isinstance(value, list):
        return [_part(item, kind.field(0).type) for item in value]
    return value


def _is_unknown(error: urllib.error.HTTPError) -> bool:
    """Whether a registry says that it has no such schema."""
    try:
        said = json.loads(error.read(SCHEMA_BYTES_MAX))
        return error.code == 404 and isinstance(said, dict) and ERROR_CODE in said
    except (OSError, http.client.HTTPException, ValueError):
        return False


def _no_schema(number: int) -> ValueError:
    return ValueError(f"has the unknown schema {number}")


def _library() -> Any:
    """The library. Raises InputError where it is not installed."""
    try:
        import fastavro
    except ImportError as error:
        raise InputError(
            where="fastavro",
            what="is not installed, and a source reads Avro",
            remedy='install "rekindle[kafka]" for the driver and on all nodes',
        ) from error
    return fastavro
