"""Column types: those that Delta has not, and CHAR and VARCHAR at any depth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import CalendarIntervalType, DataType, StringType, TimeType

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.errors import DeltaAnalysisException

from .tables import files_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNSUPPORTED = "DELTA_UNSUPPORTED_DATA_TYPES"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("data_type", "said"),
    [
        ("INTERVAL DAY TO SECOND", "[x: INTERVAL DAY TO SECOND]"),
        ("INTERVAL YEAR TO MONTH", "[x: INTERVAL YEAR TO MONTH]"),
        (CalendarIntervalType(), "[x: INTERVAL]"),
        (TimeType(), "[x: TIME(6)]"),
        (StringType("UTF8_LCASE"), "[x: STRING COLLATE UTF8_LCASE]"),
        ("STRUCT<a: ARRAY<INTERVAL YEAR>>", "[x.a[]: INTERVAL YEAR]"),
        (
            "MAP<STRING COLLATE UTF8_LCASE, INTERVAL DAY>",
            "[x[key]: STRING COLLATE UTF8_LCASE, x[value]: INTERVAL DAY]",
        ),
    ],
    ids=str,
)
def test_a_table_is_not_made_with_a_type_that_delta_has_not(
    data_type: str | DataType, said: str, spark: SparkSession, tmp_path: Path
) -> None:
    made = DeltaTable.create(spark).location(str(tmp_path / "t")).addColumn("id", "INT")
    with pytest.raises(DeltaAnalysisException) as raised:
        made.addColumn("x", data_type).execute()
    assert (raised.value.getCondition(), raised.value.getSqlState()) == (UNSUPPORTED, "0AKDC")
    assert raised.value.getMessageParameters()["dataTypeList"] == said
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "value", ["INTERVAL '1' MONTH", "array(INTERVAL '1' DAY)", "named_struct('a', 'a' COLLATE UTF8_LCASE)"]
)
def test_a_type_that_delta_has_not_comes_in_by_no_frame(
    value: str, spark: SparkSession, tmp_path: Path
) -> None:
    path, frame = str(tmp_path / "t"), spark.sql(f"SELECT 1 AS id, {value} AS x")
    with pytest.raises(DeltaAnalysisException, match=UNSUPPORTED):
        write_delta(frame, path)
    assert not (tmp_path / "t").exists()
    write_delta(spark.sql("SELECT 1 AS id"), path)
    before = files_below(path)
    with pytest.raises(DeltaAnalysisException, match=UNSUPPORTED):
        write_delta(frame, path, mode="overwrite", overwrite_schema=True)
    evolving = f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t USING (SELECT 1 AS id, {value} AS x) s"
    with pytest.raises(DeltaAnalysisException, match=UNSUPPORTED):
        merge_sql(spark, f"{evolving} ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")
    assert files_below(path) == before
