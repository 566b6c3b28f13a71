"""Statements of delta-spark's SQL, run on real tables; what they leave is read by delta-rs, too."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyspark
import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import deltamerge
from deltamerge import DeltaTable
from deltamerge.api.save_frame import Save, save_as_table
from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaParseException,
    DeltaRuntimeException,
    DeltaTableException,
    DeltaTableNotFoundException,
    InvariantViolationException,
)
from deltamerge.log.snapshot import load_snapshot
from deltamerge.spark.session import is_connect
from deltamerge.storage.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

Run: TypeAlias = Callable[..., list[tuple[Any, ...]]]

pytestmark = pytest.mark.sessions


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """Runs a statement, in which @t is a table by its path, and returns its rows."""

    def of(text: str, args: Any = None) -> list[tuple[Any, ...]]:
        found: list[Row] = deltamerge.sql(spark, text.replace("@t", f"delta.`{tmp_path}/t`"), args).collect()
        return [tuple(row) for row in found]

    return of


def last_commit(spark: SparkSession, tmp_path: Path) -> tuple[str, dict[str, str]]:
    row = DeltaTable.forPath(spark, str(tmp_path / "t")).history(1).collect()[0]
    return row["operation"], row["operationParameters"]


@pytest.mark.quick
def test_rows_are_inserted_changed_and_read(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    run("CREATE TABLE @t (id BIGINT NOT NULL, v INT DEFAULT 7, g BIGINT GENERATED ALWAYS AS (id * 2)) USING delta")
    assert run("INSERT INTO @t (id, v) VALUES (1, 10), (2, DEFAULT)") == []
    run("INSERT INTO @t BY NAME SELECT 3L AS id")
    assert run("UPDATE @t AS x SET x.v = x.v + 1 WHERE x.id = :id", {"id": 1}) == [(1,)]
    assert run("DELETE FROM @t WHERE id = ?", [3]) == [(1,)]
    merge = (
        "MERGE INTO @t AS t USING (SELECT 2L AS id, 0 AS v UNION ALL SELECT 4L, 4) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
    )
    assert "Plan" in run(f"EXPLAIN {merge}")[0][0]
    assert run(merge) == [(2, 1, 0, 1)]
    expected = [(1, 11, 2), (2, 0, 4), (4, 4, 8)]
    assert run("SELECT * FROM @t ORDER BY id") == expected
    assert run("SELECT t.id, o.v FROM @t t JOIN @t VERSION AS OF 1 AS o ON t.id = o.id WHERE o.v > :v", {"v": 8}) == [
        (1, 10)
    ]
    assert run("SELECT v FROM @t VERSION AS OF :at WHERE id = :id", {"at": 1, "id": 1}) == [(10,)]
    assert run("SELECT v FROM @t VERSION AS OF ? WHERE id = ?", [1, 1]) == [(10,)]
    if not DeltaRs(str(tmp_path / "t")).protocol().reader_features:
        found = DeltaRs(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
        assert sorted(tuple(row.values()) for row in found) == expected


def test_a_query_without_delta_tables_is_sparks(run: Run) -> None:
    assert run("SELECT '{a}' AS x, :v AS v", {"v": 1}) == [("{a}", 1)]
    assert run("VALUES (1), (2)") == [(1,), (2,)]
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        run("SELEKT 1")
    with pytest.raises(DeltaParseException, match="expected SET"):
        run("UPDATE @t a = 1")


def test_names_are_tables_in_the_warehouse(spark: SparkSession, run: Run) -> None:
    run("CREATE OR REPLACE TABLE sql_names USING delta PARTITIONED BY (p) AS SELECT id, id % 2 AS p FROM range(10)")
    try:
        with pytest.raises(DeltaAnalysisException, match="already exists"):
            run("CREATE TABLE sql_names USING delta AS SELECT 1 AS a")
        run("CREATE TABLE IF NOT EXISTS sql_names USING delta AS SELECT 1 AS a")
        run("CREATE OR REPLACE TEMPORARY VIEW sql_view AS SELECT p, count(*) AS n FROM sql_names GROUP BY p")
        assert sorted(run("SELECT * FROM sql_view")) == [(0, 5), (1, 5)]
        assert run("SELECT max(Sql_Names.id) FROM sql_names") == [(9,)]
        described = run("DESCRIBE EXTENDED sql_names")
        assert described[:2] == [("id", "bigint", None), ("p", "bigint", None)]
        assert ("# Partition Information", "", "") in described
        assert ("Provider", "delta", "") in described
        assert ("delta.minReaderVersion", "1") in run("SHOW TBLPROPERTIES sql_names")
        run("INSERT OVERWRITE TABLE sql_names SELECT 1L, 1L")
        assert run("SELECT * FROM sql_names") == [(1, 1)]
        history = run("DESCRIBE HISTORY sql_names")
        assert [row[4] for row in history] == ["WRITE", "CREATE OR REPLACE TABLE AS SELECT"]
        run("CREATE TABLE sql_clone SHALLOW CLONE sql_names VERSION AS OF 0")
        assert run("SELECT count(*) FROM sql_clone") == [(10,)]
    finally:
        run("DROP TABLE IF EXISTS sql_names")
        run("DROP TABLE IF EXISTS sql_clone")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        run("SELECT * FROM sql_names")


def test_maintenance(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    run("CREATE TABLE @t TBLPROPERTIES (delta.enableDeletionVectors = true) AS SELECT id, id % 2 AS p FROM range(20)")
    run("INSERT INTO @t SELECT 100L, 0L")
    run("DELETE FROM @t WHERE id < 3")
    assert run("REORG TABLE @t APPLY (PURGE)")[0][1]["numFilesRemoved"] >= 1
    assert last_commit(spark, tmp_path)[0] == "REORG"
    assert not DeltaTable.forPath(spark, str(tmp_path / "t")).table.snapshot().files.has_deletion_vectors
    assert len(run("OPTIMIZE @t ZORDER BY (id)")) == 1
    assert last_commit(spark, tmp_path)[0] == "OPTIMIZE"
    restored = run("RESTORE TABLE @t TO VERSION AS OF 0")
    assert len(restored[0]) == 6
    assert run("SELECT count(*) FROM @t") == [(20,)]
    assert run("DESCRIBE DETAIL @t")[0][0] == "delta"
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    (tmp_path / "t" / "stray.parquet").write_bytes(b"")
    before = set(run("VACUUM @t RETAIN 0 HOURS DRY RUN"))
    lite = set(run("VACUUM @t LITE RETAIN 0 HOURS DRY RUN"))
    assert {path for (path,) in before - lite} == {f"file:{tmp_path}/t/stray.parquet"}
    assert lite
    assert run("VACUUM @t LITE RETAIN 0 HOURS") == [(f"file:{tmp_path}/t",)]
    assert (tmp_path / "t" / "stray.parquet").exists()
    assert run("SELECT count(*) FROM @t") == [(20,)]


def test_properties_and_constraints(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    run("CREATE TABLE @t (id BIGINT, v INT) USING delta")
    run("INSERT INTO @t VALUES (1, 1), (2, NULL)")
    run("ALTER TABLE @t SET TBLPROPERTIES ('a' = 'b', 'comment' = 'c', delta.appendOnly = false)")
    assert last_commit(spark, tmp_path) == (
        "SET TBLPROPERTIES",
        {"properties": '{"a":"b","comment":"c","delta.appendOnly":"false"}'},
    )
    assert DeltaRs(str(tmp_path / "t")).metadata().description == "c"
    with pytest.raises(DeltaAnalysisException, match="DELTA_UNKNOWN_CONFIGURATION"):
        run("ALTER TABLE @t SET TBLPROPERTIES ('delta.appendsOnly' = 'true')")
    run("ALTER TABLE @t UNSET TBLPROPERTIES ('delta.APPENDONLY')")
    assert last_commit(spark, tmp_path)[1]["properties"] == '["delta.appendOnly"]'
    run("ALTER TABLE @t UNSET TBLPROPERTIES ('x', 'a')")
    assert last_commit(spark, tmp_path) == ("UNSET TBLPROPERTIES", {"properties": '["x","a"]', "ifExists": "true"})
    with pytest.raises(DeltaAnalysisException, match="DELTA_ADD_CONSTRAINTS"):
        run("ALTER TABLE @t SET TBLPROPERTIES ('delta.constraints.c' = 'id > 0')")
    # A CHECK that is NULL does not hold.
    with pytest.raises(DeltaAnalysisException, match=r"1 rows in .* violate the new CHECK constraint \(v > 0\)"):
        run("ALTER TABLE @t ADD CONSTRAINT c CHECK (v > 0)")
    with pytest.raises(DeltaAnalysisException, match="DELTA_NON_BOOLEAN_CHECK_CONSTRAINT"):
        run("ALTER TABLE @t ADD CONSTRAINT c CHECK (id + 1)")
    run("ALTER TABLE @t ADD CONSTRAINT Positive CHECK (id > 0)")
    assert last_commit(spark, tmp_path) == ("ADD CONSTRAINT", {"name": "Positive", "expr": "id > 0"})
    with pytest.raises(InvariantViolationException, match="positive"):
        run("INSERT INTO @t VALUES (-1, 0)")
    run("ALTER TABLE @t DROP CONSTRAINT positive")
    assert last_commit(spark, tmp_path) == (
        "DROP CONSTRAINT",
        {"name": "positive", "expr": "id > 0", "existed": "true"},
    )
    with pytest.raises(DeltaAnalysisException, match="DELTA_CONSTRAINT_DOES_NOT_EXIST"):
        run("ALTER TABLE @t DROP CONSTRAINT positive")
    run("ALTER TABLE @t CLUSTER BY (id)")
    assert last_commit(spark, tmp_path) == ("CLUSTER BY", {"oldClusteringColumns": "", "newClusteringColumns": "id"})
    run("INSERT INTO @t VALUES (-1, 0)")


def test_columns(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    run("CREATE TABLE @t (id BIGINT, v INT, s STRUCT<a: INT>, gone STRING) USING delta")
    run("INSERT INTO @t VALUES (1, 1, named_struct('a', 1), 'x')")
    run("ALTER TABLE @t ADD COLUMNS (s.b STRING COMMENT 'c' FIRST, n DATE AFTER id)")
    operation, parameters = last_commit(spark, tmp_path)
    assert operation == "ADD COLUMNS"
    assert parameters["columns"] == (
        '[{"column":{"name":"s.b","type":"string","nullable":true,"metadata":{"comment":"c"}},"position":"FIRST"},'
        '{"column":{"name":"n","type":"date","nullable":true,"metadata":{}},"position":"AFTER id"}]'
    )
    with pytest.raises(DeltaAnalysisException, match="DELTA_DUPLICATE_COLUMNS_FOUND"):
        run("ALTER TABLE @t ADD COLUMN S.B INT")
    with pytest.raises(DeltaAnalysisException, match="NOT NULL in ALTER TABLE ADD COLUMNS"):
        run("ALTER TABLE @t ADD COLUMN x INT NOT NULL")
    for statement in ("DROP COLUMN gone", "RENAME COLUMN v TO w"):
        with pytest.raises(DeltaAnalysisException, match="Map its columns first"):
            run(f"ALTER TABLE @t {statement}")
    run("ALTER TABLE @t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')")
    run("ALTER TABLE @t DROP COLUMN gone")
    assert last_commit(spark, tmp_path) == ("DROP COLUMNS", {"columns": '["gone"]'})
    run("ALTER TABLE @t RENAME COLUMN s.a TO c")
    assert last_commit(spark, tmp_path) == ("RENAME COLUMN", {"oldColumnPath": "s.a", "newColumnPath": "s.c"})
    run("ALTER TABLE @t ADD COLUMN gone STRING")
    run("ALTER TABLE @t ALTER COLUMN v TYPE BIGINT")
    assert last_commit(spark, tmp_path)[0] == "CHANGE COLUMN"
    with pytest.raises(DeltaAnalysisException, match="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"):
        run("ALTER TABLE @t ALTER COLUMN v TYPE INT")
    run("ALTER TABLE @t CHANGE COLUMN v COMMENT 'it''s'")
    run("ALTER TABLE @t ALTER COLUMN v SET NOT NULL")
    with pytest.raises(DeltaAnalysisException, match="DELTA_NEW_NOT_NULL_VIOLATION"):
        run("ALTER TABLE @t ALTER COLUMN n SET NOT NULL")
    run("INSERT INTO @t BY NAME SELECT 2L AS id, 5000000000 AS v, named_struct('b', 'B', 'c', 2) AS s")
    found = run("SELECT id, n, v, s.b, s.c, gone FROM @t ORDER BY id")
    assert found == [(1, None, 1, None, 1, None), (2, None, 5000000000, "B", 2, None)]
    assert [row[:2] for row in run("DESCRIBE @t")] == [
        ("id", "bigint"),
        ("n", "date"),
        ("v", "bigint"),
        ("s", "struct<b:string,c:int>"),
        ("gone", "string"),
    ]
    run("ALTER TABLE @t SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')")
    run("ALTER TABLE @t ALTER COLUMN gone SET DEFAULT upper('d')")
    run("ALTER TABLE @t ALTER COLUMN id DROP NOT NULL")
    run("INSERT INTO @t (v, gone) VALUES (3, DEFAULT)")
    assert run("SELECT gone FROM @t WHERE id IS NULL") == [("D",)]


def test_columns_are_changed_in_one_commit(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    widens = "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    run(f"CREATE TABLE @t (a INT, b INT, s STRUCT<x: INT>) USING delta {widens}")
    run("ALTER TABLE @t ALTER COLUMN a COMMENT 'x', b TYPE BIGINT, s.x COMMENT 'z'")
    operation, parameters = last_commit(spark, tmp_path)
    assert operation == "CHANGE COLUMNS"
    assert [column["name"] for column in json.loads(parameters["columns"])] == ["a", "b", "s.x"]
    assert run("DESCRIBE @t")[:2] == [("a", "int", "x"), ("b", "bigint", None)]
    run("ALTER TABLE @t ALTER COLUMN a COMMENT 'y', b FIRST")
    assert [row[0] for row in run("DESCRIBE @t")] == ["b", "a", "s"]
    for changes in ("a COMMENT 'y', A FIRST", "s COMMENT 'y', s.x COMMENT 'w'"):
        with pytest.raises(DeltaAnalysisException, match="NOT_SUPPORTED_CHANGE_SAME_COLUMN"):
            run(f"ALTER TABLE @t ALTER COLUMN {changes}")
    with pytest.raises(DeltaAnalysisException, match="nothing"):
        run("ALTER TABLE @t ALTER COLUMN a COMMENT 'never', nothing COMMENT 'w'")
    assert run("DESCRIBE @t")[1] == ("a", "int", "y")


def test_elements_keys_and_values_become_wider(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    run(
        "CREATE TABLE @t (a ARRAY<INT>, m MAP<SMALLINT, ARRAY<FLOAT>>, s STRUCT<x: ARRAY<DATE>>) USING delta "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')"
    )
    run("INSERT INTO @t VALUES (array(1), map(2S, array(3F)), named_struct('x', array(DATE'2024-01-01')))")
    run("ALTER TABLE @t ALTER COLUMN A.element TYPE BIGINT")
    run("ALTER TABLE @t ALTER COLUMN m.key TYPE INT, m.value.ELEMENT TYPE DOUBLE, s.x.element TYPE TIMESTAMP_NTZ")
    types = [row[1] for row in run("DESCRIBE @t")]
    assert types == ["array<bigint>", "map<int,array<double>>", "struct<x:array<timestamp_ntz>>"]
    run("INSERT INTO @t (a) VALUES (array(5000000000))")
    assert run("SELECT a[0], m[2][0], s.x[0] FROM @t WHERE m IS NOT NULL") == [(1, 3.0, dt.datetime(2024, 1, 1))]
    fields = {field.name: field.metadata for field in load_snapshot(open_store(str(tmp_path / "t"))).schema.fields}
    assert fields["m"]["delta.typeChanges"] == [
        {"toType": "integer", "fromType": "short", "fieldPath": "key"},
        {"toType": "double", "fromType": "float", "fieldPath": "value.element"},
    ]
    with pytest.raises(DeltaAnalysisException, match="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"):
        run("ALTER TABLE @t ALTER COLUMN a.element TYPE INT")
    run("ALTER TABLE @t ADD COLUMN v ARRAY<VARCHAR(5)>")
    for change in ("ALTER COLUMN v.element TYPE STRING", "CHANGE COLUMN a.element element BIGINT COMMENT 'x'"):
        with pytest.raises(DeltaAnalysisException, match="DELTA_OPERATION_NOT_ALLOWED"):
            run(f"ALTER TABLE @t {change}")
    for column in ("a.value", "a.element.x", "s.element", "nothing.element"):
        with pytest.raises(DeltaAnalysisException, match="DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"):
            run(f"ALTER TABLE @t ALTER COLUMN {column} TYPE DOUBLE")


def test_a_limit_of_a_length_only_becomes_wider(run: Run) -> None:
    run("CREATE TABLE @t (v VARCHAR(2), c CHAR(2), s STRUCT<x: VARCHAR(2)>) USING delta")
    run("ALTER TABLE @t ALTER COLUMN v TYPE VARCHAR(3)")
    run("INSERT INTO @t (v) VALUES ('abc')")
    with pytest.raises(DeltaRuntimeException, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
        run("INSERT INTO @t (v) VALUES ('abcd')")
    narrower = ("v TYPE VARCHAR(2)", "v TYPE CHAR(5)", "c TYPE CHAR(3)", "s.x TYPE VARCHAR(1)")
    for change in (*narrower, "s TYPE STRUCT<x: VARCHAR(5)>"):
        with pytest.raises(DeltaAnalysisException, match="NOT_SUPPORTED_CHANGE_COLUMN"):
            run(f"ALTER TABLE @t ALTER COLUMN {change}")
    run("ALTER TABLE @t ALTER COLUMN c TYPE VARCHAR(3)")
    run("ALTER TABLE @t CHANGE COLUMN v v STRING COMMENT 'free'")
    run("INSERT INTO @t (v, c) VALUES ('abcdef', 'abc')")
    assert run("SELECT v, c FROM @t ORDER BY v") == [("abc", None), ("abcdef", "abc")]


def test_a_table_is_truncated_and_copied_into_itself(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    run("CREATE TABLE @t TBLPROPERTIES ('delta.ENABLEchangeDataFeed' = 'true') AS SELECT id FROM range(3)")
    run("INSERT INTO @t TABLE @t")
    assert run("SELECT count(*) FROM @t") == [(6,)]
    for _ in range(2):
        run("TRUNCATE TABLE @t")
        assert last_commit(spark, tmp_path) == ("TRUNCATE", {})
    table = DeltaTable.forPath(spark, str(tmp_path / "t"))
    assert table.toDF().count() == 0
    assert table.history().count() == 3
    changes = table.changes(2)
    assert [row[0] for row in changes.select("_change_type").distinct().collect()] == ["delete"]
    assert changes.count() == 6


def test_what_needs_a_column_keeps_it(run: Run) -> None:
    run(
        "CREATE TABLE @t (id BIGINT, d DATE, y INT GENERATED ALWAYS AS (year(d)), p INT) USING delta "
        "PARTITIONED BY (p) TBLPROPERTIES (delta.columnMapping.mode = 'name')"
    )
    run("ALTER TABLE @t ADD CONSTRAINT c CHECK (id > 0)")
    for column, condition in (
        ("d", "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"),
        ("id", "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"),
        ("p", "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN"),
    ):
        with pytest.raises(DeltaAnalysisException, match=condition):
            run(f"ALTER TABLE @t DROP COLUMN {column}")
    run("INSERT INTO @t (id, d, p) VALUES (1, DATE'2024-01-01', 3)")
    run("ALTER TABLE @t RENAME COLUMN p TO q")
    assert run("SELECT id, y, q FROM @t WHERE q = 3") == [(1, 2024, 3)]


def test_parameters_anywhere_in_a_statement(run: Run) -> None:
    run("CREATE TABLE @t USING delta AS SELECT :v AS id", {"v": 1})
    run("WITH s AS (SELECT ? AS id) INSERT INTO @t SELECT id FROM s", [2])
    run("MERGE INTO @t t USING (SELECT 2 AS id) s ON t.id = s.id AND t.id > :n WHEN MATCHED THEN DELETE", {"n": 1})
    assert run("DESCRIBE HISTORY @t LIMIT :n", {"n": 1})[0][4] == "MERGE"
    run("RESTORE TABLE @t TO VERSION AS OF ?", [1])
    assert run("SELECT id FROM @t WHERE id > :n", {"n": 1}) == [(2,)]
    assert run("VACUUM @t RETAIN :hours HOURS DRY RUN", {"hours": 200}) == []
    assert run("DELETE FROM @t WHERE id = :id", {"id": 2}) == [(1,)]
    with pytest.raises(DeltaAnalysisException, match="unbound parameter: hours"):
        run("VACUUM @t RETAIN :hours HOURS", {"h": 1})


def test_a_new_table_in_the_place_of_another(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    run(
        "CREATE TABLE @t (id BIGINT, v INT, CONSTRAINT c CHECK (id > 0)) USING delta CLUSTER BY (id) COMMENT 'old' "
        "TBLPROPERTIES ('a' = 'b', 'delta.columnMapping.mode' = 'name')"
    )
    table = DeltaTable.forPath(spark, str(tmp_path / "t"))
    id_before = table.detail().collect()[0]["id"]
    overwritten = spark.sql("SELECT 1L AS id, 2L AS w")
    deltamerge.write_delta(overwritten, str(tmp_path / "t"), "overwrite", overwrite_schema=True)
    detail = table.detail().collect()[0]
    assert (detail["id"], detail["clusteringColumns"]) == (id_before, ["id"])
    for rows in ("(id BIGINT) USING delta", "USING delta AS SELECT -1L AS id"):
        run(f"CREATE OR REPLACE TABLE @t {rows}")
        detail = table.detail().collect()[0]
        assert detail["id"] != id_before
        assert (detail["clusteringColumns"], detail["properties"], detail["description"]) == ([], {}, None)
    with pytest.raises(DeltaAnalysisException, match="DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE"):
        run("CREATE OR REPLACE TABLE @t (id BIGINT, p INT) USING delta PARTITIONED BY (p)")
    assert [row["operation"] for row in table.history().collect()] == [
        "CREATE OR REPLACE TABLE AS SELECT",
        "CREATE OR REPLACE TABLE",
        "WRITE",
        "CREATE TABLE",
    ]


def test_parameters_of_numpy_and_lists(run: Run) -> None:
    run("CREATE TABLE @t USING delta (SELECT id, CAST(id AS DOUBLE) AS v FROM range(5))")
    run("UPDATE @t SET v = :v WHERE id = :id", {"v": np.float64(3.5), "id": np.int64(3)})
    run("DELETE FROM @t WHERE array_contains(:ids, id) OR v = :v", {"ids": [1, np.int32(2)], "v": np.float32(4.0)})
    assert sorted(run("SELECT * FROM @t")) == [(0, 0.0), (3, 3.5)]


def test_parameters_that_are_columns_and_spans(spark: SparkSession, run: Run) -> None:
    run("CREATE TABLE @t USING delta (SELECT id, array('x') AS tags, DATE'2024-01-01' AS d FROM range(5))")
    run("DELETE FROM @t WHERE id = :id", {"id": F.lit(1)})
    run("UPDATE @t SET tags = ?, d = d + ? WHERE id > ?", [F.array(F.lit("a'b")), dt.timedelta(days=2), F.lit(3)])
    day = dt.date(2024, 1, 1)
    assert sorted(run("SELECT * FROM @t")) == [
        *((id_, ["x"], day) for id_ in (0, 2, 3)),
        (4, ["a'b"], day + dt.timedelta(days=2)),
    ]
    assert run("SELECT count(*) FROM @t VERSION AS OF :v WHERE id > :id", {"v": F.lit(0), "id": F.lit(0)}) == [(4,)]
    with pytest.raises(AnalysisException, match="INVALID_SQL_ARG"):
        run("DELETE FROM @t WHERE id = :id", {"id": F.lit(1) + 1})
    with pytest.raises(DeltaAnalysisException, match="LITERAL_TYPE"):
        run("DELETE FROM @t WHERE id = :id", {"id": {"a": 1}})


def test_values_of_partitions_are_cast_to_their_columns(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    """Compared with a number, strings would be: other partitions would match, or fail."""
    run("CREATE TABLE @t (v INT, p STRING, c CHAR(3), f FLOAT) USING delta PARTITIONED BY (p, c, f)")
    run("INSERT INTO @t VALUES (1, '1', 'a', 0.5), (2, '01', 'a', 0.1), (3, 'eu', 'b', 0.1), (4, NULL, 'b', 0.1)")
    run("INSERT OVERWRITE @t PARTITION (p = 1, c = 'a', f = 0.5) SELECT 9")
    run("INSERT OVERWRITE @t PARTITION (P = 01, c = 'a', f) SELECT 8, 0.25F")
    assert sorted(run("SELECT v, p FROM @t")) == [(2, "01"), (3, "eu"), (4, None), (8, "1")]
    run("INSERT OVERWRITE @t PARTITION (f = 0.1, c = 'b', p = '') SELECT 7")
    assert sorted(run("SELECT v, p FROM @t")) == [(2, "01"), (3, "eu"), (7, None), (8, "1")]
    for clause in ("(v = 1)", "(v)", "(p = 1, v = 2)"):
        with pytest.raises(DeltaAnalysisException, match="NON_PARTITION_COLUMN"):
            run(f"INSERT OVERWRITE @t PARTITION {clause} SELECT 1, 'a', 0.1F")


def test_partitions_are_overwritten(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    run("CREATE TABLE @t PARTITIONED BY (p) AS SELECT id, id % 3 AS p FROM range(9)")
    run("INSERT OVERWRITE @t PARTITION (p = 1) SELECT 100L")
    assert run("SELECT id FROM @t WHERE p = 1") == [(100,)]
    assert last_commit(spark, tmp_path)[1]["mode"] == "Overwrite"
    run("INSERT INTO @t REPLACE WHERE p >= 1 SELECT 200L, 2L")
    assert run("SELECT count(*), max(id) FROM @t") == [(4, 200)]
    with pytest.raises(DeltaAnalysisException, match="INSERT_PARTITION_SPEC_IF_NOT_EXISTS"):
        run("INSERT OVERWRITE @t PARTITION (p = 1) IF NOT EXISTS SELECT 100L")
    with pytest.raises(DeltaAnalysisException, match="DELTA_TRUNCATE_TABLE_PARTITION_NOT_SUPPORTED"):
        run("TRUNCATE TABLE @t PARTITION (p = 1)")
    with pytest.raises(DeltaAnalysisException, match="DELTA_REPLACE_WHERE_MISMATCH"):
        run("INSERT INTO @t REPLACE WHERE p = 1 SELECT 200L, 2L")
    with pytest.raises(InvariantViolationException, match="DELTA_REPLACE_WHERE_MISMATCH"):
        run("INSERT INTO @t REPLACE WHERE id = 1 SELECT 200L, 2L")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    run("INSERT OVERWRITE TABLE @t PARTITION (p) SELECT 300L, 2L")
    assert run("SELECT id FROM @t WHERE p <> 0") == [(300,)]
    assert run("SELECT count(*) FROM @t") == [(4,)]


def test_statements_on_tables_of_other_providers_are_sparks(run: Run) -> None:
    run("CREATE TABLE sql_parquet (a INT, p STRING) USING parquet PARTITIONED BY (p)")
    try:
        run("INSERT INTO sql_parquet VALUES (1, 'x'), (2, 'y')")
        run("INSERT OVERWRITE TABLE sql_parquet PARTITION (p = 'x') IF NOT EXISTS SELECT 3")
        run("TRUNCATE TABLE sql_parquet PARTITION (p = 'y')")
        assert run("SELECT a FROM sql_parquet") == [(1,)]
        for target, condition in (
            ("sql_parquet", "UNSUPPORTED_FEATURE.TABLE_OPERATION"),
            ("another.db.t", "REQUIRES_SINGLE_PART_NAMESPACE|TABLE_OR_VIEW_NOT_FOUND"),
        ):
            merge = f"MERGE INTO {target} AS t USING (SELECT 1 AS a) AS s ON t.a = s.a WHEN MATCHED THEN DELETE"
            with pytest.raises(Exception, match=condition):
                run(merge)
        with pytest.raises(DeltaTableNotFoundException):
            run("MERGE INTO sql_absent t USING (SELECT 1 AS a) s ON t.a = s.a WHEN MATCHED THEN DELETE")
    finally:
        run("DROP TABLE sql_parquet")


def test_a_new_table_is_one_of_the_default_source(spark: SparkSession, run: Run) -> None:
    run("CREATE TABLE sql_other (a INT, p INT) PARTITIONED BY (p)")
    spark.conf.set("spark.sql.sources.default", "delta")
    try:
        run("CREATE TABLE IF NOT EXISTS sql_columns (id INT, p INT) PARTITIONED BY (p) COMMENT 'c'")
        run("CREATE TABLE sql_rows AS SELECT 1 AS a")
        run("CREATE OR REPLACE TABLE sql_rows SELECT :a AS a", {"a": 2})
        assert run("SELECT a FROM sql_rows") == [(2,)]
        assert run("DESCRIBE HISTORY sql_columns")[0][4] == "CREATE TABLE"
        assert run("DESCRIBE DETAIL sql_columns")[0][7] == ["p"]
        assert ("Provider", "parquet", "") in run("DESCRIBE EXTENDED sql_other")
        with pytest.raises(DeltaAnalysisException, match="DELTA_NOT_A_DELTA_TABLE"):
            run("CREATE TABLE sql_other (a INT)")
        with pytest.raises(Exception, match="another"):
            run("CREATE TABLE another.db.t (a INT)")
    finally:
        for name in ("sql_other", "sql_columns", "sql_rows"):
            run(f"DROP TABLE IF EXISTS {name}")


def test_a_new_table_is_like_another(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    run(
        "CREATE TABLE sql_first (id BIGINT NOT NULL COMMENT 'k', d DATE, y INT GENERATED ALWAYS AS (year(d)), p INT, "
        "i BIGINT GENERATED ALWAYS AS IDENTITY, CONSTRAINT c CHECK (id > 0)) USING delta PARTITIONED BY (p) "
        "COMMENT 'c' TBLPROPERTIES ('a' = 'b', 'delta.columnMapping.mode' = 'name', 'delta.enableRowTracking' = 'true')"
    )
    run("CREATE TABLE sql_plain (a INT, p STRING) USING parquet PARTITIONED BY (p)")
    try:
        run("INSERT INTO sql_first (id, d, p) VALUES (1, DATE'2024-01-01', 3), (2, DATE'2024-01-01', 3)")
        run("CREATE TABLE sql_like LIKE sql_first")
        run("CREATE TABLE @t LIKE sql_first USING delta TBLPROPERTIES ('a' = 'c')")
        run("CREATE TABLE IF NOT EXISTS sql_like LIKE sql_plain USING delta")
        first = run("DESCRIBE DETAIL sql_first")[0]
        for name, value in (("sql_like", "b"), ("@t", "c")):
            assert run(f"SELECT count(*) FROM {name}") == [(0,)]
            made = run(f"DESCRIBE DETAIL {name}")[0]
            assert made[1] != first[1]
            assert (made[3], made[7]) == ("c", ["p"])
            assert {k: v for k, v in made[11].items() if "aterialized" not in k} == {
                **{k: v for k, v in first[11].items() if "aterialized" not in k},
                "a": value,
            }
            assert made[12:15] == first[12:15]
            with pytest.raises(InvariantViolationException):
                run(f"INSERT INTO {name} (id) VALUES (0)")
            run(f"INSERT INTO {name} (id, d, p) VALUES (7, DATE'2023-01-01', 1)")
            assert run(f"SELECT id, y, p, i FROM {name}") == [(7, 2023, 1, 1)]
        assert run("SELECT count(*) FROM sql_first") == [(2,)]
        with pytest.raises(DeltaAnalysisException, match="already exists"):
            run("CREATE TABLE sql_like LIKE sql_first")
        run("CREATE TABLE sql_as_delta LIKE sql_plain USING delta")
        assert run("DESCRIBE DETAIL sql_as_delta")[0][7] == ["p"]
        run("CREATE TABLE sql_as_plain LIKE sql_plain")
        assert ("Provider", "parquet", "") in run("DESCRIBE EXTENDED sql_as_plain")
    finally:
        for name in ("sql_first", "sql_plain", "sql_like", "sql_as_delta", "sql_as_plain"):
            run(f"DROP TABLE IF EXISTS {name}")


def test_a_table_of_another_provider_counts_as_one_that_exists(spark: SparkSession, run: Run) -> None:
    run("CREATE TABLE sql_there (a INT) USING parquet")
    try:
        for rest in ("(a INT) USING delta", "USING delta AS SELECT 1 AS a", "LIKE sql_there USING delta"):
            assert run(f"CREATE TABLE IF NOT EXISTS sql_there {rest}") == []
            with pytest.raises(DeltaAnalysisException, match="DELTA_NOT_A_DELTA_TABLE"):
                run(f"CREATE TABLE sql_there {rest}")
        save_as_table(spark.range(2), "sql_there", Save("delta", "ignore"))
        assert ("Provider", "parquet", "") in run("DESCRIBE EXTENDED sql_there")
        assert run("SELECT * FROM sql_there") == []
        with pytest.raises(DeltaAnalysisException, match="DELTA_NOT_A_DELTA_TABLE"):
            run("CREATE TABLE IF NOT EXISTS another.db.t (a INT) USING delta")
    finally:
        run("DROP TABLE sql_there")


def test_a_view_counts_as_one_that_exists(spark: SparkSession, run: Run) -> None:
    run("CREATE VIEW sql_kept_view AS SELECT 1 AS a")
    try:
        run("CREATE TABLE IF NOT EXISTS sql_kept_view USING delta AS SELECT 2 AS a")
        save_as_table(spark.range(2), "sql_kept_view", Save("delta", "ignore"))
        with pytest.raises(DeltaAnalysisException, match="DELTA_NOT_A_DELTA_TABLE"):
            save_as_table(spark.range(2), "sql_kept_view", Save("delta", "append"))
        with pytest.raises(DeltaAnalysisException, match="DELTA_NOT_A_DELTA_TABLE"):
            deltamerge.DeltaTable.createIfNotExists(spark).tableName("sql_kept_view").addColumn("a", "INT").execute()
        assert run("SELECT * FROM sql_kept_view") == [(1,)]
    finally:
        run("DROP VIEW sql_kept_view")


def test_an_insert_adds_columns_where_the_session_or_the_statement_asks(
    spark: SparkSession, tmp_path: Path, run: Run
) -> None:
    run("CREATE TABLE @t (a INT, b INT) USING delta")
    path = str(tmp_path / "t")
    with pytest.raises(DeltaAnalysisException, match="DELTA_INSERT_COLUMN_ARITY_MISMATCH"):
        run("INSERT INTO @t SELECT 1, 2, 3 AS c")
    run("INSERT WITH SCHEMA EVOLUTION INTO @t SELECT 1 AS x, 2 AS y, 3 AS c")
    with pytest.raises(DeltaAnalysisException, match="lacks: d"):
        run("INSERT INTO @t BY NAME SELECT 2 AS a, 4 AS d")
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    run("INSERT INTO @t BY NAME SELECT 2 AS a, 4 AS d")
    run("INSERT INTO @t SELECT 3, 3, 3, 3, 3 AS e")
    with pytest.raises(DeltaAnalysisException, match="DELTA_INSERT_COLUMN_ARITY_MISMATCH"):
        run("INSERT INTO @t SELECT 4, 4")
    with pytest.raises(DeltaAnalysisException, match="DELTA_INSERT_COLUMN_ARITY_MISMATCH"):
        run("INSERT INTO @t (a, b) SELECT 4, 4, 4 AS f")
    for columns in ("(a, f)", "PARTITION (f = 1)"):
        with pytest.raises(DeltaAnalysisException, match="UNRESOLVED_COLUMN"):
            run(f"INSERT WITH SCHEMA EVOLUTION INTO @t {columns} SELECT 4, 4")
    deltamerge.write_delta(spark.sql("SELECT 5 AS a, 5 AS g"), path, mode="append")
    assert run("SELECT a, b, c, d, e, g FROM @t ORDER BY a") == [
        (1, 2, 3, None, None, None),
        (2, None, None, 4, None, None),
        (3, 3, 3, 3, 3, None),
        (5, None, None, None, None, 5),
    ]
    deltamerge.write_delta(spark.sql("SELECT 6 AS a, 6 AS h"), path, mode="overwrite")
    assert run("SELECT a, h FROM @t") == [(6, 6)]


@pytest.mark.parametrize(
    ("column", "default", "kind"),
    [
        ("v INT", "'abc'", "DATA_TYPE"),
        ("v SMALLINT", "70000", "DATA_TYPE"),
        ("v DATE", "true", "DATA_TYPE"),
        ("v INT", "missing + 1", "UNRESOLVED_EXPRESSION"),
    ],
)
def test_default_that_the_column_cannot_take(
    spark: SparkSession, tmp_path: Path, run: Run, column: str, default: str, kind: str
) -> None:
    with pytest.raises(DeltaAnalysisException, match=rf"^\[INVALID_DEFAULT_VALUE.{kind}\]") as error:
        run(f"CREATE TABLE @t ({column} DEFAULT {default}) USING delta")
    assert error.value.getSqlState() == "42623"
    assert not DeltaTable.isDeltaTable(spark, str(tmp_path / "t"))
    run(f"CREATE TABLE @t ({column} DEFAULT NULL) USING delta")
    with pytest.raises(DeltaAnalysisException, match=f"INVALID_DEFAULT_VALUE.{kind}"):
        run(f"ALTER TABLE @t ALTER COLUMN v SET DEFAULT {default}")
    assert last_commit(spark, tmp_path)[0] == "CREATE TABLE"


@pytest.mark.parametrize(
    ("named", "kept"), [("", "true"), ("TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')", "false")]
)
def test_a_replacement_with_rows_keeps_deletion_vectors(
    spark: SparkSession, tmp_path: Path, named: str, kept: str
) -> None:
    table = f"delta.`{tmp_path}/t`"
    properties = "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'"
    deltamerge.sql(spark, f"CREATE TABLE {table} USING delta TBLPROPERTIES ({properties}) AS SELECT 1L AS id")
    deltamerge.sql(spark, f"CREATE OR REPLACE TABLE {table} USING delta {named} AS SELECT 2L AS id")
    found = DeltaTable.forPath(spark, str(tmp_path / "t"))
    assert found.detail().collect()[0]["properties"] == {"delta.enableDeletionVectors": kept}
    assert [row.id for row in found.toDF().collect()] == [2]


def test_columns_are_qualified_by_database_and_table(spark: SparkSession, run: Run) -> None:
    run("CREATE DATABASE IF NOT EXISTS sql_one")
    run("CREATE DATABASE IF NOT EXISTS sql_two")
    try:
        run("CREATE TABLE sql_one.t USING delta AS SELECT id, 'a' AS v FROM range(3)")
        run("CREATE TABLE sql_two.t USING delta AS SELECT id, 'b' AS v FROM range(2)")
        run("CREATE TABLE sql_one.u USING delta AS SELECT 1L AS id")
        joined = "SELECT sql_one.t.id, SQL_ONE.u.* FROM sql_one.t JOIN sql_one.u ON sql_one.t.id = sql_one.u.id"
        assert run(joined) == [(1, 1)]
        assert run("SELECT spark_catalog.sql_one.u.id, u.id FROM sql_one.u") == [(1, 1)]
        same = "SELECT sql_one.t.v, sql_two.t.v FROM sql_one.t JOIN sql_two.t ON sql_one.t.id = sql_two.t.id"
        assert run(same) == [("a", "b"), ("a", "b")]
        without = "SELECT t.id FROM sql_one.t WHERE NOT EXISTS (SELECT 1 FROM sql_two.t WHERE t.id = sql_one.t.id)"
        assert run(without) == [(2,)]
        assert run("SELECT t.id FROM sql_one.t TABLESAMPLE (100 PERCENT) WHERE sql_one.t.id = 2") == [(2,)]
        assert run("SELECT u.id FROM sql_one.u WITH (`a` = 1) TABLESAMPLE (2 ROWS)") == [(1,)]
        assert len(run("SELECT t.v FROM sql_one.t UNION ALL SELECT sql_two.t.v FROM sql_two.t")) == 5
    finally:
        for name in ("sql_one.t", "sql_two.t", "sql_one.u"):
            run(f"DROP TABLE IF EXISTS {name}")
        run("DROP DATABASE sql_one")
        run("DROP DATABASE sql_two")


@pytest.mark.quick
def test_expressions_in_statements_have_no_alias(run: Run) -> None:
    run("CREATE TABLE @t USING delta AS SELECT 1L AS id, 2L AS v")
    on = "MERGE INTO @t AS t USING (SELECT 1L AS id, true AS f) s ON t.id = s.id"
    wrong = [
        "DELETE FROM @t WHERE id = 1 is_test",
        "DELETE FROM @t WHERE id = 1 AS `is test` -- c",
        "UPDATE @t SET v = id c, id = 3",
        "UPDATE @t SET v = id c WHERE id = 1",
        f"{on} is_same WHEN MATCHED THEN DELETE",
        f"{on} WHEN MATCHED AND s.f g THEN DELETE",
        f"{on} WHEN MATCHED THEN UPDATE SET v = 1 + 2 w",
        f"{on} WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id x)",
        "INSERT INTO @t REPLACE WHERE id = 1 x SELECT 7, 8",
    ]
    for statement in wrong:
        with pytest.raises(DeltaAnalysisException, match="PARSE_SYNTAX_ERROR"):
            run(statement)
    assert run("SELECT * FROM @t") == [(1, 2)]
    run("UPDATE @t SET v = CASE WHEN id = 1 THEN 5 END WHERE v IS NOT NULL -- all")
    run("UPDATE @t SET v = v + 1 WHERE DATE '2024-01-01' + INTERVAL 1 DAY > DATE '2024-01-01'")
    assert run("SELECT * FROM @t") == [(1, 6)]


@pytest.mark.quick
def test_ctes_before_an_insert_and_in_its_query(run: Run) -> None:
    run("CREATE TABLE @t (a INT, b INT) USING delta")
    run("WITH x AS (SELECT 1 AS a) INSERT INTO @t WITH y AS (SELECT 2 AS b) SELECT a, b FROM x, y")
    run("WITH x AS (SELECT 3 AS a) INSERT INTO @t SELECT a, 4 FROM x ORDER BY a LIMIT 1")
    assert sorted(run("SELECT * FROM @t")) == [(1, 2), (3, 4)]


@pytest.mark.skipif(pyspark.__version__ < "4.3", reason="Spark 4.3 added ASOF JOIN")
def test_asof_joins(spark: SparkSession, run: Run) -> None:
    run("CREATE TABLE sql_asof USING delta AS SELECT id * 2 AS a FROM range(3)")
    spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
    other = "(SELECT 3L AS id) u"
    try:
        on = "sql_asof MATCH_CONDITION (u.id >= sql_asof.a)"
        assert run(f"SELECT sql_asof.a FROM {other} ASOF JOIN {on}") == [(2,)]
        on = f"{other} MATCH_CONDITION (sql_asof.a >= u.id)"
        assert run(f"SELECT sql_asof.a FROM sql_asof ASOF JOIN {on}") == [(4,)]
        assert run(f"SELECT count(sql_asof.a), count(u.id) FROM sql_asof LEFT ASOF JOIN {on}") == [(3, 1)]
    finally:
        spark.conf.unset("spark.sql.join.asofJoin.enabled")
        run("DROP TABLE sql_asof")


def test_a_table_whose_folder_ends_like_a_version(spark: SparkSession, tmp_path: Path) -> None:
    """It goes before the version of the table at the path before @, as where `load` reads it."""
    path = tmp_path / "t"
    deltamerge.write_delta(spark.range(1), str(path))
    deltamerge.write_delta(spark.range(2), str(path), "append")
    deltamerge.write_delta(spark.range(5), f"{path}@v1")
    for name, rows in {"@v0`": 1, "@v1`": 5, "@v1` VERSION AS OF 0": 5}.items():
        assert deltamerge.sql(spark, f"SELECT count(*) FROM delta.`{path}{name}").collect()[0][0] == rows
    with pytest.raises(DeltaAnalysisException, match="DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS"):
        deltamerge.sql(spark, f"SELECT * FROM delta.`{path}@v0` VERSION AS OF 1")


@pytest.mark.quick
def test_change_feeds_are_read_in_from(tmp_path: Path, run: Run) -> None:
    run("CREATE TABLE sql_feed (id BIGINT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    try:
        run("INSERT INTO sql_feed VALUES (1), (2)")
        run("DELETE FROM sql_feed WHERE id = 1")
        kinds = "SELECT id, _change_type, _commit_version FROM"
        assert run(f"{kinds} table_changes('default.sql_feed', 2)") == [(1, "delete", 2)]
        assert len(run(f"{kinds} table_changes('sql_feed', 0, 1) AS c WHERE c.id > 0")) == 2
        assert len(run(f"{kinds} table_changes(:t, :v)", {"t": "sql_feed", "v": 0})) == 3
        assert len(run(f"{kinds} table_changes('sql_feed', '2024-01-01')")) == 3
        assert len(run(f"{kinds} table_changes('sql_feed', current_timestamp() - INTERVAL 1 DAY, 1)")) == 2
        location = run("DESCRIBE DETAIL sql_feed")[0][4].removeprefix("file:")
        assert len(run(f"{kinds} table_changes_by_path('{location}', 0L + 1, 1)")) == 2
        with pytest.raises(DeltaAnalysisException, match="DELTA_UNSUPPORTED_EXPRESSION"):
            run(f"{kinds} table_changes('sql_feed', 1.5)")
        with pytest.raises(DeltaTableException, match="DELTA_TABLE_NOT_FOUND"):
            run(f"{kinds} table_changes('sql_missing', 1)")
        run("CREATE TABLE @t USING delta AS SELECT 1L AS id")
        merge = "ON t.id = s.id WHEN MATCHED AND s._change_type = 'delete' THEN DELETE"
        run(f"MERGE INTO @t AS t USING table_changes('sql_feed', 2) s {merge}")
        assert run("SELECT * FROM @t") == []
    finally:
        run("DROP TABLE sql_feed")


def test_views_name_their_columns_and_are_global(spark: SparkSession, run: Run) -> None:
    run("CREATE TABLE @t USING delta AS SELECT 1L AS id, 'x' AS v")
    try:
        run("CREATE GLOBAL TEMP VIEW sql_global AS SELECT id FROM @t")
        assert run("SELECT * FROM global_temp.sql_global") == [(1,)]
        run("CREATE OR REPLACE GLOBAL TEMPORARY VIEW sql_global (w COMMENT 'c') AS SELECT v FROM @t")
        assert run("SELECT w FROM global_temp.sql_global") == [("x",)]
        assert run("DESCRIBE global_temp.sql_global") == [("w", "string", "c")]
        run("CREATE TEMP VIEW sql_named (a, `b.c` COMMENT 'd') AS SELECT * FROM @t")
        assert run("SELECT a, `b.c` FROM sql_named") == [(1, "x")]
        assert run("DESCRIBE sql_named") == [("a", "bigint", None), ("b.c", "string", "d")]
        for columns, count in (("a", "TOO_MANY"), ("a, b, c", "NOT_ENOUGH")):
            with pytest.raises(DeltaAnalysisException, match=f"CREATE_VIEW_COLUMN_ARITY_MISMATCH.{count}_DATA_COLUMNS"):
                run(f"CREATE OR REPLACE TEMP VIEW sql_named ({columns}) AS SELECT * FROM @t")
        with pytest.raises(DeltaAnalysisException, match=r"COLUMN_ALREADY_EXISTS.* `A`"):
            run("CREATE OR REPLACE TEMP VIEW sql_named (a, A) AS SELECT * FROM @t")
        assert run("SELECT a FROM sql_named") == [(1,)]
    finally:
        spark.catalog.dropGlobalTempView("sql_global")
        spark.catalog.dropTempView("sql_named")


def test_views_of_whole_tables_are_changed(spark: SparkSession, run: Run) -> None:
    run("CREATE TABLE @t USING delta AS SELECT 1L AS id, 'a' AS v")
    run("CREATE OR REPLACE TEMP VIEW sql_target AS SELECT * FROM @t")
    try:
        statements = (
            "MERGE INTO sql_target t USING (SELECT 2L AS id, 'b' AS v) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
            "UPDATE sql_target SET v = 'c' WHERE sql_target.id = 1",
            "DELETE FROM sql_target WHERE id = 2",
            "INSERT INTO sql_target VALUES (3, 'd')",
        )
        if is_connect(spark):
            for statement in statements[:3]:
                with pytest.raises(DeltaAnalysisException, match="sql_target is a temporary view"):
                    run(statement)
            return
        for statement in statements:
            run(statement)
        assert sorted(run("SELECT * FROM @t")) == [(1, "c"), (3, "d")]
    finally:
        spark.catalog.dropTempView("sql_target")


def test_a_temporary_view_is_not_changed(spark: SparkSession, run: Run) -> None:
    run("CREATE TABLE @t USING delta AS SELECT 1L AS id")
    run("CREATE OR REPLACE TEMP VIEW sql_target AS SELECT * FROM @t WHERE id < 5")
    run("CREATE OR REPLACE GLOBAL TEMP VIEW sql_target AS SELECT id + 0 AS id FROM @t")
    try:
        for view in ("sql_target", "global_temp.sql_target"):
            for statement in (
                f"MERGE INTO {view} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
                f"UPDATE {view} SET id = 2",
                f"DELETE FROM {view} WHERE id = 1",
            ):
                with pytest.raises(DeltaAnalysisException, match=f"{view} is a temporary view") as error:
                    run(statement)
                assert error.value.getErrorClass() == "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE"
        assert run("SELECT * FROM sql_target") == [(1,)]
    finally:
        spark.catalog.dropTempView("sql_target")
        spark.catalog.dropGlobalTempView("sql_target")
