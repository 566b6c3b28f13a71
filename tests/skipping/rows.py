"""Random little tables, and predicates evaluated on their rows exactly as SQL has it, in plain Python."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import strategies as st

from deltamerge.log.schema import PrimitiveType, StructField, StructType
from deltamerge.skipping.predicates import (
    And,
    ColumnRef,
    Comparison,
    In,
    InRanges,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)

ZONE = "America/New_York"


def float32(value: float) -> float:
    if math.isnan(value) or math.isinf(value):
        return value
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


@dataclass(frozen=True)
class Kind:
    name: str
    arrow: pa.DataType
    values: st.SearchStrategy
    literals: tuple[tuple[str, st.SearchStrategy], ...]


def to_instant(value: Any) -> dt.datetime:
    if isinstance(value, str):
        value = date.fromisoformat(value)
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return value if value.tzinfo else value.replace(tzinfo=ZoneInfo(ZONE))


def to_local(value: Any) -> dt.datetime:
    if isinstance(value, str):
        value = date.fromisoformat(value)
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


small = st.integers(-5, 5)
texts = st.one_of(
    st.sampled_from(["", "\0", "a", "a\0", "ab", "b", "é", "\U0001f600", "\ufffd", "\U0010ffff", "null"]),
    st.builds(
        lambda head, tail: head + tail,
        st.sampled_from(
            [
                "x" * 31,
                "x" * 32,
                "\U0001f600" * 32,
                "\U0010ffff" * 33,
                "y" * 31 + "\U0001f600",
                "\U0010ffff" * 70,
            ]
        ),
        st.text(st.sampled_from(["a", "\x7f", "\x80", "~", "\U0010ffff", "\ud7ff", "\ue000"]), max_size=4),
    ),
)
instants = st.one_of(
    st.sampled_from(
        [
            datetime(1, 1, 2, tzinfo=timezone.utc),
            datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=timezone.utc),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc),
            datetime(1883, 11, 18, 12, 3, 57, 1, tzinfo=timezone.utc),
            datetime(2024, 3, 10, 7, 0, tzinfo=timezone.utc),
            datetime(2024, 11, 3, 6, 0, tzinfo=timezone.utc),
        ]
    ),
    st.builds(
        lambda micros: datetime(2024, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros),
        st.integers(-3000, 3000),
    ),
)
locals_ = instants.map(lambda value: value.replace(tzinfo=None))
dates = st.one_of(
    st.sampled_from([date(1, 1, 3), date(9999, 12, 29), date(1970, 1, 1), date(1969, 12, 31)]),
    st.builds(lambda days: date(2024, 1, 1) + timedelta(days=days), small),
)
# Times that are the same as others in the session's time zone.
zoned = instants | locals_.map(to_instant) | dates.map(to_instant)
# A local time has no fold: the hour that a clock shows twice is the same value both times.
unzoned = locals_ | instants.map(lambda value: value.astimezone(ZoneInfo(ZONE)).replace(tzinfo=None, fold=0))
doubles = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 1e300, -1e300, 5e-324, 2.0**53]),
    st.floats(-3, 3, width=32),
)
longs = st.one_of(small, st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1]))


def decimals(precision: int, scale: int) -> Any:
    top = 10**precision - 1
    return st.one_of(st.integers(-300, 300), st.sampled_from([top, -top])).map(
        lambda number: Decimal(f"{number}e-{scale}")
    )


exact_numbers = (
    ("int", small),
    ("bigint", longs),
    ("decimal(3,1)", decimals(3, 1)),
    ("decimal(2,2)", decimals(3, 2)),
    ("double", doubles),
)
iso_dates = dates.map(lambda value: value.isoformat())

KINDS = (
    Kind("integer", pa.int32(), small, (*exact_numbers, ("string", small.map(str)))),
    Kind("long", pa.int64(), longs, (*exact_numbers, ("string", st.sampled_from(["1", " 1", "1.5", "x"])))),
    Kind("byte", pa.int8(), small, exact_numbers),
    Kind("decimal(5,2)", pa.decimal128(5, 2), decimals(5, 2), exact_numbers),
    Kind("decimal(30,4)", pa.decimal128(30, 4), decimals(30, 4), exact_numbers),
    Kind("float", pa.float32(), doubles.map(float32), (("float", doubles.map(float32)), *exact_numbers)),
    Kind("double", pa.float64(), doubles, (("float", doubles.map(float32)), *exact_numbers)),
    Kind("string", pa.string(), texts, (("string", texts), ("int", small))),
    Kind("boolean", pa.bool_(), st.booleans(), (("boolean", st.booleans()),)),
    Kind("binary", pa.binary(), st.binary(max_size=3), (("binary", st.binary(max_size=3)),)),
    Kind(
        "date",
        pa.date32(),
        dates,
        (("date", dates), ("string", iso_dates), ("timestamp", zoned), ("timestamp_ntz", locals_)),
    ),
    Kind(
        "timestamp",
        pa.timestamp("us", "UTC"),
        instants,
        (("timestamp", instants), ("string", iso_dates), ("date", dates), ("timestamp_ntz", unzoned)),
    ),
    Kind(
        "timestamp_ntz",
        pa.timestamp("us"),
        locals_,
        (("timestamp_ntz", locals_), ("string", iso_dates), ("date", dates), ("timestamp", zoned)),
    ),
)


def common(value: Any, column: str, literal: str) -> Any:
    """Gives one value of either side in the type that Spark compares the two in; None for NULL."""
    sides = {column.partition("(")[0], literal.partition("(")[0]}
    if sides & {"float", "double"}:
        number = float(value)
        return (1, 0.0) if math.isnan(number) else (0, number)
    if sides & {"integer", "long", "byte", "int", "bigint", "decimal"}:
        if "string" in sides:
            try:
                return Fraction(int(value))
            except ValueError:
                return None
        return Fraction(value)
    if "timestamp" in sides:
        return to_instant(value).astimezone(timezone.utc)
    if "timestamp_ntz" in sides:
        return to_local(value)
    if "date" in sides:
        return date.fromisoformat(value) if isinstance(value, str) else value
    if sides == {"string"}:
        return value.encode("utf-8")
    return value


def compare(op: str, left: Any, right: Any) -> bool:
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


def evaluate(predicate: Predicate, row: dict[str, Any], types: dict[tuple[str, ...], str]) -> bool | None:
    """Gives True, False or None (NULL)."""
    if isinstance(predicate, Unknown):
        return True
    if isinstance(predicate, Not):
        inner = evaluate(predicate.part, row, types)
        return None if inner is None else not inner
    if isinstance(predicate, And):
        answers = [evaluate(part, row, types) for part in predicate.parts]
        return False if False in answers else None if None in answers else True
    if isinstance(predicate, Or):
        answers = [evaluate(part, row, types) for part in predicate.parts]
        return True if True in answers else None if None in answers else False
    path = predicate.column.path
    value: Any = row
    for name in path:
        value = None if value is None else value[name]
    if isinstance(predicate, IsNull):
        return value is None
    if isinstance(predicate, IsNotNull):
        return value is not None
    if isinstance(predicate, StartsWith):
        return None if value is None else value.startswith(predicate.prefix)
    column = types[path]

    def one(op: str, literal: Any) -> bool | None:
        if op == "<=>":
            if value is None or literal is None:
                return value is None and literal is None
            op = "="
        if value is None or literal is None:
            return None
        if (column == "string") != (predicate.type_name == "string") and column == "string":
            # Depends on spark.sql.ansi.enabled: whatever it is, it must be kept.
            return True
        left = common(value, column, predicate.type_name)
        right = common(literal, column, predicate.type_name)
        return None if left is None or right is None else compare(op, left, right)

    if isinstance(predicate, Comparison):
        return one(predicate.op, predicate.value)
    if isinstance(predicate, In):
        answers = [one("=", literal) for literal in predicate.values]
        return True if True in answers else None if None in answers else False
    assert isinstance(predicate, InRanges)
    if value is None:
        return predicate.or_null
    return any(one(">=", low) and one("<=", high) for low, high in predicate.ranges)


def leaves(column: tuple[str, ...], kind: Kind) -> Any:
    ref = ColumnRef(column)
    options = [st.just(IsNull(ref)), st.just(IsNotNull(ref))]
    for name, literals in kind.literals:
        options += [
            st.builds(
                Comparison,
                st.sampled_from(["=", "<=>", "<>", "<", "<=", ">", ">="]),
                st.just(ref),
                literals | st.none(),
                st.just(name),
            ),
            st.builds(
                In,
                st.just(ref),
                st.lists(literals | st.none(), max_size=4).map(tuple),
                st.just(name),
            ),
            st.builds(
                InRanges,
                st.just(ref),
                st.lists(literals, max_size=6).map(partial(ranges, column=kind.name, literal=name)),
                st.booleans(),
                st.just(name),
            ),
        ]
    if kind.name == "string":
        options.append(st.builds(StartsWith, st.just(ref), texts))
    return st.one_of(options)


def ranges(values: Sequence[Any], column: str, literal: str) -> tuple[tuple[Any, Any], ...]:
    if not values or column == "binary" or common(values[0], column, literal) is None:
        return ()
    if literal == "string" and column in ("integer", "long"):
        return tuple((value, value) for value in values)
    if column == "string" and literal != "string":
        values = sorted(set(values))
    else:
        unique = {common(value, column, literal): value for value in values}
        values = [unique[key] for key in sorted(unique)]
    return tuple((values[at], values[min(at + 1, len(values) - 1)]) for at in range(0, len(values), 2))


def predicates(columns: dict[tuple[str, ...], Kind]) -> Any:
    leaf = st.one_of([leaves(path, kind) for path, kind in columns.items()])
    return st.recursive(
        leaf | st.just(Unknown()),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(lambda parts: And(tuple(parts)), st.lists(inner, max_size=3)),
            st.builds(lambda parts: Or(tuple(parts)), st.lists(inner, max_size=3)),
        ),
        max_leaves=4,
    )


def schema_of(columns: dict[tuple[str, ...], Kind]) -> StructType:
    """Gives the log's schema of columns by name, nested ones under their struct."""
    fields: list[StructField] = []
    nested: list[StructField] = []
    for path, kind in columns.items():
        field = StructField(path[-1], PrimitiveType(kind.name))
        (nested if len(path) > 1 else fields).append(field)
    if nested:
        fields.append(StructField("st", StructType(tuple(nested))))
    return StructType(tuple(fields))
