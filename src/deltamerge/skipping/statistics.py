"""Reading the JSON statistics of many files at once: the log's ``stats`` strings as Arrow columns.

Protocol: Per-file Statistics. Only the columns that are asked for are read. Chunks of files go through
Arrow's JSON reader; a chunk with anything out of the ordinary (garbage, infinities as strings, wide numbers) is
read again one by one, and what cannot be understood there is unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from deltamerge.skipping import timestamps
from deltamerge.skipping.columns import ColumnType, TargetColumn, put
from deltamerge.skipping.keys import has_surrogates

CHUNK = 8192
# Statistics carry milliseconds and drop what is below (Protocol: Per-file Statistics).
MAX_TRUNCATION_MICROS = 999
# Decimals of so many digits are the same after a round trip through a double; what longer ones may be off by, relative
# to their value: the roundings of two conversions and a division, and a further step to the next double.
_EXACT_DIGITS = 15
_DOUBLE_ERROR = 2.0**-50


@dataclass(frozen=True)
class ColumnStatistics:
    """One column's minValues, maxValues (no value but a NaN is greater) and nullCount.

    One element per file, null where unknown.
    """

    lower: pa.Array | None
    upper: pa.Array | None
    null_count: pa.Array


@dataclass(frozen=True)
class FileStatistics:
    """The statistics of all files; `num_records` counts deleted rows, too."""

    num_records: pa.Array
    columns: dict[tuple[str, ...], ColumnStatistics]


def read_statistics(stats: pa.Array | pa.ChunkedArray, columns: Sequence[TargetColumn]) -> FileStatistics:
    """Read the statistics of some columns, null for what a file lacks or has unintelligibly.

    `stats` are the files' strings, null where a file has none.
    """
    readers = _readers(columns)
    schema = _json_schema(columns)
    parts: list[list[pa.Array]] = [[] for _ in readers]
    for strings in stats.chunks if isinstance(stats, pa.ChunkedArray) else [stats]:
        for start in range(0, len(strings), CHUNK):
            chunk = strings.slice(start, CHUNK)
            arrays = _read_fast(chunk, schema, readers) or _read_exactly(chunk, readers)
            for part, array in zip(parts, arrays, strict=True):
                part.append(array)
    by_reader = {
        (reader.group, reader.path): pa.concat_arrays(part) if part else pa.array([], reader.form.type)
        for reader, part in zip(readers, parts, strict=True)
    }
    return FileStatistics(
        num_records=by_reader["numRecords", ()],
        columns={
            column.path: ColumnStatistics(
                lower=by_reader.get(("minValues", column.physical_path)),
                upper=by_reader.get(("maxValues", column.physical_path)),
                null_count=by_reader["nullCount", column.physical_path],
            )
            for column in columns
        },
    )


@dataclass(frozen=True)
class _Reader:
    """How one statistic is read: its place in the JSON and its form."""

    group: str
    path: tuple[str, ...]
    form: _Form


@dataclass(frozen=True)
class _Form:
    """The type of a statistic here, and how it is made of Arrow's reading of the JSON and of Python's."""

    type: pa.DataType
    from_arrow: Callable[[pa.Array], pa.Array]
    from_python: Callable[[object], object]


def _readers(columns: Iterable[TargetColumn]) -> list[_Reader]:
    readers = [_Reader("numRecords", (), _COUNT)]
    for column in {column.physical_path: column for column in columns}.values():
        readers.append(_Reader("nullCount", column.physical_path, _COUNT))
        if column.type is None or column.type.kind == "boolean":
            continue
        readers.extend(
            _Reader(group, column.physical_path, _bound_form(column.type, group == "maxValues"))
            for group in ("minValues", "maxValues")
        )
    return readers


def _json_schema(columns: Iterable[TargetColumn]) -> pa.Schema:
    counts: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    for column in columns:
        put(counts, column.physical_path, pa.int64())
        if column.type is not None and column.type.kind != "boolean":
            put(bounds, column.physical_path, _json_type(column.type))
    # One writer spells nullCount in the plural.
    groups = {"minValues": bounds, "maxValues": bounds, "nullCount": counts, "nullCounts": counts}
    found = {"numRecords": pa.int64(), **{name: _struct(tree) for name, tree in groups.items() if tree}}
    return pa.schema(list(found.items()))


def _struct(tree: dict[str, Any]) -> pa.StructType:
    return pa.struct([(name, _struct(sub) if isinstance(sub, dict) else sub) for name, sub in tree.items()])


def _json_type(kind: ColumnType) -> pa.DataType:
    if kind.kind == "integral":
        return pa.int64()
    if kind.kind in ("float", "double"):
        return pa.float64()
    if kind.kind == "decimal":
        return pa.decimal128(38, kind.scale)
    return pa.string()


def _read_fast(chunk: pa.Array, schema: pa.Schema, readers: Sequence[_Reader]) -> list[pa.Array] | None:
    """Read a chunk with Arrow's JSON reader; None where that does not surely read every string."""
    strings = pc.fill_null(chunk, "{}")
    # One line must be one string: anything that could join or split lines goes the exact way.
    if pc.any(pc.match_substring_regex(strings, r"[\r\n]")).as_py():
        return None
    if not pc.all(pc.and_(pc.starts_with(strings, "{"), pc.ends_with(strings, "}"))).as_py():
        return None
    data = "\n".join(strings.to_pylist()).encode()
    try:
        table = pa_json.read_json(
            pa.BufferReader(data),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1024),
            parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(chunk):
            return None
        return [reader.form.from_arrow(_leaf(table, reader)) for reader in readers]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _leaf(table: pa.Table, reader: _Reader) -> pa.Array:
    array = _at(table, reader.group, reader.path)
    if reader.group == "nullCount":
        return pc.coalesce(array, _at(table, "nullCounts", reader.path))
    return array


def _at(table: pa.Table, group: str, path: tuple[str, ...]) -> pa.Array:
    array = table.column(group).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    for name in path:
        array = pc.struct_field(array, [array.type.get_field_index(name)])
    return array


def _read_exactly(chunk: pa.Array, readers: Sequence[_Reader]) -> list[pa.Array]:
    documents = [_document(string) for string in chunk.to_pylist()]
    return [
        pa.array([reader.form.from_python(_dig(document, reader)) for document in documents], reader.form.type)
        for reader in readers
    ]


def _document(string: str | None) -> dict[str, object]:
    if string is None:
        return {}
    try:
        document = json.loads(string, parse_float=Decimal, parse_constant=str)
    except (ValueError, RecursionError, InvalidOperation):
        return {}
    return document if isinstance(document, dict) else {}


def _dig(document: dict[str, object], reader: _Reader) -> object:
    value: object = document.get(reader.group)
    if value is None and reader.group == "nullCount":
        value = document.get("nullCounts")
    for name in reader.path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _bound_form(kind: ColumnType, is_upper: bool) -> _Form:
    if kind.kind == "integral":
        return _Form(pa.int64(), _same, _integer)
    if kind.was_float:
        return _once_float_form(is_upper)
    if kind.kind in ("float", "double"):
        return _Form(pa.float64(), _drop_nan, _float)
    if kind.kind == "decimal":
        return _decimal_form(kind, is_upper)
    if kind.kind == "date":
        return _Form(pa.date32(), lambda array: array.cast(pa.date32()), _date)
    if kind.kind == "string":
        return _Form(pa.string(), _wide_upper if is_upper else _same, _string_reader(is_upper))
    return _timestamp_form(kind, is_upper)


def _once_float_form(is_upper: bool) -> _Form:
    """Read a bound of a double that was a float once: the digits may spell either."""
    outer = np.fmax if is_upper else np.fmin

    def widened(array: pa.Array) -> pa.Array:
        array = _drop_nan(array)
        doubles = array.to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            floats = doubles.astype(np.float32).astype(np.float64)
        return pa.array(outer(doubles, floats), pa.float64(), mask=~array.is_valid().to_numpy(False))

    def from_python(value: object) -> object:
        number = _float(value)
        return None if number is None else widened(pa.array([number], pa.float64()))[0].as_py()

    return _Form(pa.float64(), widened, from_python)


def _decimal_form(kind: ColumnType, is_upper: bool) -> _Form:
    """Read a bound of a decimal, which delta-rs computes as a double: more than 15 digits may be of another value."""
    stored, wide = pa.decimal128(38, kind.scale), pa.decimal256(38, kind.scale)
    context = Context(prec=38, rounding=ROUND_CEILING if is_upper else ROUND_FLOOR)
    move, unit = (pc.add if is_upper else pc.subtract), 10.0**-kind.scale
    end_of_longs = pa.scalar(Decimal(2**63 - 1 if is_upper else -(2**63)), pa.decimal128(38, 0))

    def widened(array: pa.Array) -> pa.Array:
        if kind.scale == 0:
            # What is beyond is cut to it.
            array = pc.if_else(pc.equal(array, end_of_longs), None, array)
        sizes = np.abs(array.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False))
        is_inexact = sizes >= 10.0 ** (_EXACT_DIGITS - kind.scale)
        if not is_inexact.any():
            return array
        error = pa.array(np.where(is_inexact, sizes * _DOUBLE_ERROR + unit, 0)).cast(stored)
        return move(array.cast(wide), error.cast(wide)).cast(stored)

    def exact(value: object) -> Decimal | None:
        return _decimal(value, kind.scale, context)

    def from_python(value: object) -> object:
        number = exact(value)
        try:
            return None if number is None else widened(pa.array([number], stored))[0].as_py()
        except pa.ArrowInvalid:
            # Beyond what 38 digits hold.
            return None

    if kind.precision <= _EXACT_DIGITS:
        return _Form(stored, _same, exact)
    return _Form(stored, widened, from_python)


def _timestamp_form(kind: ColumnType, is_upper: bool) -> _Form:
    zoned = kind.kind == "timestamp"
    json_type = pa.timestamp("us", "UTC") if zoned else pa.timestamp("us")
    more = MAX_TRUNCATION_MICROS if is_upper else 0
    slack = timestamps.OFFSET_SLACK_MICROS * (1 if is_upper else -1)

    def from_arrow(strings: pa.Array) -> pa.Array:
        micros = strings.cast(json_type).cast(pa.int64())
        micros = pc.add(micros, more)
        if zoned:
            vague = pc.and_(pc.less(micros, timestamps.MICROS_1973), pc.invert(pc.ends_with(strings, "Z")))
            micros = pc.if_else(vague, pc.add(micros, slack), micros)
        return micros

    def from_python(value: object) -> int | None:
        parsed = timestamps.parse_timestamp(value) if isinstance(value, str) else None
        if parsed is None:
            return None
        local, offset = parsed
        micros = timestamps.local_micros(local) + more
        if not zoned:
            return micros if offset is None else None
        if offset is None:
            return None
        micros -= timestamps.offset_micros(offset)
        return micros + slack if offset != "Z" and micros < timestamps.MICROS_1973 else micros

    return _Form(pa.int64(), from_arrow, from_python)


def _same(array: pa.Array) -> pa.Array:
    return array


def _counts(array: pa.Array) -> pa.Array:
    return pc.if_else(pc.less(array, 0), None, array)


def _drop_nan(array: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(array), None, array)


# delta-spark before 3.x cut long strings with Java's 16-bit characters and put U+FFFD behind the rest, which
# is less than characters outside of the basic plane; where it cut one of those in two, a `?` replaces it.
_OLD_TIE_BREAKER = "�"
_TOP = "\U0010ffff" * 16


def _wide_upper(array: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(array, r"\??�$", _TOP)


def _string_reader(is_upper: bool) -> Callable[[object], object]:
    def read(value: object) -> str | None:
        if not isinstance(value, str) or has_surrogates(value):
            return None
        if is_upper and value.endswith(_OLD_TIE_BREAKER):
            return value[:-1].removesuffix("?") + _TOP
        return value

    return read


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    # What is too large is not converted: 1E999999999 has a billion digits.
    if (
        isinstance(value, Decimal)
        and value.is_finite()
        and value.adjusted() < 19
        and value == value.to_integral_value()
    ):
        value = int(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    return None


def _count(value: object) -> int | None:
    number = _integer(value)
    return number if number is not None and number >= 0 else None


_COUNT = _Form(pa.int64(), _counts, _count)


def _float(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        # to_json writes infinities as strings; NaN bounds nothing.
        return {"infinity": math.inf, "inf": math.inf, "-infinity": -math.inf, "-inf": -math.inf}.get(
            value.lower().lstrip("+")
        )
    if isinstance(value, (int, Decimal)):
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def _decimal(value: object, scale: int, context: Context) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    try:
        number = Decimal(value)
        if not number.is_finite():
            return None
        return number.quantize(Decimal(1).scaleb(-scale), context=context)
    except (InvalidOperation, Inexact):
        return None


def _date(value: object) -> object:
    days = timestamps.parse_date(value) if isinstance(value, str) else None
    return None if days is None else pa.scalar(days, pa.int32()).cast(pa.date32()).as_py()
