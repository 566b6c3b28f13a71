"""Which keys Arrow looks up, and what in ON is against that."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from deltamerge.merge.analysis.column_references import MergeReferences
from deltamerge.merge.analysis.join_keys import PLAIN_KEY_TYPES, PlainKeys, plain_keys
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge

from ..planning.merges import PEOPLE, UPSERT, Columns, merge_of


def keys_of(merge: ResolvedMerge) -> PlainKeys | str:
    return plain_keys(merge, MergeReferences(merge).on)


def found(on: str, target: Columns = PEOPLE, source: Columns | None = None) -> PlainKeys | str:
    return keys_of(merge_of(UPSERT, on, target, source))


def test_keys_have_the_order_of_on() -> None:
    keys = found("s.name = t.name AND t.id = s.id", source={"id": LongType(), "x": LongType(), "name": StringType()})
    assert isinstance(keys, PlainKeys)
    assert (keys.target, keys.source) == (("name", "id"), (2, 0))
    assert [(key.given, key.wanted) for key in keys.keys] == [
        (StringType(), StringType()),
        (LongType(), LongType()),
    ]


def test_keys_of_other_names() -> None:
    keys = found("t.id = key", source={"key": LongType(), "n": IntegerType()})
    assert isinstance(keys, PlainKeys)
    assert (keys.target, keys.source) == (("id",), (0,))


def test_one_source_column_equals_two_keys() -> None:
    keys = found("t.a = s.a AND t.b = s.a", {"a": LongType(), "b": LongType()})
    assert isinstance(keys, PlainKeys)
    assert (keys.target, keys.source) == (("a", "b"), (0, 0))


ALL_TYPES: tuple[DataType, ...] = (
    *(ByteType(), ShortType(), IntegerType(), LongType(), StringType(), DateType()),
    *(BooleanType(), FloatType(), DoubleType(), BinaryType(), TimestampType(), TimestampNTZType()),
    *(DecimalType(10, 2), StructType([StructField("x", LongType())]), StringType("UTF8_LCASE")),
)


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.simpleString())
def test_types_of_keys(kind: DataType) -> None:
    keys, name = found("t.k = s.k", {"k": kind}), kind.simpleString()
    if name in PLAIN_KEY_TYPES:
        assert isinstance(keys, PlainKeys)
    else:
        assert keys == f"the key k is of type {name}, not an integer, string or date"


NESTED = StructType([StructField("x", LongType())])
CHAR = StructField("k", StringType(), True, {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})


@pytest.mark.parametrize(
    ("on", "target", "source", "reason"),
    [
        (
            "t.id > s.id",
            PEOPLE,
            PEOPLE,
            "ON equates no column of the target with one of the source",
        ),
        (
            "t.id = s.id OR t.n = s.n",
            PEOPLE,
            PEOPLE,
            "ON equates no column of the target with one of the source",
        ),
        ("id = id", PEOPLE, PEOPLE, "ON equates no column of the target with one of the source"),
        ("t.id + 1 = s.id", PEOPLE, PEOPLE, "ON equates no column of the target with one of the source"),
        (
            "CAST(t.n AS BIGINT) = s.id",
            PEOPLE,
            PEOPLE,
            "ON equates no column of the target with one of the source",
        ),
        ("t.id = s.id AND t.day > DATE'2024-01-01'", PEOPLE, PEOPLE, "ON has conditions besides equal keys"),
        ("t.id = s.id AND true", PEOPLE, PEOPLE, "ON has conditions besides equal keys"),
        ("t.id = s.id AND t.n <=> s.n", PEOPLE, PEOPLE, "ON compares a key by <=>"),
        ("t.id = s.id * 2", PEOPLE, PEOPLE, "ON compares id with an expression or a nested field"),
        ("t.id = abs(s.id)", PEOPLE, PEOPLE, "ON compares id with an expression or a nested field"),
        ("t.id = s.s.x", PEOPLE, {"s": NESTED}, "ON compares id with an expression or a nested field"),
        ("t.s.x = s.id", {"s": NESTED}, PEOPLE, "ON compares s with an expression or a nested field"),
        ("t.id = s.n", PEOPLE, PEOPLE, "the key id is bigint in the target and int in the source"),
        ("t.name = s.id", PEOPLE, PEOPLE, "the key name is string in the target and bigint in the source"),
        (
            "t.k = s.k",
            {"k": CHAR},
            {"k": StringType()},
            "the key k is of type string, not an integer, string or date",
        ),
        ("t.id = s.id AND t.id = s.other", PEOPLE, {"id": LongType(), "other": LongType()}, None),
    ],
)
def test_what_is_against_a_lookup(on: str, target: Columns, source: Columns, reason: str | None) -> None:
    assert found(on, target, source) == (reason or "ON equates a column of the target twice")


def test_names_of_several_columns_are_no_keys() -> None:
    reason = "ON equates no column of the target with one of the source"
    in_case_only: Columns = {"k": LongType(), "K": LongType()}
    merge = merge_of(UPSERT, "t.k = s.k", in_case_only, {"k": LongType()}, case_sensitive=True)
    assert keys_of(merge) == reason
    twice = StructType([StructField("k", LongType()), StructField("k", LongType())])
    merge = merge_of(UPSERT, "t.k = s.k", {"k": LongType()}, source_schema=twice)
    assert keys_of(merge) == reason
