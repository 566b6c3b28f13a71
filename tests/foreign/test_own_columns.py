"""Tables of delta-spark with columns that the table fills itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, merge_sql
from deltamerge.exceptions import DeltaAnalysisException, InvariantViolationException
from merge.tables import actions, latest_version, rows

from .tables import OWN, copied

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_identity_counts_on_from_the_tables_mark(spark: SparkSession, tmp_path: Path) -> None:
    path = copied("identity-columns", tmp_path, OWN)
    before = {row[0] for row in rows(DeltaTable.forPath(spark, path).toDF().select("i"))}
    source = f"(SELECT i AS old, 'new' AS v FROM delta.`{path}` UNION ALL SELECT -1, 'newer')"
    with pytest.raises(DeltaAnalysisException, match="IDENTITY_COLUMNS_EXPLICIT_INSERT"):
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING {source} s ON t.i = s.old "
            "WHEN NOT MATCHED THEN INSERT (i, v) VALUES (s.old, s.v)",
        )
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING {source} s ON t.i = s.old WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)",
    )
    after = {row[0]: row[1] for row in rows(DeltaTable.forPath(spark, path).toDF().select("i", "v"))}
    (new,) = after.keys() - before
    assert new > max(before)
    assert (new - 5) % 3 == 0
    assert after.pop(new) == "newer"
    assert after == dict.fromkeys(before, "new")
    (metadata,) = actions(path, latest_version(path), "metaData")
    assert f'"delta.identity.highWaterMark": {new}' in metadata["schemaString"]


def test_marks_without_the_feature_mean_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = copied("identity-without-its-feature", tmp_path, OWN)
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
    path = copied("generated-by-the-time", tmp_path, OWN)
    source = "(SELECT 'a' AS letter, 3L AS number UNION ALL SELECT 'zz', 4L)"
    # Rows that are copied as they are are not checked again.
    spark.conf.set("spark.deltamerge.merge.executor", "classic")
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
