"""A literal's place among a column's keys, where it is certain how Spark compares the two types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, tzinfo
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TypeGuard

import numpy as np

from deltamerge.skipping import timestamps
from deltamerge.skipping.columns import ColumnType, column_type
from deltamerge.skipping.keys import Key, float_key, has_surrogates

_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_DOUBLE_ERROR = Fraction(1, 2**51)
_FLOAT_ERROR = Fraction(1, 2**22)
# 2**53 is the first integer that another one rounds to; a FLOAT's is 2**24.
_DOUBLE_WHOLE = 2**53
_FLOAT_WHOLE = 2**24
_MAX_PRECISION = 38


@dataclass(frozen=True)
class Span:
    """The keys that equal a literal: those from `low` to `high`; none where `low` is above `high`.

    The literal itself is between the two. Where `exact`, a key equals it if and only if it is in the span; else a
    key in the span may equal it, be less or be greater.
    """

    low: Key
    high: Key
    exact: bool


SpanOf = Callable[[object], "Span | None"]


def span_function(column: ColumnType, literal_type: str, session_time_zone: str) -> SpanOf | None:
    """Return the function from a literal's value to its span among a column's keys.

    None where the comparison of the two types is not surely known; the function returns None for a value that it
    cannot place. `literal_type` is Spark's name of the literals' type.
    """
    literal = column_type(literal_type)
    if literal is None:
        return None
    kind = column.kind
    if kind == "string":
        return _string if literal.kind == "string" else None
    if kind == "boolean":
        return _boolean if literal.kind == "boolean" else None
    if kind in ("integral", "decimal"):
        return _number(column, literal)
    if kind in ("float", "double"):
        return _floating(column, literal)
    zone = timestamps.session_zone(session_time_zone)
    if kind == "date":
        return partial(_date, literal, zone)
    if kind == "timestamp":
        return partial(_timestamp, literal, zone)
    return partial(_timestamp_ntz, literal)


def _point(key: Key) -> Span:
    return Span(key, key, True)


def _string(value: object) -> Span | None:
    return _point(value) if isinstance(value, str) and not has_surrogates(value) else None


def _boolean(value: object) -> Span | None:
    return _point(int(value)) if isinstance(value, bool) else None


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(column: ColumnType, literal: ColumnType) -> SpanOf | None:
    if literal.kind in ("integral", "decimal"):
        # Spark compares in a decimal wide enough for both, which beyond 38 digits loses some.
        scale = max(column.scale, literal.scale)
        whole = max(column.precision - column.scale, literal.precision - literal.scale)
        if scale + whole > _MAX_PRECISION:
            return None
        return partial(_exact, 10**column.scale)
    if literal.kind in ("float", "double"):
        return partial(_rounded, column, literal)
    if literal.kind == "string" and column.kind == "integral":
        return lambda value: _point(int(value)) if isinstance(value, str) and _WHOLE.fullmatch(value) else None
    return None


def _exact(unit: int, value: object) -> Span | None:
    if _is_whole(value):
        return _point(value * unit)
    if isinstance(value, Decimal) and value.is_finite():
        return _between(Fraction(value) * unit, Fraction(0))
    return None


def _rounded(column: ColumnType, literal: ColumnType, value: object) -> Span | None:
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    error, exact_below = (_DOUBLE_ERROR, _DOUBLE_WHOLE) if literal.kind == "double" else (_FLOAT_ERROR, _FLOAT_WHOLE)
    number = Fraction(_as_float(value, literal)) * 10**column.scale
    certain = column.kind == "integral" and abs(number) < exact_below
    return _between(number, Fraction(0) if certain else abs(number) * error)


def _between(number: Fraction, error: Fraction) -> Span:
    return Span(math.ceil(number - error), math.floor(number + error), error == 0)


def as_float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _as_float(value: float, literal: ColumnType) -> float:
    return value if literal.kind == "double" else as_float32(value)


def _floating(column: ColumnType, literal: ColumnType) -> SpanOf | None:
    if literal.kind in ("float", "double"):
        return lambda value: _point(float_key(_as_float(value, literal))) if isinstance(value, float) else None
    if literal.kind in ("integral", "decimal"):
        return partial(_converted, _FLOAT_WHOLE if column.kind == "float" else _DOUBLE_WHOLE)
    return None


def _converted(limit: int, value: object) -> Span | None:
    # Spark converts to FLOAT or to DOUBLE, by spark.sql.ansi.enabled: both are exact up to the limit.
    if (_is_whole(value) and abs(value) <= limit) or (isinstance(value, Decimal) and value.is_finite()):
        return _point(float_key(float(value)))
    return None


def _is_date(value: object) -> TypeGuard[date]:
    return isinstance(value, date) and not isinstance(value, datetime)


def _date(literal: ColumnType, zone: tzinfo | None, value: object) -> Span | None:
    if literal.kind == "date" and _is_date(value):
        return _point(timestamps.days_of(value))
    if literal.kind == "string" and isinstance(value, str):
        days = timestamps.parse_date(value)
        return None if days is None else _point(days)
    if literal.kind == "timestamp_ntz" and _is_local(value):
        return _about(value.date(), 1)
    if literal.kind == "timestamp" and _is_instant(value) and zone is not None:
        try:
            return _about(value.astimezone(zone).date(), 1 if timestamps.is_fixed(zone) else 3)
        except OverflowError:
            return None
    return None


def _about(day: date, either_side: int) -> Span:
    # Midnights may fall into a gap of the zone: a day more on either side is enough where the zone's rules are known.
    days = timestamps.days_of(day)
    return Span(days - either_side, days + either_side, False)


def _is_local(value: object) -> TypeGuard[datetime]:
    return isinstance(value, datetime) and value.tzinfo is None


def _is_instant(value: object) -> TypeGuard[datetime]:
    return isinstance(value, datetime) and value.utcoffset() is not None


def _local_of(value: object, literal: ColumnType) -> datetime | None:
    """Return the local time of a date, a local timestamp or a string without an offset."""
    if literal.kind == "date" and _is_date(value):
        return datetime.combine(value, time.min)
    if literal.kind == "timestamp_ntz" and _is_local(value):
        return value
    if literal.kind == "string" and isinstance(value, str):
        parsed = timestamps.parse_timestamp(value)
        if parsed is not None and parsed[1] is None:
            return parsed[0]
    return None


def _timestamp(literal: ColumnType, zone: tzinfo | None, value: object) -> Span | None:
    if literal.kind == "timestamp":
        return _point(timestamps.instant_micros(value)) if _is_instant(value) else None
    local = _local_of(value, literal)
    if local is None or zone is None:
        return None
    micros = timestamps.zoned_micros(local, zone)
    if timestamps.is_fixed(zone):
        return _point(micros)
    # Enough also for an hour that comes twice, whose times are spelled alike: outside ANSI mode IN compares strings.
    return Span(micros - timestamps.ZONE_SLACK_MICROS, micros + timestamps.ZONE_SLACK_MICROS, False)


def _timestamp_ntz(literal: ColumnType, value: object) -> Span | None:
    if literal.kind == "timestamp":
        # Spark takes the column's local times to instants: within a day's offset of their own clock.
        if not _is_instant(value):
            return None
        micros = timestamps.instant_micros(value)
        return Span(micros - timestamps.MICROS_PER_DAY, micros + timestamps.MICROS_PER_DAY, False)
    local = _local_of(value, literal)
    return None if local is None else _point(timestamps.local_micros(local))
