"""Golden tables with columns that the table fills itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, merge_sql
from deltamerge.exceptions import DeltaAnalysisException, InvariantViolationException
from golden.tables import copied
from log.golden import require_golden_tables
from merge.tables import actions, latest_version, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_identity_counts_on_from_the_tables_mark(spark: SparkSession, tmp_path: Path) -> None:
    require_golden_tables()
    path = copied("rs/checkpoint-v2-table", tmp_path)
    before = {row[0] for row in rows(DeltaTable.forPath(spark, path).toDF())}
    source = f"(SELECT id AS old, 'new' AS name FROM delta.`{path}` UNION ALL SELECT -1, 'newer')"
    with pytest.raises(DeltaAnalysisException, match="IDENTITY_COLUMNS_EXPLICIT_INSERT"):
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING {source} s ON t.id = s.old "
            "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.old, s.name)",
        )
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING {source} s ON t.id = s.old WHEN MATCHED THEN UPDATE SET name = s.name "
        "WHEN NOT MATCHED THEN INSERT (name) VALUES (s.name)",
    )
    after = {row[0]: row[1] for row in rows(DeltaTable.forPath(spark, path).toDF().select("id", "name"))}
    (new,) = after.keys() - before
    assert new > 44
    assert after.pop(new) == "newer"
    assert after == dict.fromkeys(before, "new")
    (metadata,) = actions(path, latest_version(path), "metaData")
    assert f'"delta.identity.highWaterMark": {new}' in metadata["schemaString"]


def test_marks_without_the_feature_mean_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = copied("spark/identity_test_written_by_version_5", tmp_path)
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 1L AS id, 9 AS part, 'x' AS value, 5 AS n) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = 100 WHEN NOT MATCHED THEN INSERT (part) VALUES (s.part)",
    )
    assert not actions(path, latest_version(path), "metaData")
    merge_sql(
        spark,
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t USING (SELECT 'x' AS value, 5 AS n) s ON false "
        "WHEN NOT MATCHED THEN INSERT *",
    )
    (metadata,) = actions(path, latest_version(path), "metaData")
    assert '"delta.identity.highWaterMark": 4' in metadata["schemaString"]
    assert DeltaTable.forPath(spark, path).toDF().where("id IS NULL AND n = 5").count() == 1


def test_an_expression_of_the_time_holds_for_no_old_row(spark: SparkSession, tmp_path: Path) -> None:
    path = copied("dat/generated_columns", tmp_path)
    source = "(SELECT 'a' AS letter, 3L AS number UNION ALL SELECT 'zz', 4L)"
    with pytest.raises(InvariantViolationException, match="Generated Column"):
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING {source} s ON t.letter = s.letter "
            "WHEN MATCHED THEN UPDATE SET int = s.number",
        )
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING {source} s ON t.letter = s.letter "
        "WHEN NOT MATCHED THEN INSERT (letter, int) VALUES (s.letter, s.number)",
    )
    new = DeltaTable.forPath(spark, path).toDF().where("letter = 'zz' AND creation >= current_date() - 1")
    assert new.count() == 1
