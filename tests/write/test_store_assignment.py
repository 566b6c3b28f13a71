"""Store assignment: values of one type in columns of another, as Spark and delta-spark store them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.write.store_assignment import first_lossy, legacy_cast
from merge.tables import rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

POLICY, ANSI = "spark.sql.storeAssignmentPolicy", "spark.sql.ansi.enabled"
INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
NUMBERS = (*INTEGERS, "FLOAT", "DOUBLE", "DECIMAL(3,0)", "DECIMAL(10,2)")

# By type, values at the edges of others, and what Spark casts the type to outside ANSI mode.
VALUES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "SMALLINT": (("-32768", "300", "0"), (*NUMBERS, "STRING", "BINARY", "BOOLEAN", "TIMESTAMP")),
    "INT": (("70000", "-2147483648", "200", "-1"), (*NUMBERS, "STRING", "BINARY", "BOOLEAN", "TIMESTAMP")),
    "BIGINT": (
        ("9223372036854775807", "-9223372036854775808L", "3000000000", "70000", "-1"),
        (*NUMBERS, "STRING", "BINARY", "BOOLEAN", "TIMESTAMP"),
    ),
    "FLOAT": (
        ("1e30", "-1e30", "'NaN'", "3.9", "-3.9", "70000.5", "'-Infinity'"),
        (*NUMBERS, "STRING", "BOOLEAN", "TIMESTAMP"),
    ),
    "DOUBLE": (
        ("1e30", "-1e300", "'NaN'", "'Infinity'", "3.9", "-3.9", "3000000000.7", "9.3e18"),
        (*NUMBERS, "STRING", "BOOLEAN", "TIMESTAMP"),
    ),
    "DECIMAL(38,0)": (
        ("9" * 38, "-" + "9" * 38, str(2**64), str(2**63), str(-(2**63) - 1), "3000000000", "7"),
        (*NUMBERS, "STRING", "BOOLEAN", "TIMESTAMP"),
    ),
    "DECIMAL(30,5)": (
        ("-" + "9" * 25 + ".99999", "300000000000000.99999", "-1.5", "1.5"),
        (*NUMBERS, "STRING", "BOOLEAN", "TIMESTAMP"),
    ),
    "DECIMAL(12,2)": (("-3000000000.99", "3000000000.99", "300", "-1.5"), (*NUMBERS, "STRING", "BOOLEAN")),
    "STRING": (
        (
            *(
                "'1.9'",
                "'-1.9'",
                "'.5'",
                "'.'",
                "'-.'",
                "'5.'",
                "'\\t7.2\\n'",
                "'3000000000.5'",
                "'1e2'",
                "'x'",
            ),
            *(
                "''",
                "'true'",
                "'2020-01-01'",
                "'1.5.5'",
                "'+5.1'",
                "' 12 '",
                "'1.5 5'",
                "'99999999999999999999.1'",
            ),
        ),
        (*NUMBERS, "BINARY", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
    ),
    "DECIMAL(20,10)": (("0", "0.0000001", "-0.000000123", "0.000001", "-0.00000099", "12.5"), ("STRING",)),
    "BOOLEAN": (("true", "false"), (*NUMBERS, "STRING", "TIMESTAMP")),
    "DATE": (("'2020-01-01'", "'1970-01-01'"), (*NUMBERS, "STRING", "BOOLEAN", "TIMESTAMP", "TIMESTAMP_NTZ")),
    "TIMESTAMP": (
        ("'2020-01-01 00:00:00.9'", "'1960-01-01 00:00:00.9'", "'9999-01-01'", "'1970-01-01'"),
        (*NUMBERS, "STRING", "BOOLEAN", "DATE", "TIMESTAMP_NTZ"),
    ),
    "TIMESTAMP_NTZ": (("'2020-01-01 00:00:00.9'", "'9999-01-01'"), ("STRING", "DATE", "TIMESTAMP")),
    "BINARY": (("'abc'",), ("STRING",)),
}


def edges(spark: SparkSession) -> DataFrame:
    """Gives a column of each type of VALUES, with its values."""
    height = max(len(values) for values, _ in VALUES.values())
    lines = [
        ", ".join(f"CAST({values[i] if i < len(values) else 'NULL'} AS {name})" for name, (values, _) in VALUES.items())
        for i in range(height)
    ]
    names = ", ".join(f"`{name}`" for name in VALUES)
    return spark.sql(f"SELECT * FROM VALUES {', '.join(f'({line})' for line in lines)} AS t({names})")


def shown(value: Column, data_type: DataType) -> Column:
    """Spells a value; Python has none for some timestamps."""
    return F.hex(value) if isinstance(data_type, BinaryType) else value.cast("string")


def test_legacy_casts_are_those_of_a_session_without_ansi(spark: SparkSession) -> None:
    frame = edges(spark)
    pairs = [(source, target) for source, (_, targets) in VALUES.items() for target in targets]
    types = {name: DataType.fromDDL(name) for name in {*VALUES, *(target for _, target in pairs)}}
    spark.conf.set(ANSI, "false")
    wanted = frame.select(
        *(shown(F.col(f"`{a}`").cast(types[b]), types[b]).alias(f"{a} to {b}") for a, b in pairs)
    ).collect()
    spark.conf.set(ANSI, "true")
    found = frame.select(
        *(shown(legacy_cast(F.col(f"`{a}`"), types[a], types[b]), types[b]).alias(f"{a} to {b}") for a, b in pairs)
    ).collect()
    different = {
        name: (row[name], ours[name])
        for row, ours in zip(wanted, found, strict=True)
        for name in row.asDict()
        if row[name] != ours[name]
    }
    assert different == {}


def stored(spark: SparkSession, path: Path, column: str, value: str) -> Any:
    """Gives what a merge stores of a value in a column of a type."""
    DeltaTable.create(spark).location(str(path)).addColumn("id", "INT").addColumn("x", column).execute()
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS id, {value} AS v) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, x) VALUES (s.id, s.v)",
    )
    ((found,),) = rows(DeltaTable.forPath(spark, str(path)).toDF().select("x"))
    return found


@pytest.mark.parametrize(
    ("ansi", "column", "value", "wrapped"),
    [
        ("true", "INT", "CAST('3000000000' AS DECIMAL(20,0))", -1294967296),
        ("false", "ARRAY<INT>", "array(3000000000L, NULL, 7L)", [-1294967296, None, 7]),
        ("true", "ARRAY<INT>", "array(3000000000L, NULL, 7L)", [-1294967296, None, 7]),
        ("false", "MAP<INT, ARRAY<TINYINT>>", "map(4294967297L, array(300))", {1: [44]}),
        ("true", "STRUCT<a: ARRAY<INT>>", "named_struct('a', array(3000000000L))", ([-1294967296],)),
    ],
)
def test_elements_are_stored_as_values_are(
    ansi: str, column: str, value: str, wrapped: Any, spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set(ANSI, ansi)
    with pytest.raises(PySparkException, match="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"):
        stored(spark, tmp_path / "ansi", column, value)
    spark.conf.set(POLICY, "LEGACY")
    assert stored(spark, tmp_path / "legacy", column, value) == wrapped


ACTIONS = {
    "set": "WHEN MATCHED THEN UPDATE SET x = s.x",
    "update star": "WHEN MATCHED THEN UPDATE SET *",
    "insert": "WHEN NOT MATCHED THEN INSERT (id, x) VALUES (s.id, s.x)",
    "insert star": "WHEN NOT MATCHED THEN INSERT *",
}


@pytest.mark.parametrize(("action", "ansi"), zip(ACTIONS, ["true", "false"] * 2, strict=True))
def test_structs_by_position_are_stored_by_the_policy_too(
    action: str, ansi: str, spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set("spark.databricks.delta.resolveMergeUpdateStructsByName.enabled", "false")
    spark.conf.set(ANSI, ansi)

    def merged(column: str, value: str) -> Any:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        made = DeltaTable.create(spark).location(str(path)).addColumn("id", "INT")
        made.addColumn("x", column).execute()
        write_delta(spark.sql("SELECT 1 AS id"), str(path), mode="append")
        key = 2 if action.startswith("insert") else 1
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING (SELECT {key} AS id, {value} AS x) s ON t.id = s.id " + ACTIONS[action],
        )
        (found,) = DeltaTable.forPath(spark, str(path)).toDF().where(f"id = {key}").collect()
        return found.x

    struct = "STRUCT<a: INT, b: INT>"
    assert merged(struct, "named_struct('b', 1, 'a', 2L)") == (1, 2)
    assert merged(f"ARRAY<{struct}>", "array(named_struct('y', 1, 'z', 2), NULL)") == [(1, 2), None]
    with pytest.raises(PySparkException, match="DATATYPE_MISMATCH"):
        merged(struct, "named_struct('a', 1)")
    for column, value in (("INT", "3000000000L"), (struct, "named_struct('y', 1, 'z', 3000000000L)")):
        with pytest.raises(PySparkException, match="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"):
            merged(column, value)
    spark.conf.set(POLICY, "STRICT")
    with pytest.raises(PySparkException, match="CANNOT_UP_CAST_DATATYPE"):
        merged("INT", "3L")
    spark.conf.set(POLICY, "LEGACY")
    assert merged("INT", "3000000000L") == -1294967296
    assert merged(struct, "named_struct('y', 3000000000L, 'z', NULL)") == (-1294967296, None)


@pytest.mark.parametrize(
    ("column", "value", "condition"),
    [
        ("BINARY", "CAST(1 AS SMALLINT)", "CAST_WITH_CONF_SUGGESTION"),
        ("INT", "DATE'2020-01-01'", "CAST_WITH_FUNC_SUGGESTION"),
        (
            "STRUCT<a: INT, b: INT>",
            "named_struct('a', 1, 'b', DATE'2020-01-01')",
            "CAST_WITH_FUNC_SUGGESTION",
        ),
        ("INT", "array(1)", "CAST_WITHOUT_SUGGESTION"),
    ],
)
def test_a_cast_that_ansi_refuses(column: str, value: str, condition: str, spark: SparkSession, tmp_path: Path) -> None:
    for ansi in ("true", "false"):
        spark.conf.set(ANSI, ansi)
        with pytest.raises(PySparkException) as caught:
            stored(spark, tmp_path / ansi, column, value)
        assert caught.value.getCondition() == f"DATATYPE_MISMATCH.{condition}"
    assert spark.conf.get(ANSI) == "false"


def test_a_malformed_text_is_no_overflow(spark: SparkSession, tmp_path: Path) -> None:
    for ansi in ("true", "false"):
        spark.conf.set(ANSI, ansi)
        with pytest.raises(PySparkException) as caught:
            stored(spark, tmp_path / ansi, "SMALLINT", "'b'")
        assert (caught.value.getCondition(), caught.value.getSqlState()) == ("CAST_INVALID_INPUT", "22018")


def test_a_struct_with_a_field_that_evolution_does_not_add(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).addColumn("s", "STRUCT<a: STRUCT<x: INT>>").execute()
    source = "SELECT named_struct('n', named_struct('a', 1L, 'c', 2)) AS more"
    with pytest.raises(PySparkException) as caught:
        merge_sql(
            spark,
            f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t USING ({source}) u ON false "
            "WHEN NOT MATCHED THEN INSERT (s) VALUES (u.more.n)",
        )
    assert caught.value.getCondition() == "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION"


def test_an_overflow_in_the_users_own_cast_is_what_spark_says(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS id, 1L AS v, CAST('NaN' AS DOUBLE) AS x"), path)
    text = f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = "
    for value, condition in (
        ("CAST(t.x AS BIGINT)", "CAST_OVERFLOW"),
        ("t.x", "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"),
    ):
        with pytest.raises(PySparkException) as caught:
            merge_sql(spark, text + value)
        assert (caught.value.getCondition(), caught.value.getSqlState()) == (condition, "22003")


# By type, the others that Spark's Cast.canUpCast takes it to.
UP_CASTS = {
    "TINYINT": "SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL(3,0) DECIMAL(9,0) DECIMAL(10,0) DECIMAL(10,2) DECIMAL(20,0) "
    "DECIMAL(38,0) STRING",
    "SMALLINT": "INT BIGINT FLOAT DOUBLE DECIMAL(9,0) DECIMAL(10,0) DECIMAL(10,2) DECIMAL(20,0) DECIMAL(38,0) STRING",
    "INT": "BIGINT FLOAT DOUBLE DECIMAL(10,0) DECIMAL(20,0) DECIMAL(38,0) STRING",
    "BIGINT": "FLOAT DOUBLE DECIMAL(20,0) DECIMAL(38,0) STRING TIMESTAMP",
    "FLOAT": "DOUBLE STRING",
    "DOUBLE": "STRING",
    "DECIMAL(2,0)": "TINYINT SMALLINT INT BIGINT DECIMAL(3,0) DECIMAL(9,0) DECIMAL(10,0) DECIMAL(10,2) DECIMAL(20,0) "
    "DECIMAL(38,0) STRING",
    "DECIMAL(3,0)": "SMALLINT INT BIGINT DECIMAL(9,0) DECIMAL(10,0) DECIMAL(10,2) DECIMAL(20,0) DECIMAL(38,0) STRING",
    "DECIMAL(9,0)": "INT BIGINT DECIMAL(10,0) DECIMAL(20,0) DECIMAL(38,0) STRING",
    "DECIMAL(10,0)": "BIGINT DECIMAL(20,0) DECIMAL(38,0) STRING",
    "DECIMAL(10,2)": "STRING",
    "DECIMAL(20,0)": "DECIMAL(38,0) STRING",
    "DECIMAL(38,0)": "STRING",
    "STRING": "",
    "BINARY": "STRING",
    "BOOLEAN": "STRING",
    "DATE": "STRING TIMESTAMP TIMESTAMP_NTZ",
    "TIMESTAMP": "BIGINT STRING TIMESTAMP_NTZ",
    "TIMESTAMP_NTZ": "STRING TIMESTAMP",
    "VARIANT": "",
    "ARRAY<INT>": "ARRAY<BIGINT>",
    "ARRAY<BIGINT>": "",
    "MAP<STRING,INT>": "",
    "STRUCT<a:INT>": "STRUCT<a:BIGINT>",
    "STRUCT<a:BIGINT>": "",
}


@pytest.mark.quick
def test_strict_takes_the_casts_that_spark_calls_up_casts(spark: SparkSession) -> None:
    types = {name: DataType.fromDDL(name) for name in UP_CASTS}
    if hasattr(spark, "_jvm"):
        jvm: Any = spark._jvm
        cast = getattr(jvm, "org.apache.spark.sql.catalyst.expressions.Cast$").__getattr__("MODULE$")
        java = {name: jvm.org.apache.spark.sql.types.DataType.fromDDL(name) for name in UP_CASTS}
        assert {a: {b for b in UP_CASTS if a != b and cast.canUpCast(java[a], java[b])} for a in UP_CASTS} == {
            a: set(taken.split()) for a, taken in UP_CASTS.items()
        }
    for by_name in (True, False):
        found = {
            a: {b for b in types if a != b and first_lossy(types[a], types[b], structs_by_name=by_name) is None}
            for a in types
        }
        assert found == {a: set(taken.split()) for a, taken in UP_CASTS.items()}


def test_strict_stores_what_it_takes(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(POLICY, "STRICT")
    assert stored(spark, tmp_path / "t", "BIGINT", "CAST('7' AS DECIMAL(19,0))") == 7
    with pytest.raises(PySparkException, match="CANNOT_UP_CAST_DATATYPE"):
        stored(spark, tmp_path / "v", "STRING", "parse_json('1')")


def types_of(cast: tuple[str, str], by_name: bool = True) -> tuple[str, tuple[str, str]] | None:
    source, target = map(DataType.fromDDL, cast)
    lossy = first_lossy(source, target, structs_by_name=by_name)
    return None if lossy is None else (".".join(lossy.path), lossy.types)


@pytest.mark.quick
def test_what_a_cast_loses_is_named_with_its_path(spark: SparkSession) -> None:
    deep = "STRUCT<u: INT, v: STRUCT<q: {}>>"
    assert types_of((deep.format("BIGINT"), deep.format("INT"))) == ("v.q", ("BIGINT", "INT"))
    of_map = "MAP<STRING, {}>"
    assert types_of((of_map.format("BIGINT"), of_map.format("INT"))) == (
        "",
        ("MAP<STRING, BIGINT>", "MAP<STRING, INT>"),
    )
    nested = "STRUCT<m: MAP<STRING, ARRAY<{}>>>"
    assert types_of((nested.format("DECIMAL(10,2)"), nested.format("DECIMAL(5,2)"))) == (
        "m",
        ("MAP<STRING, ARRAY<DECIMAL(10,2)>>", "MAP<STRING, ARRAY<DECIMAL(5,2)>>"),
    )
    structs = "MAP<STRING, STRUCT<q: {}>>"
    assert types_of((structs.format("STRING"), structs.format("INT"))) == ("value.q", ("STRING", "INT"))
    assert types_of(("STRUCT<a: BIGINT, b: INT>", "STRUCT<b: BIGINT, a: INT>")) == ("a", ("BIGINT", "INT"))
    assert types_of(("STRUCT<a: INT, b: BIGINT>", "STRUCT<b: BIGINT, a: INT>"), by_name=False) == (
        "a",
        ("BIGINT", "INT"),
    )


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(
    ("column", "value", "types"),
    [
        ("MAP<STRING, INT>", "map('k', 3000000000L)", ("MAP<STRING, BIGINT>", "MAP<STRING, INT>")),
        ("STRUCT<m: ARRAY<INT>>", "named_struct('m', array(3000000000L))", ("ARRAY<BIGINT>", "ARRAY<INT>")),
        ("MAP<STRING, STRUCT<q: INT>>", "map('k', named_struct('q', 3000000000L))", ("BIGINT", "INT")),
    ],
)
def test_an_overflow_in_a_map_names_both_types(
    ansi: str, column: str, value: str, types: tuple[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set(ANSI, ansi)
    with pytest.raises(DeltaRuntimeException) as raised:
        stored(spark, tmp_path / "t", column, value)
    parameters = raised.value.getMessageParameters() or {}
    assert (parameters["sourceType"], parameters["targetType"]) == tuple(f'"{name}"' for name in types)
    assert parameters["columnName"] == "`x`"


def test_casts_that_follow_the_ansi_flag(spark: SparkSession, tmp_path: Path) -> None:
    """Delta: spark.databricks.delta.updateAndMergeCastingFollowsAnsiEnabledFlag."""
    spark.conf.set("spark.databricks.delta.updateAndMergeCastingFollowsAnsiEnabledFlag", "true")
    for number, policy in enumerate(("ANSI", "LEGACY", "STRICT")):
        spark.conf.set(POLICY, policy)
        spark.conf.set(ANSI, "false")
        assert stored(spark, tmp_path / f"{number}", "INT", "3000000000L") == -1294967296
        spark.conf.set(ANSI, "true")
        assert stored(spark, tmp_path / f"{number}ok", "INT", "3L") == 3
        with pytest.raises(PySparkException, match="OVERFLOW"):
            stored(spark, tmp_path / f"{number}not", "INT", "3000000000L")


def test_strict_names_the_nested_field(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(POLICY, "STRICT")
    with pytest.raises(PySparkException, match=r'`x\.v\.q` from "BIGINT" to "INT"'):
        stored(spark, tmp_path / "t", "STRUCT<v: STRUCT<q: INT>>", "named_struct('v', named_struct('q', 3L))")
