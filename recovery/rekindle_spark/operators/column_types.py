"""Types that columns have between steps: carried as they are, read as others, or refused.

Arrow has several layouts for the same values: text in pieces of up to 2 GiB or not, as views, as
numbers of a dictionary, as runs. Sources give all of these as the plain one, and what a function
returns is taken as the plain one that was declared, so that steps need to know one of them only.
docs/pipelines.md has the table of what each step does with each type. Called by sources, `steps`,
`partition` and sinks.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rekindle.model.errors import refuse

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Extension types that every process knows by itself.
KNOWN_EXTENSIONS = ("arrow.uuid", "arrow.json", "arrow.bool8")
# The only spelling of an offset from UTC that Arrow and Python both know.
OFFSET = re.compile(r"[+-]([01]\d|2[0-3]):[0-5]\d")
DIFFERENCES_MAX = 5


def plain_field(field: pa.Field) -> pa.Field:
    """A field as frames carry it: nullable, without metadata, of the plain type."""
    return pa.field(field.name, plain(field.type))


def plain(kind: pa.DataType) -> pa.DataType:
    """The type with the same values that sources give for a type."""
    if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        return plain(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return kind if kind.extension_name in KNOWN_EXTENSIONS else plain(kind.storage_type)
    if kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return pa.string()
    if kinds.is_large_binary(kind) or kinds.is_binary_view(kind):
        return pa.binary()
    if kinds.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if kinds.is_fixed_size_list(kind):
        return pa.list_(plain_field(kind.value_field), kind.list_size)
    if _is_list(kind):
        return pa.list_(plain_field(kind.value_field))
    if kinds.is_struct(kind):
        return pa.struct([plain_field(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def replaced(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with the change of each part that has no parts itself."""
    if not kinds.is_nested(kind):
        return change(kind)

    def field(inner: pa.Field) -> pa.Field:
        return inner.with_type(replaced(inner.type, change))

    if kinds.is_map(kind):
        return pa.map_(field(kind.key_field), field(kind.item_field), kind.keys_sorted)
    if kinds.is_struct(kind):
        return pa.struct([field(inner) for inner in kind.fields])
    if kinds.is_fixed_size_list(kind):
        return pa.list_(field(kind.value_field), kind.list_size)
    if kinds.is_large_list(kind):
        return pa.large_list(field(kind.value_field))
    return pa.list_(field(kind.value_field)) if kinds.is_list(kind) else kind


def check(where: str, schema: pa.Schema) -> None:
    """Refuse a schema with a type that cannot go from one step to the next."""
    for field in schema:
        why = _unfit(field.type)
        if why:
            what = f"has type {field.type}, {why[0]}"
            refuse(f"{where}: column {field.name!r}", what, why[1])


def _unfit(kind: pa.DataType) -> tuple[str, str] | None:
    """Why a type cannot be carried, and what to do about it."""
    for part in (kind, *_parts(kind)):
        if isinstance(part, pa.BaseExtensionType) and part.extension_name not in KNOWN_EXTENSIONS:
            return "an extension that not every process knows", f"declare it as {plain(kind)}"
        if _is_layout(part):
            remedy = f"declare it as {plain(kind)}; what is returned is converted"
            return "a layout that rows cannot be picked from", remedy
        if kinds.is_union(part) or kinds.is_interval(part):
            return "which no step can compare, nor Parquet hold", "use columns of other types"
        if _has_no_size(part):
            return "of size 0, which Parquet cannot hold", "leave it out in a map"
        if kinds.is_timestamp(part) and not _is_zone(part.tz):
            remedy = "name one of IANA as Europe/Berlin or UTC, or an offset as +05:30"
            return "with a zone that nobody knows", remedy
        if kinds.is_decimal(part) and part.scale < 0:
            remedy = f"declare it as decimal with {part.precision - part.scale} digits and scale 0"
            return "with a scale below 0, which Parquet cannot hold", remedy
        names = [part.field(i).name for i in range(part.num_fields)]
        if kinds.is_struct(part) and len(set(names)) < len(names):
            return "with two fields of one name", "give each field a name of its own"
    return None


def differ_in_layout(given: pa.Schema, declared: pa.Schema) -> bool:
    """Whether two schemas have the same columns but for the layout of values, and metadata."""
    return given.names == declared.names and all(
        plain(one.type) == plain(other.type) for one, other in zip(given, declared, strict=True)
    )


def difference(given: pa.Schema, declared: pa.Schema) -> str:
    """Say in which columns a schema is not the declared one, but for layouts, which are converted:
    the first few of them."""
    found = [f"{name!r} is missing" for name in declared.names if name not in given.names]
    for number, field in enumerate(given):
        if field.name not in declared.names:
            found.append(f"{field.name!r} is not declared")
        elif field.name in given.names[:number]:
            found.append(f"{field.name!r} is there twice")
        elif plain(field.type) != plain(kind := declared.field(field.name).type):
            found.append(f"{field.name!r} is {field.type} and not {kind}")
    if not found:
        return f"the columns have another order: {', '.join(given.names)}"
    more = len(found) - DIFFERENCES_MAX
    return ", ".join(found[:DIFFERENCES_MAX]) + (f", and {more} more" if more > 0 else "")


def converted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table in other layouts of the same values. Raises Arrow's errors where a value does not go
    into the other one, as with nulls where none may be."""
    columns = [column(*pair) for pair in zip(table.columns, schema.types, strict=True)]
    for field, made in zip(schema, columns, strict=True):
        if made.null_count and not field.nullable:
            raise pa.ArrowInvalid(f"column {field.name!r} has nulls, and may have none")
    return pa.Table.from_arrays(columns, schema=schema)


def column(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in another layout, or as another type that can hold each of its values exactly."""
    if values.type == kind:
        return values
    chunks = [piece for chunk in values.chunks for piece in _cast(chunk, kind)]
    return pa.chunked_array(chunks, kind)


def are_cut(exact: pa.Array, cut: pa.Array) -> np.ndarray:
    """In which rows nanoseconds are more than the microseconds made of them, in lists and structs
    too. Where they do not reach (years before 1678 and after 2262) they are no measure."""
    kind = cut.type
    if kind == exact.type or not (kinds.is_timestamp(kind) or kinds.is_nested(kind)):
        return np.zeros(len(cut), bool)
    if kinds.is_timestamp(kind):
        nanoseconds = exact.cast(pa.int64()).fill_null(0).to_numpy()
        microseconds = cut.cast(pa.int64()).fill_null(0).to_numpy()
        reached = np.abs(microseconds) < np.iinfo("int64").max // 1000 - 1
        return np.asarray(reached & (nanoseconds != microseconds * 1000))
    if kinds.is_struct(kind):
        pairs = zip(exact.flatten(), cut.flatten(), strict=True)
        rows = np.zeros(len(cut), bool)
        for pair in pairs:
            rows |= are_cut(*pair)
        return rows
    if kinds.is_map(kind):
        exact, cut = _pairs(exact), _pairs(cut)
    rows = np.zeros(len(cut), bool)
    inner = are_cut(exact.flatten(), cut.flatten())
    rows[np.asarray(pc.list_parent_indices(cut))[inner]] = True
    return rows


def old_columns(file: "pq.ParquetFile", names: Iterable[str]) -> list[str]:
    """Which of these columns have times of 96 bits, as old files do."""
    physical = file.schema
    leaves = [physical.column(place) for place in range(len(physical))]
    paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    return [name for name in names if any(is_of(name, path) for path in paths)]


def is_of(name: str, path: str) -> bool:
    """Whether a path of Parquet is in a column, whose name may have points of its own."""
    return path == name or path.startswith(f"{name}.")


def _pairs(array: pa.Array) -> pa.Array:
    """Maps as lists of structs."""
    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


def exact(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with other types, where each value stays what it is; a float may lose digits. Raises
    ValueError that names the column, also where Arrow's cast would say nothing: for numbers in the
    place of times, whose unit nobody knows, parts of times, and numbers too large for a float."""
    columns = []
    for field, given in zip(schema, table.columns, strict=True):
        try:
            made = given if given.type == field.type else _exact(given, field.type)
        except (pa.ArrowException, ValueError) as error:
            raise ValueError(f"column {field.name!r}: {error}") from error
        if made.null_count and not field.nullable:
            raise ValueError(f"column {field.name!r}: has nulls, and may have none")
        columns.append(made)
    return pa.Table.from_arrays(columns, schema=schema)


def _exact(given: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    given = column(given, plain(given.type))
    if why := misfit(given.type, kind):
        raise ValueError(f"{why}: give it as {kind}")
    chunks = [chunk.cast(kind) for chunk in given.chunks]
    for pair in zip(given.chunks, chunks, strict=True):
        for one, made in _leaves(*pair):
            if _is_cut(one, made):
                raise ValueError(f"has a value that {made.type} would cut")
            if leaf_infinities(made) > leaf_infinities(one):
                raise ValueError("has a number that is too large for its type")
    return pa.chunked_array(chunks, kind)


def misfit(given: pa.DataType, wanted: pa.DataType) -> str:
    """Why no value of one type is one of another; empty where some may be."""
    given = plain(given)
    if given == wanted:
        return ""
    none = pa.nulls(0, given)
    if any(_is_counted(*pair) for pair in _leaves(none, pa.nulls(0, wanted))):
        return f"has {given}, and no unit of these"
    try:
        none.cast(wanted)
    except pa.ArrowNotImplementedError:
        return f"has {given}, of which Arrow makes no {wanted}"
    return ""


def infinities(column: pa.ChunkedArray) -> int:
    """How many infinite numbers a column has."""
    leaves = (leaf for chunk in column.chunks for leaf, _ in _leaves(chunk, chunk))
    return sum(leaf_infinities(leaf) for leaf in leaves if kinds.is_floating(leaf.type))


def leaf_infinities(array: pa.Array | pa.ChunkedArray) -> int:
    """How many numbers of a leaf are infinite, or say so as texts."""
    if kinds.is_floating(array.type):
        return pc.sum(pc.is_inf(array)).as_py() or 0
    if kinds.is_string(array.type):
        return pc.sum(pc.match_substring(array, "inf", ignore_case=True)).as_py() or 0
    return 0


def _leaves(given: pa.Array, made: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The values of an array and of its cast, without the lists and structs around them."""
    if kinds.is_struct(given.type) and kinds.is_struct(made.type):
        parts = given.flatten()  # Arrow casts fields by their names
        for field, part in zip(made.type.fields, made.flatten(), strict=True):
            place = given.type.get_field_index(field.name)
            if place >= 0:
                yield from _leaves(parts[place], part)
    elif _has_items(given.type) and _has_items(made.type):
        lists = (_pairs(one) if kinds.is_map(one.type) else one for one in (given, made))
        yield from _leaves(*(one.flatten() for one in lists))
    else:
        yield given, made


def _has_items(kind: pa.DataType) -> bool:
    return bool(_is_list(kind) or kinds.is_fixed_size_list(kind) or kinds.is_map(kind))


def _is_cut(given: pa.Array, made: pa.Array) -> bool:
    """Whether Arrow has made another value of one without an error."""
    one, other = given.type, made.type
    numbers = kinds.is_integer(one) or kinds.is_floating(one)
    if kinds.is_decimal(other) and kinds.is_floating(one):
        # by way of their digits: Arrow's own cast of decimals to floats is not the nearest one
        return not made.cast(pa.string()).cast(one).equals(given)
    if (kinds.is_boolean(other) and numbers) or (
        one != other and kinds.is_temporal(one) and kinds.is_temporal(other)
    ):
        return not made.cast(one).equals(given)
    return False


def _is_counted(given: pa.Array, made: pa.Array) -> bool:
    """Whether numbers would be taken for times, or times for numbers."""
    one, other = given.type, made.type
    numbers = kinds.is_integer(one) or kinds.is_floating(one)
    counts = kinds.is_integer(other) or kinds.is_floating(other)
    return bool((numbers and kinds.is_temporal(other)) or (kinds.is_temporal(one) and counts))


def _cast(array: pa.Array, kind: pa.DataType) -> Iterator[pa.Array]:
    """An array of another type, in pieces where it is too large for one."""
    array = _unpacked(array)
    try:
        yield array.cast(kind)
    except pa.ArrowInvalid:
        if array.nbytes >= 2**31 and len(array) > 1:
            middle = len(array) // 2
            yield from _cast(array.slice(0, middle), kind)
            yield from _cast(array.slice(middle), kind)
        elif array.offset:
            # the offsets of a part go on from those before it, and may be too large by that alone
            yield pa.concat_arrays([array, array.slice(0, 0)]).cast(kind)
        else:
            raise


def _unpacked(array: pa.Array) -> pa.Array:
    """An array without layouts that Arrow casts wrongly, or not at all, in lists and structs too:
    views of lists, runs and extensions."""
    kind = array.type
    if not _is_packed(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return _unpacked(array.storage)
    if kinds.is_run_end_encoded(kind):
        return _unpacked(pc.run_end_decode(array))
    if kinds.is_struct(kind):
        parts = [_unpacked(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(parts, kind.names, mask=array.is_null())
    return _mapped(array) if kinds.is_map(kind) else _listed(array)


def _is_packed(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name not in KNOWN_EXTENSIONS
    views = kinds.is_list_view(kind) or kinds.is_large_list_view(kind)
    inner = (kind.field(place).type for place in range(kind.num_fields))
    return bool(views or kinds.is_run_end_encoded(kind) or any(map(_is_packed, inner)))


def _listed(array: pa.Array) -> pa.Array:
    """Any lists as plain ones: Arrow's own cast of views leaves the last offset out."""
    sizes = np.asarray(pc.list_value_length(array).fill_null(0)).astype(np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    empty = array.is_null() if array.null_count else None
    values = _unpacked(array.flatten())
    return pa.LargeListArray.from_arrays(pa.array(offsets), values, mask=empty)


def _has_no_size(kind: pa.DataType) -> bool:
    if kinds.is_fixed_size_list(kind):
        return bool(kind.list_size == 0)
    return bool(kinds.is_fixed_size_binary(kind) and kind.byte_width == 0)


def _is_zone(name: str | None) -> bool:
    """Whether Arrow and Python both know a zone by this spelling, or it is none."""
    if name in (None, "UTC") or OFFSET.fullmatch(name):
        return True
    try:
        return ZoneInfo(name).key == name
    except (LookupError, ValueError, OSError):  # a folder of zones is no zone: Europe
        return False


def _mapped(array: pa.MapArray) -> pa.MapArray:
    offsets = np.asarray(array.offsets)
    begin, end = offsets[0], offsets[-1]
    keys, items = (_unpacked(part[begin:end]) for part in (array.keys, array.items))
    empty = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(pa.array(offsets - begin), keys, items, mask=empty)


def _parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    """All types inside of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return
    for place in range(kind.num_fields):
        inner = kind.field(place).type
        yield inner
        yield from _parts(inner)


def _is_layout(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_dictionary(kind)
        or kinds.is_run_end_encoded(kind)
        or kinds.is_string_view(kind)
        or kinds.is_binary_view(kind)
        or kinds.is_list_view(kind)
        or kinds.is_large_list_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_list(kind)
        or kinds.is_large_list(kind)
        or kinds.is_list_view(kind)
        or kinds.is_large_list_view(kind)
    )
