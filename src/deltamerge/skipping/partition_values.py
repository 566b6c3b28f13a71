"""The files' partition values as exact bounds: every row of a file has the one value.

Protocol: Partition Value Serialization. Timestamps without an offset are in the session's time zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.skipping import timestamps
from deltamerge.skipping.columns import ColumnType
from deltamerge.skipping.keys import Bounds, Key, fits_int64, float_key, unscaled
from deltamerge.skipping.literals import as_float32
from deltamerge.workers.partition_names import NULL_PARTITION

# Of the integral types, by their precision.
_BITS = {3: 8, 5: 16, 10: 32, 20: 64}
_INTEGER = re.compile(r"[+-]?\d{1,19}")
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_SPECIAL_FLOATS = {"nan": "nan", "infinity": "inf", "-infinity": "-inf", "inf": "inf", "-inf": "-inf"}
# As Spark casts strings.
BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def partition_bounds(partition_values: pa.Array, name: str, kind: ColumnType | None, session_time_zone: str) -> Bounds:
    """Return one partition column's values as bounds, both ends of which are the value.

    A timestamp in a time zone with rules is somewhere near what Python takes it for. Another string that cannot surely
    be read is unknown, so is a file that does not name the column at all.
    `partition_values` are map<string, string>, `name` is the column's physical name; without `kind` only the
    column's NULLs are known.
    """
    strings, present = partition_strings(partition_values, name)
    encoded = strings.dictionary_encode()
    # Files without a value get one more code.
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    values: list[str | None] = [*encoded.dictionary.to_pylist(), None]
    parse = partition_parser(kind, session_time_zone)
    keys: list[Key] = []
    known, null, value, slack = [], [], [], []
    is_string = kind is not None and kind.kind == "string"
    is_instant = kind is not None and kind.kind == "timestamp"
    for string in values:
        key = None if string is None or parse is None else parse(string)
        slack.append(0)
        if key is None and string is not None and is_instant:
            key, slack[-1] = timestamps.rough_instant(string, session_time_zone), timestamps.ZONE_SLACK_MICROS
        keys.append(("" if is_string else 0) if key is None else key)
        known.append(key is not None)
        # Readers differ on whether an empty string is NULL for a string column, and old converters let Hive's name
        # for NULL through. What Spark cannot read as the type is NULL outside of ANSI mode.
        is_unread = key is None and parse is not None
        null.append(string is None or string in ("", NULL_PARTITION) or is_unread)
        value.append(string is not None and (string != "" or kind is None or is_string))
    dtype = np.int64 if kind is not None and fits_int64(kind) else object
    by_code = np.array(keys, dtype=dtype)[codes]
    is_known, around = np.array(known)[codes], np.array(slack, np.int64)[codes]
    return Bounds(
        lower=by_code - around if is_instant else by_code,
        upper=by_code + around if is_instant else by_code,
        lower_known=is_known,
        upper_known=is_known,
        may_be_null=np.array(null)[codes] | ~present,
        may_be_value=np.array(value)[codes] | ~present,
        hides_nan=False,
    )


def partition_strings(
    partition_values: pa.Array, name: str
) -> tuple[pa.Array, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return the strings that files have of a column, and which files name it."""
    count = len(partition_values)
    keys, items = partition_values.keys, partition_values.items
    # Offsets are of the whole array, also where this one is a slice of it.
    offsets = partition_values.offsets.to_numpy(zero_copy_only=False)[: count + 1]
    lengths = np.diff(offsets)
    lengths = np.where(partition_values.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    file_of_entry = np.repeat(np.arange(count), lengths)
    starts = np.repeat(offsets[:-1] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    entry = starts + np.arange(len(file_of_entry))
    matches = pc.equal(keys.take(pa.array(entry)), name).to_numpy(zero_copy_only=False).astype(bool)
    place = np.full(count, -1, dtype=np.int64)
    place[file_of_entry[matches]] = entry[matches]
    present = place >= 0
    return items.take(pa.array(place, mask=~present)), present


def partition_parser(
    kind: ColumnType | None,
    session_time_zone: str,
    instant: Callable[[str, str], int | None] = timestamps.certain_instant,
) -> Callable[[str], Key | None] | None:
    """Return what makes keys of a column's partition values, or None where a string cannot surely be read.

    Args:
        instant: Reads timestamps, those without an offset in the session's time zone.
    """
    if kind is None:
        return None
    if kind.kind == "string":
        return lambda string: None if string == NULL_PARTITION else string
    if kind.kind == "boolean":
        return lambda string: BOOLEANS.get(string.lower())
    if kind.kind == "integral":
        return lambda string: _integer(string, _BITS[kind.precision])
    if kind.kind == "decimal":
        return lambda string: _decimal(string, kind)
    if kind.kind in ("float", "double"):
        return lambda string: _float(string, kind)
    if kind.kind == "date":
        return timestamps.parse_date
    if kind.kind == "timestamp":
        return lambda string: instant(string, session_time_zone)
    return _timestamp_ntz


def _integer(string: str, bits: int) -> int | None:
    if not _INTEGER.fullmatch(string):
        return None
    number = int(string)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _decimal(string: str, kind: ColumnType) -> int | None:
    if not _DECIMAL.fullmatch(string):
        return None
    number = unscaled(Decimal(string), kind.scale)
    return number if number is not None and abs(number) < 10**kind.precision else None


def _float(string: str, kind: ColumnType) -> int | None:
    special = _SPECIAL_FLOATS.get(string.lower())
    if special is None and not _DECIMAL.fullmatch(string):
        return None
    number = float(special or string)
    return float_key(as_float32(number) if kind.kind == "float" else number)


def _timestamp_ntz(string: str) -> int | None:
    parsed = timestamps.parse_timestamp(string)
    if parsed is None or parsed[1] is not None:
        return None
    return timestamps.local_micros(parsed[0])
