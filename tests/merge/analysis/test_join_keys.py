"""Which keys Arrow looks up, and what in ON is against that."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
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

from deltamerge.merge.analysis.arrow_clauses import ArrowClauses
from deltamerge.merge.analysis.column_references import MergeReferences
from deltamerge.merge.analysis.join_keys import PLAIN_KEY_TYPES, NoPlainKeys, PlainKeys, plain_keys
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge

from ..planning.merges import PEOPLE, UPSERT, Columns, merge_of


def keys_of(merge: ResolvedMerge, types: Mapping[str, DataType] = MappingProxyType({})) -> PlainKeys | str:
    found = plain_keys(merge, MergeReferences(merge).on, types)
    return found.reason if isinstance(found, NoPlainKeys) else found


def found(on: str, target: Columns = PEOPLE, source: Columns | None = None) -> PlainKeys | str:
    return keys_of(merge_of(UPSERT, on, target, source))


def test_keys_have_the_order_of_on() -> None:
    keys = found("s.name = t.name AND t.id = s.id", source={"id": LongType(), "x": LongType(), "name": StringType()})
    assert isinstance(keys, PlainKeys)
    assert (keys.target, keys.source) == ((("name",), ("id",)), (2, 0))
    assert [(key.given, key.wanted) for key in keys.keys] == [
        (StringType(), StringType()),
        (LongType(), LongType()),
    ]


def test_keys_of_other_names() -> None:
    keys = found("t.id = key", source={"key": LongType(), "n": IntegerType()})
    assert isinstance(keys, PlainKeys)
    assert (keys.target, keys.source) == ((("id",),), (0,))


def test_keys_that_are_fields() -> None:
    nested = StructType([*NESTED.fields, StructField("y", StringType())])
    keys = found("t.k.x = s.id AND t.k.y = s.n", {"k": nested}, {"id": IntegerType(), "n": StringType()})
    assert isinstance(keys, PlainKeys)
    assert (keys.target, keys.source) == ((("k", "x"), ("k", "y")), (0, 1))
    assert keys.compared == (LongType(), StringType())


def test_one_source_column_equals_two_keys() -> None:
    keys = found("t.a = s.a AND t.b = s.a", {"a": LongType(), "b": LongType()})
    assert isinstance(keys, PlainKeys)
    assert (keys.target, keys.source) == ((("a",), ("b",)), (0, 0))


ALL_TYPES: tuple[DataType, ...] = (
    *(ByteType(), ShortType(), IntegerType(), LongType(), StringType(), DateType()),
    *(BooleanType(), FloatType(), DoubleType(), BinaryType(), TimestampType(), TimestampNTZType()),
    *(DecimalType(10, 2), StructType([StructField("x", LongType())]), StringType("UTF8_LCASE")),
)


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.simpleString())
def test_types_of_keys(kind: DataType) -> None:
    keys, name = found("t.k = s.k", {"k": kind}), kind.simpleString()
    if name in PLAIN_KEY_TYPES or isinstance(kind, DecimalType):
        assert isinstance(keys, PlainKeys)
        assert keys.compared == (kind,)
    else:
        assert keys == f"the key k is of type {name}, which Arrow does not compare as Spark does"


@pytest.mark.parametrize(
    ("target", "source", "compared"),
    [
        (IntegerType(), LongType(), LongType()),
        (LongType(), ByteType(), LongType()),
        (DecimalType(10, 2), DecimalType(6, 4), DecimalType(12, 4)),
        (DecimalType(38, 0), DecimalType(10, 2), None),
        (DecimalType(10, 0), LongType(), None),
        (DateType(), TimestampType(), None),
        (TimestampType(), TimestampNTZType(), None),
    ],
)
def test_keys_of_two_types(target: DataType, source: DataType, compared: DataType | None) -> None:
    keys = found("t.k = s.k", {"k": target}, {"k": source})
    if compared is None:
        names = target.simpleString(), source.simpleString()
        assert keys == f"the key k is {names[0]} in the target and {names[1]} in the source"
    else:
        assert isinstance(keys, PlainKeys)
        assert keys.compared == (compared,)


def test_keys_that_equal_nulls() -> None:
    keys = found("t.id = s.id AND t.n <=> s.n")
    assert isinstance(keys, PlainKeys)
    assert tuple(key.key.null_safe for key in keys.keys) == (False, True)


@pytest.mark.parametrize(
    ("on", "are_read"),
    [
        ("t.id = s.id", True),
        ("t.id = s.id AND t.day > DATE'2024-01-01' AND s.n IN (1, 2)", True),
        ("t.id = s.id AND NOT (t.n = 1 OR t.name IS NULL)", True),
        ("t.id = s.id AND t.n > s.n", False),
        ("t.id = s.id AND t.n + 1 > 5", False),
        ("t.id = s.id AND my_function(s.n)", False),
        ("t.id = s.id AND true", False),
    ],
)
def test_what_on_requires_of_one_side(on: str, are_read: bool) -> None:
    assert (ArrowClauses(MergeReferences(merge_of(UPSERT, on))).on_filters is not None) == are_read


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
        ("t.s.x = s.name", {"s": NESTED}, PEOPLE, "the key s.x is bigint in the target and string in the source"),
        (
            "t.s.x = s.id",
            {"s": StructType([StructField("x", LongType()), StructField("i", CalendarIntervalType())])},
            PEOPLE,
            "ON compares a field of s, which has fields without a type in Arrow",
        ),
        (
            "t.s.x = s.name",
            {
                "s": StructField(
                    "s",
                    StructType([StructField("x", StringType())]),
                    True,
                    {"__CHAR_VARCHAR_TYPE_STRING": "struct<x:char(5)>"},
                )
            },
            PEOPLE,
            "the key s.x is struct<x:char(5)>, which Spark may pad",
        ),
        ("t.name = s.id", PEOPLE, PEOPLE, "the key name is string in the target and bigint in the source"),
        (
            "t.k = s.k",
            {"k": CHAR},
            {"k": StringType()},
            "the key k is char(3), which Spark may pad",
        ),
        ("t.id = s.id AND t.id = s.other", PEOPLE, {"id": LongType(), "other": LongType()}, None),
    ],
)
def test_what_is_against_a_lookup(on: str, target: Columns, source: Columns, reason: str | None) -> None:
    assert found(on, target, source) == (reason or "ON equates a column of the target twice")


@pytest.mark.parametrize(
    ("on", "source", "types", "sources"),
    [
        ("t.id = s.id * 2", PEOPLE, {"s.id * 2": LongType()}, (None,)),
        ("abs(s.n) = t.id AND t.name = s.name", PEOPLE, {"abs(s.n)": IntegerType()}, (None, 2)),
        ("t.id = s.s.x", {"s": NESTED}, {}, (None,)),
        ("t.id = s.s.x AND s.n > 5", {"s": NESTED, "n": LongType()}, {}, (None,)),
    ],
)
def test_spark_computes_keys_of_the_source(
    on: str, source: Columns, types: Mapping[str, DataType], sources: tuple[int | None, ...]
) -> None:
    keys = keys_of(merge_of(UPSERT, on, source=source), types)
    assert isinstance(keys, PlainKeys)
    assert (keys.source, keys.are_computed) == (sources, True)


def test_a_key_that_on_guards_may_fail_to_be_computed() -> None:
    expression, types = "CAST(s.name AS BIGINT)", {"CAST(s.name AS BIGINT)": LongType()}
    guarded = merge_of(UPSERT, f"t.id = {expression} AND s.n > 5")
    reason = "ON compares id with an expression, which may fail for source rows that ON rules out"
    assert keys_of(guarded, types) == reason
    of_target = merge_of(UPSERT, f"t.id = {expression} AND t.n > 5")
    assert isinstance(keys_of(of_target, types), PlainKeys)
    assert (
        keys_of(of_target, {expression: StringType()}) == "the key id is bigint in the target and string in the source"
    )


def test_names_of_several_columns_are_no_keys() -> None:
    reason = "ON equates no column of the target with one of the source"
    in_case_only: Columns = {"k": LongType(), "K": LongType()}
    merge = merge_of(UPSERT, "t.k = s.k", in_case_only, {"k": LongType()}, case_sensitive=True)
    assert keys_of(merge) == reason
    twice = StructType([StructField("k", LongType()), StructField("k", LongType())])
    merge = merge_of(UPSERT, "t.k = s.k", {"k": LongType()}, source_schema=twice)
    assert keys_of(merge) == reason
