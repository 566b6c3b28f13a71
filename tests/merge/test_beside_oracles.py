"""What random merges beside delta-spark and the model brought to light, each as a small merge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from deltamerge import DeltaTable, merge_sql
from deltamerge.exceptions import DeltaAnalysisException, InvariantViolationException
from deltamerge.write.schema_evolution import evolved_schema

from .tables import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA_TYPES = {
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "DOUBLE": DoubleType(),
    "DECIMAL(10,2)": DecimalType(10, 2),
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "BOOLEAN": BooleanType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampType(),
}


def test_constraints_beside_a_first_column_with_parts(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = DeltaTable.create(spark).location(path).addColumn("s", "STRUCT<a: INT>")
    made.addColumn("m", "MAP<STRING, INT>").addColumn("v", "INT", nullable=False).execute()
    merge = f"MERGE INTO delta.`{path}` AS t USING ({{}}) AS s ON t.v = s.v WHEN NOT MATCHED THEN INSERT *"
    merge_sql(spark, merge.format("SELECT named_struct('a', 1) AS s, map('k', 1) AS m, 1 AS v"))
    assert len(rows(DeltaTable.forPath(spark, path).toDF())) == 1
    with pytest.raises(InvariantViolationException):
        merge_sql(spark, merge.format("SELECT named_struct('a', 1) AS s, map('k', 1) AS m, CAST(NULL AS INT) AS v"))


def test_char_columns_of_other_writers_are_padded_as_they_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = DeltaTable.create(spark).location(path).addColumn("c", "CHAR(3)").addColumn("a", "ARRAY<CHAR(2)>")
    made.addColumn("v", "VARCHAR(3)").execute()
    # delta-spark writes them so, and delta-rs as well.
    write_deltalake(path, pa.table({"c": ["a"], "a": [["b", None]], "v": ["x"]}), mode="append")
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [("a  ", ["b ", None], "x")]
    report = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` AS t USING (SELECT 'a  ' AS c) AS s ON t.c = s.c "
        "WHEN MATCHED THEN UPDATE SET v = 'y'",
    )
    assert report.metrics["numTargetRowsUpdated"] == 1
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [("a  ", ["b ", None], "y")]


def test_a_missing_name_comes_before_a_type_that_does_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("v", "INT").execute()
    with pytest.raises(DeltaAnalysisException) as caught:
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` AS t USING (SELECT 1 AS id) AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET id = current_timestamp() WHEN NOT MATCHED THEN INSERT *",
        )
    assert caught.value.getCondition() == "DELTA_MERGE_UNRESOLVED_EXPRESSION"


def test_a_missing_name_comes_before_types_that_evolution_cannot_merge(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).addColumn("k", "INT").addColumn("v", "BINARY").execute()
    with pytest.raises(DeltaAnalysisException, match="DELTA_MERGE_UNRESOLVED_EXPRESSION"):
        merge_sql(
            spark,
            f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` AS t USING (SELECT 1 AS k, 2S AS v) AS s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET missing = NULL WHEN NOT MATCHED THEN INSERT *",
        )


@pytest.mark.parametrize(
    ("target", "source", "merges"),
    [
        ("INT", "STRING", True),
        ("STRING", "BINARY", True),
        ("TIMESTAMP", "DATE", True),
        ("BINARY", "STRING", True),
        ("DECIMAL(10,2)", "DOUBLE", True),
        ("INT", "BOOLEAN", False),
        ("BOOLEAN", "STRING", False),
        ("BIGINT", "BINARY", False),
        ("TIMESTAMP", "BIGINT", False),
        ("DATE", "INT", False),
        ("BINARY", "INT", False),
    ],
)
def test_types_of_one_column_that_evolution_merges(target: str, source: str, merges: bool) -> None:
    # As delta-spark answers for every pair of types.
    schemas = [StructType([StructField("v", DATA_TYPES[kind])]) for kind in (target, source)]
    if merges:
        assert evolved_schema(schemas[0], schemas[1], [("v",)], False) == schemas[0]
        return
    in_struct = [StructType([StructField("st", schema)]) for schema in schemas]
    for (target_schema, source_schema), column in ((schemas, "v"), (in_struct, "st")):
        with pytest.raises(DeltaAnalysisException) as caught:
            evolved_schema(target_schema, source_schema, [(column,)], False)
        assert (caught.value.getCondition(), caught.value.getSqlState()) == ("DELTA_FAILED_TO_MERGE_FIELDS", "22005")
        assert f"Failed to merge fields '{column}' and '{column}'" in str(caught.value)


def test_evolution_adds_no_column_that_differs_in_case_alone(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("v", "INT").execute()
    spark.conf.set("spark.sql.caseSensitive", "true")
    merge = f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` AS t USING (SELECT 1 AS id, 2 AS V) AS s ON t.id = s.id "
    with pytest.raises(DeltaAnalysisException) as caught:
        merge_sql(spark, merge + "WHEN MATCHED THEN UPDATE SET *")
    assert caught.value.getCondition() == "DELTA_MISSING_SET_COLUMN"
    merge_sql(spark, merge + "WHEN NOT MATCHED THEN INSERT *")
    assert DeltaTable.forPath(spark, path).toDF().columns == ["id", "v"]
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, None)]


@pytest.mark.parametrize("clauses", [1, 2])
def test_inserts_whose_conditions_are_never_true(spark: SparkSession, tmp_path: Path, clauses: int) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).addColumn("id", "INT").execute()
    insert = "WHEN NOT MATCHED AND (s.id = 1 AND false) THEN INSERT * "
    # Not a view of literals: those Spark evaluates while it plans.
    spark.range(3).selectExpr("CAST(id AS INT) AS id").createOrReplaceTempView("never_inserted")
    report = merge_sql(
        spark, f"MERGE INTO delta.`{path}` AS t USING never_inserted AS s ON t.id = s.id " + insert * clauses
    )
    assert report.version is None
    assert report.metrics["numSourceRows"] == 3
    assert [clause.rows for clause in report.clauses] == [0] * clauses
