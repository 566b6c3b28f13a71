"""Types with CHAR and VARCHAR, read without a session."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from deltamerge.exceptions import DeltaLogCorruptException
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark.limited_types import length_limit, limited_type

ANY = NullType()


def column(ddl: str) -> StructField:
    return StructField("c", StringType(), True, {CHAR_VARCHAR_TYPE: ddl})


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("char(3)", CharType(3)),
        ("VARCHAR( 12 )", VarcharType(12)),
        ("array<varchar(5)>", ArrayType(VarcharType(5))),
        ("map<char(2), array<char(3)>>", MapType(CharType(2), ArrayType(CharType(3)))),
        (
            "struct<a:decimal(10,2),`b``<,:>`:char(1),c d:array<struct<e:varchar(2)>>,f:interval day to second>",
            StructType(
                [
                    StructField("a", ANY),
                    StructField("b`<,:>", CharType(1)),
                    StructField("c d", ArrayType(StructType([StructField("e", VarcharType(2))]))),
                    StructField("f", ANY),
                ]
            ),
        ),
        ("map<struct<>,char(1)>", MapType(StructType([]), CharType(1))),
    ],
)
def test_types(ddl: str, expected: DataType) -> None:
    assert limited_type(column(ddl)) == expected


def test_lengths() -> None:
    assert [length_limit(column(ddl)) for ddl in ("char(3)", "varchar(4)", "array<char(5)>")] == [3, 4, None]
    plain = StructField("c", StringType())
    assert limited_type(plain) is None
    assert length_limit(plain) is None


@pytest.mark.parametrize(
    "ddl", ["", "array<char(1)", "array<char(1),int>", "map<char(1)>", "struct<a>", "char(1)>", "array<" * 5000]
)
def test_damaged_metadata(ddl: str) -> None:
    with pytest.raises(DeltaLogCorruptException, match="column c"):
        limited_type(column(ddl))
