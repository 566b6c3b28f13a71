"""Partition values as the log and folders spell them. Protocol: Partition Value Serialization."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{}[]^") | frozenset(chr(code) for code in range(1, 32))
_MICROSECONDS_OF_A_DAY = 86_400_000_000


def partition_folder(name: str, value: str | None) -> str:
    """Return the name of a partition's folder, as Hive and Spark spell it."""
    return f"{escape_path_name(name)}={escape_path_name(value) if value else NULL_PARTITION}"


def escape_path_name(string: str) -> str:
    """Spell a partition's name or value as Hive and Spark do in a folder's name."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in string)


def unescape_path_name(string: str) -> str:
    """Undo `escape_path_name`, and only that: other percent signs stay."""
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda match: chr(int(match.group(1), 16)), string)


def split_partition(path: str) -> tuple[str, dict[str, str | None]]:
    """Return a folder's path without the partition folders at its end, and the values that these name."""
    root, values = path.rstrip("/"), dict[str, str | None]()
    while "=" in root.rpartition("/")[2]:
        root, _, folder = root.rpartition("/")
        name, _, spelled = folder.partition("=")
        value = None if spelled == NULL_PARTITION else unescape_path_name(spelled)
        values = {unescape_path_name(name): value, **values}
    return root, values


def without_empty(column: Any) -> Any:  # noqa: ANN401
    """Return a partition column's values with NULL for an empty string, which the log cannot tell from it."""
    if not (
        pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_binary(column.type)
    ):
        return column
    return pc.if_else(pc.equal(pc.binary_length(column), 0), pa.scalar(None, column.type), column)


def partition_strings(column: Any) -> pa.Array:  # noqa: ANN401
    encoded = column.dictionary_encode()
    plain = encoded.dictionary
    # Python's calendar ends with the year 9999, begins with the year 1, and knows no nanoseconds.
    if pa.types.is_date(plain.type):
        plain = plain.cast(pa.int32())
    elif pa.types.is_timestamp(plain.type):
        plain = plain.cast(pa.int64())
    strings = pa.array([_string(value, column.type) for value in plain.to_pylist()], pa.string())
    return strings.take(encoded.indices) if len(strings) else pa.nulls(len(column), pa.string())


def _string(value: Any, kind: pa.DataType) -> str | None:  # noqa: ANN401
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return _number(np.float32(value) if pa.types.is_float32(kind) else np.float64(value))
    if pa.types.is_date(kind):
        return _day(value)
    return _time(value, is_instant=kind.tz is not None) if pa.types.is_timestamp(kind) else str(value)


def _number(value: np.floating[Any]) -> str:
    """Spell a floating-point number as Java does: with the fewest digits, of which one is behind the point."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(value, trim="0")
    return np.format_float_scientific(value, trim="0", exp_digits=1).replace("e+", "E").replace("e-", "E-")


def _day(days: int) -> str:
    day = np.datetime64(days, "D")
    year = int(day.astype("datetime64[Y]").astype(np.int64)) + 1970
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}{str(day)[-6:]}"


def _time(micros: int, *, is_instant: bool) -> str:
    days, micros = divmod(micros, _MICROSECONDS_OF_A_DAY)
    seconds, micros = divmod(micros, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"
    return f"{_day(days)}T{clock}Z" if is_instant else f"{_day(days)} {clock}".rstrip("0").rstrip(".")
