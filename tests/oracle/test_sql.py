"""The same statements by delta-spark and by ``deltamerge.sql``: what both commit, return and refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltamerge
from corpus.canonical import canonical_lines
from deltamerge import DeltaTable
from deltamerge.exceptions import DeltaError
from merge.tables import commit_info, latest_version

from .client import LineProcess, RequestFailed
from .turns import asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oracle

TABLE = "CREATE TABLE @t (id BIGINT, v INT, s STRUCT<a: INT>, p STRING) USING delta PARTITIONED BY (p)"
ROWS = (
    "INSERT INTO @t SELECT /*+ COALESCE(1) */ * FROM VALUES "
    "(1, 10, named_struct('a', 1), 'x'), (2, 20, NULL, 'y'), (3, NULL, NULL, 'x')"
)
MAPPED = "ALTER TABLE @t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
STATEMENTS = {
    "properties": (
        "ALTER TABLE @t SET TBLPROPERTIES ('a' = 'b', 'comment' = 'c')",
        "ALTER TABLE @t UNSET TBLPROPERTIES ('a')",
        "ALTER TABLE @t UNSET TBLPROPERTIES ('a')",
        "ALTER TABLE @t UNSET TBLPROPERTIES IF EXISTS ('a')",
        "ALTER TABLE @t SET TBLPROPERTIES ('delta.constraints.c' = 'id > 0')",
        "ALTER TABLE @t SET TBLPROPERTIES ('delta.enablechangedatafeed' = 'true', 'DELTA.AppendOnly' = 'false')",
        "ALTER TABLE @t SET TBLPROPERTIES ('delta.enableChangeDataFeeed' = 'true')",
        "ALTER TABLE @t UNSET TBLPROPERTIES ('delta.appendonly')",
    ),
    "constraints": (
        "ALTER TABLE @t ADD CONSTRAINT c CHECK (id > 0)",
        "ALTER TABLE @t ADD CONSTRAINT c CHECK (id > 0)",
        "ALTER TABLE @t ADD CONSTRAINT d CHECK (v > 0)",
        "ALTER TABLE @t ADD CONSTRAINT d CHECK (v + 1)",
        "INSERT INTO @t VALUES (-1, 1, NULL, 'x')",
        "ALTER TABLE @t DROP CONSTRAINT c",
        "ALTER TABLE @t DROP CONSTRAINT c",
        "ALTER TABLE @t DROP CONSTRAINT IF EXISTS c",
    ),
    "added columns": (
        "ALTER TABLE @t ADD COLUMNS (n STRING COMMENT 'new', m DATE AFTER id)",
        "ALTER TABLE @t ADD COLUMNS (s.b INT FIRST)",
        "ALTER TABLE @t ADD COLUMNS (x INT NOT NULL)",
        "ALTER TABLE @t DROP COLUMN n",
        "ALTER TABLE @t RENAME COLUMN v TO w",
    ),
    "mapped columns": (
        MAPPED,
        "ALTER TABLE @t DROP COLUMNS (v)",
        "ALTER TABLE @t DROP COLUMN p",
        "ALTER TABLE @t RENAME COLUMN s.a TO b",
        "ALTER TABLE @t RENAME COLUMN p TO q",
        "ALTER TABLE @t ADD COLUMN v STRING",
        "INSERT INTO @t (id, q, v) VALUES (7, 'z', 'w')",
    ),
    "changed columns": (
        "ALTER TABLE @t ALTER COLUMN v COMMENT 'c'",
        "ALTER TABLE @t ALTER COLUMN v FIRST",
        "ALTER TABLE @t ALTER COLUMN v AFTER id",
        "ALTER TABLE @t ALTER COLUMN v TYPE BIGINT",
        "ALTER TABLE @t SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "ALTER TABLE @t ALTER COLUMN v TYPE BIGINT",
        "ALTER TABLE @t ALTER COLUMN v SET DEFAULT 3",
        "ALTER TABLE @t SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "ALTER TABLE @t ALTER COLUMN v SET DEFAULT 3",
        "INSERT INTO @t (id, p) VALUES (8, 'x')",
        "ALTER TABLE @t ALTER COLUMN v DROP DEFAULT",
    ),
    "limits of lengths": (
        "ALTER TABLE @t ADD COLUMNS (w VARCHAR(2), c CHAR(2))",
        "ALTER TABLE @t ALTER COLUMN w TYPE VARCHAR(3)",
        "ALTER TABLE @t ALTER COLUMN w TYPE VARCHAR(2)",
        "ALTER TABLE @t ALTER COLUMN w TYPE CHAR(3)",
        "ALTER TABLE @t ALTER COLUMN c TYPE CHAR(3)",
        "INSERT INTO @t (id, p, w, c) VALUES (1, 'x', 'abc', 'a')",
        "INSERT INTO @t (id, p, w, c) VALUES (1, 'x', 'abcd', 'a')",
        "ALTER TABLE @t ALTER COLUMN w TYPE STRING",
        "ALTER TABLE @t ADD COLUMN g INT GENERATED ALWAYS AS (id + 1)",
        MAPPED,
        "ALTER TABLE @t RENAME COLUMN v TO a.b",
    ),
    "other tables in a table's place": (
        "REPLACE TABLE @t USING delta CLUSTER BY (id) COMMENT 'c' TBLPROPERTIES ('a' = 'b') AS SELECT 1L AS id, 'x' p",
        "CREATE OR REPLACE TABLE @t USING delta PARTITIONED BY (p) AS SELECT 1L AS id, 'x' AS p",
        "CREATE OR REPLACE TABLE @t USING delta AS SELECT 1L AS id, 'x' AS p",
        "WITH c AS (SELECT 2L AS id) INSERT INTO @t SELECT id, 'd' FROM c",
        "TRUNCATE TABLE @t",
        "TRUNCATE TABLE @t",
    ),
    "overwritten partitions": (
        "SET spark.sql.sources.partitionOverwriteMode = dynamic",
        "INSERT OVERWRITE @t PARTITION (p = 'x') SELECT 9L, 9, NULL",
        "INSERT OVERWRITE @t PARTITION (p = 'x') SELECT 9L, 9, NULL WHERE false",
        "INSERT OVERWRITE @t SELECT 9L, 9, NULL, 'y'",
        "SET spark.sql.sources.partitionOverwriteMode = static",
    ),
    "changed rows": (
        "UPDATE @t SET v = v + 1 WHERE id < 3",
        "DELETE FROM @t WHERE p = 'y'",
        "INSERT OVERWRITE @t SELECT 9L, 9, NULL, 'x'",
        "RESTORE TABLE @t TO VERSION AS OF 1",
    ),
}
UNLIKE = ("executionTimeMs", "scanTimeMs", "rewriteTimeMs", "numOutputBytes", "numAddedBytes", "numRemovedBytes",
          "tableSizeAfterRestore", "removedFilesSize", "restoredFilesSize", "isManaged")  # fmt: skip


def committed(path: str) -> dict[str, Any]:
    info = commit_info(path, latest_version(path))
    info["operationMetrics"] = {k: v for k, v in (info.get("operationMetrics") or {}).items() if k not in UNLIKE}
    if info["operation"] == "WRITE":
        # An append records the partition columns that it names; how many files tasks make is Spark's.
        for name in ("numFiles", "numRemovedFiles"):
            info["operationMetrics"].pop(name, None)
        info["operationParameters"].pop("partitionBy", None)
    if info["operation"] in ("UPDATE", "DELETE"):
        # delta-spark's has the numbers that Spark gives to columns; test_delete_update.py compares the files' metrics.
        info["operationParameters"].pop("predicate", None)
        info["operationMetrics"] = {k: v for k, v in info["operationMetrics"].items() if k.endswith("Rows")}
    info["operationParameters"] = {
        key: json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
        for key, value in info["operationParameters"].items()
    }
    names = ("operation", "operationParameters", "operationMetrics", "isolationLevel", "isBlindAppend", "readVersion")
    return {name: info.get(name) for name in names}


def ours(spark: SparkSession, statement: str) -> str | None:
    try:
        deltamerge.sql(spark, statement).collect()
    except DeltaError as error:
        return error.error_class
    return None


def refused(oracle: LineProcess, statement: str) -> str | None:
    """Has delta-spark run a statement; gives the class of its error."""
    try:
        asked(oracle, statement)
    except RequestFailed as error:
        found = re.search(r"\[([A-Z][A-Z_0-9.]+)\]", str(error))
        return str(error) if found is None else found[1]
    return None


@pytest.mark.parametrize("topic", STATEMENTS)
def test_statements_beside_delta_spark(topic: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    places = {"ours": str(tmp_path / "ours"), "theirs": str(tmp_path / "theirs")}
    for statement in (TABLE, ROWS, *STATEMENTS[topic]):
        mine = ours(spark, statement.replace("@t", f"delta.`{places['ours']}`"))
        theirs = refused(oracle, statement.replace("@t", f"delta.`{places['theirs']}`"))
        assert mine == theirs, statement
        if mine is None and statement != TABLE:
            assert committed(places["ours"]) == committed(places["theirs"]), statement
    lines = {name: oracle.ask("lines", path=path) for name, path in places.items()}
    assert lines["ours"] == lines["theirs"]
    assert canonical_lines(DeltaTable.forPath(spark, places["theirs"]).toDF()) == lines["theirs"]
    described = [DeltaTable.forPath(spark, path).toDF().schema.simpleString() for path in places.values()]
    assert described[0] == described[1]
