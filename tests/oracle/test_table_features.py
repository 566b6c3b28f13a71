"""What a table's schema, properties and protocol ask for holds for both engines, whoever writes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from corpus.canonical import canonical_lines
from deltamerge import DeltaTable, merge_sql, write_delta
from merge.tables import actions, latest_version

from .client import LineProcess, RequestFailed
from .turns import FIRST, UPSERT, all_read, asked, delta_rs_reads, made, merged_in_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


@pytest.mark.parametrize("properties", ["'delta.enableDeletionVectors' = 'false'", "'delta.columnMapping.mode' = 'id'"])
def test_nested_columns(properties: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    """delta-spark reads what PyArrow writes of structs, arrays, maps and CHAR, and merges into it."""
    path = str(tmp_path / "t")
    struct = "named_struct('x', {0}, 'in', if({0} = 2, NULL, named_struct('d', DATE'2024-01-01', 'c', '{1}')))"
    values = [
        f"({k}, '{v}', {struct.format(k, v)}, array({struct.format(k, v)}, NULL), map('{v}', array({k}, NULL)), '{v}')"
        for k, v in FIRST.items()
    ]
    asked(
        oracle,
        f"CREATE TABLE delta.`{path}` (k INT, v STRING, s STRUCT<x: INT, `in`: STRUCT<d: DATE, c: CHAR(3)>>, "
        "a ARRAY<STRUCT<x: INT, `in`: STRUCT<d: DATE, c: STRING>>>, m MAP<STRING, ARRAY<INT>>, c CHAR(2)) "
        f"USING delta TBLPROPERTIES ({properties})",
        f"INSERT INTO delta.`{path}` VALUES {', '.join(values)}",
    )
    merged = "s.x = t.k + 1, a = concat(t.a, t.a), m = map_concat(t.m, map('new', array(s.k)))"
    report = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT explode(array(2, 4, 9)) AS k) s ON t.k = s.k "
        f"WHEN MATCHED THEN UPDATE SET {merged} WHEN NOT MATCHED THEN INSERT (k, v, c) VALUES (s.k, 'new', 'n')",
    )
    assert report.outcome.plan is not None
    assert report.outcome.plan.match.choice == "key_lookup"
    lines = merged_in_turn(oracle, spark, path, {**FIRST, 9: "new"})
    delta_rs_reads(spark, path, lines, tmp_path)
    found = {row["k"]: row for row in map(json.loads, lines)}
    assert found[4]["s"]["x"] == 5
    assert found[4]["m"] == {"d": [4, None], "new": [4]}
    assert (found[9]["s"], found[9]["c"]) == (None, "n ")


@pytest.mark.parametrize("mode", ["name", "id"])
def test_renamed_and_dropped_columns(mode: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    old, new = (
        ", ".join(f"({k}, '{v}', named_struct('x', {k}, 'y', '{v}'), 'p{k % 2}', {gone})" for k, v in rows)
        for rows, gone in (([(1, "a"), (2, "b"), (3, "c")], "7"), ([(4, "d"), (5, "e")], "'new'"))
    )
    asked(
        oracle,
        f"CREATE TABLE delta.`{path}` (k INT, old STRING, s STRUCT<x: INT, y: STRING>, p STRING, gone INT) "
        f"USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')",
        f"INSERT INTO delta.`{path}` VALUES {old}",
        f"ALTER TABLE delta.`{path}` RENAME COLUMN old TO v",
        f"ALTER TABLE delta.`{path}` RENAME COLUMN s.y TO `é ,;`",
        f"ALTER TABLE delta.`{path}` RENAME COLUMN p TO `part %`",
        f"ALTER TABLE delta.`{path}` DROP COLUMNS (gone, s.x)",
        f"ALTER TABLE delta.`{path}` ADD COLUMNS (gone STRING, s.x STRING)",
        f"INSERT INTO delta.`{path}` (k, v, s, `part %`, gone) SELECT k, v, "
        "named_struct('é ,;', s.y, 'x', CAST(s.x AS STRING)), p, gone "
        f"FROM VALUES {new} AS x(k, v, s, p, gone)",
    )
    lines = merged_in_turn(oracle, spark, path, FIRST)
    found = {row["k"]: row for row in map(json.loads, lines)}
    assert found[4] == {
        "k": 4, "v": "D", "s": {"é ,;": "d", "x": "4"}, "part %": "p0", "gone": "new",
    }  # fmt: skip
    frame = DeltaTable.forPath(spark, path).toDF()
    for condition in ("`part %` = 'p0'", "s.`é ,;` = 'e'", "gone IS NULL", "v > 'C' AND s.x > '4'"):
        query = f"SELECT * FROM delta.`{path}` WHERE {condition}"
        here = sorted(row.k for row in frame.where(condition).collect())
        assert here == sorted(row["k"] for row in asked(oracle, query)), condition
        assert here, condition
    delta_rs_reads(spark, path, lines, tmp_path)


@pytest.mark.parametrize("maker", ["deltamerge", "delta-spark"])
def test_nested_not_null(maker: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    columns = "k INT, v STRING, s STRUCT<x: INT NOT NULL, m: STRUCT<z: STRING NOT NULL>>"
    path = str(tmp_path / "t")
    if maker == "delta-spark":
        asked(oracle, f"CREATE TABLE delta.`{path}` ({columns}) USING delta")
    else:
        schema = "STRUCT<x: INT NOT NULL, m: STRUCT<z: STRING NOT NULL>>"
        builder = DeltaTable.create(spark).location(path).addColumn("k", "INT").addColumn("v", "STRING")
        builder.addColumn("s", schema).execute()
    runs: list[Callable[[str], object]] = [partial(asked, oracle), partial(merge_sql, spark)]
    outcomes: list[bool] = []
    for value in (
        "named_struct('x', 1, 'm', named_struct('z', 'z'))",
        "named_struct('x', CAST(NULL AS INT), 'm', named_struct('z', 'z'))",
        "named_struct('x', 1, 'm', named_struct('z', CAST(NULL AS STRING)))",
        "named_struct('x', 1, 'm', CAST(NULL AS STRUCT<z: STRING>))",
        "CAST(NULL AS STRUCT<x: INT, m: STRUCT<z: STRING>>)",
    ):
        for number, run in enumerate(runs):
            statement = (
                f"MERGE INTO delta.`{path}` t USING (SELECT {2 * len(outcomes) + number} AS k, 'a' AS v, {value} AS s) "
                "s ON t.k = s.k WHEN NOT MATCHED THEN INSERT *"
            )
            try:
                run(statement)
                refused = False
            except (RequestFailed, PySparkException) as error:
                assert "NOT_NULL_CONSTRAINT_VIOLATED" in str(error) or "NOT NULL" in str(error), str(error)
                refused = True
            outcomes.append(refused)
    assert outcomes[::2] == outcomes[1::2], "delta-spark's and deltamerge's"
    assert outcomes[:6] == [False, False, True, True, True, True]
    assert oracle.ask("lines", path=path) == canonical_lines(DeltaTable.forPath(spark, path).toDF())


def test_column_mapping_that_only_one_list_names(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    """Delta 3.1 wrote such protocols; delta-spark takes the feature for one that is on, and so must we."""
    made(oracle, tmp_path / "made", "k INT, v STRING", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    path = str(shutil.copytree(tmp_path / "made", tmp_path / "t", ignore=shutil.ignore_patterns("*.crc")))
    first = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    lists = {"readerFeatures": [], "writerFeatures": ["columnMapping", "appendOnly", "invariants"]}
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **lists}
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    all_read(oracle, spark, path, FIRST)
    asked(oracle, UPSERT.format(path=path, values="(1, 'A'), (2, CAST(NULL AS STRING)), (6, 'F')"))
    all_read(oracle, spark, path, {1: "A", 3: "c", 4: "d", 5: "e", 6: "F"})
    merge_sql(spark, UPSERT.format(path=path, values="(3, 'C'), (4, CAST(NULL AS STRING)), (7, 'G')"))
    all_read(oracle, spark, path, {1: "A", 3: "C", 5: "e", 6: "F", 7: "G"})


def test_features_that_only_writers_know(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    names = {"vacuumProtocolCheck", "checkpointProtection"}
    supported = ", ".join(f"'delta.feature.{name}' = 'supported'" for name in sorted(names))
    path = made(
        oracle,
        tmp_path / "t",
        "k INT, v STRING",
        f"TBLPROPERTIES ({supported}, delta.checkpointInterval = 2)",
    )
    merged_in_turn(oracle, spark, path, FIRST)
    protocol = DeltaTable.forPath(spark, path).table.snapshot().protocol
    assert names <= (protocol.writer_features or set())


def test_columns_that_delta_spark_widened(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    columns = "k SMALLINT, v STRING, i INT, f FLOAT, s STRUCT<d: DECIMAL(5,2)>, a ARRAY<INT>, day DATE"
    path = made(oracle, tmp_path / "t", columns, "TBLPROPERTIES (delta.enableTypeWidening = true)")
    asked(
        oracle,
        f"UPDATE delta.`{path}` SET i = 7, f = 0.1, s = named_struct('d', 1.25), a = array(1) WHERE k > 1",
        *(
            f"ALTER TABLE delta.`{path}` ALTER COLUMN {column} TYPE {wider}"
            for column, wider in (
                ("k", "INT"), ("i", "BIGINT"), ("f", "DOUBLE"), ("s.d", "DECIMAL(12,4)"), ("a.element", "BIGINT"),
            )
        ),
        f"INSERT INTO delta.`{path}` VALUES "
        "(70000, 'x', 3000000000, 0.1, named_struct('d', 123456.1234), array(3000000000), NULL)",
    )  # fmt: skip
    lines = merged_in_turn(oracle, spark, path, {**FIRST, 70000: "x"})
    found = {row["k"]: row for row in map(json.loads, lines)}
    assert found[70000]["i"] == 3000000000
    assert (found[4]["i"], found[4]["a"]) == (7, [1])


@pytest.mark.parametrize(
    "properties",
    [
        "'delta.dataSkippingStatsColumns' = 'v,s.b,`x.y`', 'delta.columnMapping.mode' = 'name'",
        "'delta.dataSkippingNumIndexedCols' = '3'",
        "'delta.dataSkippingNumIndexedCols' = '0'",
    ],
)
def test_columns_that_have_statistics(
    properties: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path
) -> None:
    columns = "k INT, v STRING, s STRUCT<a: INT, b: INT, c: INT>, w INT"
    if "columnMapping" in properties:
        columns += ", `x.y` INT"
    path = made(oracle, tmp_path / "t", columns, f"TBLPROPERTIES ({properties})")
    runs: list[Callable[[str], object]] = [partial(asked, oracle), partial(merge_sql, spark)]
    for number, run in enumerate(runs):
        run(UPSERT.format(path=path, values=f"(2, 'B{number}')"))
    stats = []
    for version in (2, 3):
        (add,) = actions(path, version, "add")
        found = json.loads(add["stats"])
        groups = ("nullCount", "minValues", "maxValues")
        stats.append({group: found.get(group, {}) for group in groups})
    theirs, ours = stats
    assert theirs["nullCount"] == ours["nullCount"]
    assert _leaves(theirs["minValues"]) == _leaves(ours["minValues"])
    assert _leaves(theirs["maxValues"]) == _leaves(ours["maxValues"])
    all_read(oracle, spark, path, FIRST | {2: "B1"})


def _leaves(tree: dict[str, Any]) -> set[str]:
    return {name for name, value in tree.items() if value != {}}


@pytest.mark.parametrize("upgrader", ["deltamerge", "delta-spark"])
def test_protocols_that_are_upgraded_in_place(
    upgrader: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path
) -> None:
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true",
        "delta.enableInCommitTimestamps": "true",
        "delta.columnMapping.mode": "name",
    }
    path = str(tmp_path / "t")
    rows = spark.sql("SELECT * FROM VALUES " + ", ".join(map(str, FIRST.items())) + " AS x(k, v)").coalesce(1)
    write_delta(rows, path)
    assert actions(path, 0, "protocol")[0]["minWriterVersion"] < 7
    if upgrader == "deltamerge":
        write_delta(rows, path, mode="overwrite", properties=properties)
    else:
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        asked(oracle, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({listed})")
    (protocol,) = actions(path, latest_version(path), "protocol")
    wanted = {
        "deletionVectors",
        "changeDataFeed",
        "inCommitTimestamp",
        "columnMapping",
        "invariants",
        "appendOnly",
    }
    assert wanted <= set(protocol["writerFeatures"])
    assert {"deletionVectors", "columnMapping"} <= set(protocol["readerFeatures"])
    delta_rs_reads(spark, path, merged_in_turn(oracle, spark, path, FIRST), tmp_path)
    assert any("deletionVector" in add for add in actions(path, latest_version(path), "add"))
    assert actions(path, latest_version(path), "cdc")


def test_every_version_is_what_the_other_reads(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    options = "TBLPROPERTIES (delta.enableDeletionVectors = true, delta.checkpointInterval = 2)"
    path = made(oracle, tmp_path / "t", "k INT, v STRING", options)
    merged_in_turn(oracle, spark, path, FIRST)
    asked(oracle, f"ALTER TABLE delta.`{path}` ADD COLUMN w INT", f"DELETE FROM delta.`{path}` WHERE k > 10")
    table = DeltaTable.forPath(spark, path)
    # Milliseconds, so that each version is the latest of its time.
    times = {row.version: str(row.timestamp) for row in table.history().collect()}
    assert sorted(times) == list(range(latest_version(path) + 1))
    for version, timestamp in times.items():
        frames = {f"VERSION AS OF {version}": table.at(version)}
        if version in (2, 4):
            frames[f"TIMESTAMP AS OF '{timestamp}'"] = table.at(timestamp=timestamp)
        for asking, frame in frames.items():
            there = asked(oracle, f"SELECT * FROM delta.`{path}` {asking}")
            assert sorted(map(tuple, frame.collect())) == sorted(tuple(row.values()) for row in there)


def test_several_vectors_in_one_file(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    asked(
        oracle,
        f"CREATE TABLE delta.`{path}` (k INT, v STRING) USING delta TBLPROPERTIES (delta.enableDeletionVectors = true)",
        *(
            f"INSERT INTO delta.`{path}` SELECT /*+ COALESCE(1) */ CAST(id AS INT), CAST(id AS STRING) "
            f"FROM range({first}, {first + 100})"
            for first in (0, 100, 200)
        ),
        f"DELETE FROM delta.`{path}` WHERE k % 2 = 0",
    )
    adds = actions(path, latest_version(path), "add")
    assert len({add["deletionVector"]["pathOrInlineDv"] for add in adds}) == 1
    assert len({add["deletionVector"]["offset"] for add in adds}) == 3
    values = {k: str(k) for k in range(1, 300, 2)}
    all_read(oracle, spark, path, values)
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT * FROM range(0, 300, 3)) s ON t.k = s.id WHEN MATCHED THEN DELETE",
    )
    adds = actions(path, latest_version(path), "add")
    assert len({add["deletionVector"]["offset"] for add in adds}) == 3
    values = {k: v for k, v in values.items() if k % 3}
    lines = all_read(oracle, spark, path, values)
    delta_rs_reads(spark, path, lines, tmp_path)
    asked(
        oracle,
        f"MERGE INTO delta.`{path}` t USING (SELECT * FROM range(0, 300, 5)) s ON t.k = s.id WHEN MATCHED THEN DELETE",
    )
    all_read(oracle, spark, path, {k: v for k, v in values.items() if k % 5})


def test_two_thousand_columns(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    columns = ", ".join(f"CAST(id AS INT) AS c{number}" for number in range(2000))
    asked(
        oracle,
        f"CREATE TABLE delta.`{path}` USING delta AS SELECT CAST(id AS INT) AS k, {columns} FROM range(3)",
    )
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS k UNION ALL SELECT 9) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET c0 = -1, c999 = -2, c1999 = -3 WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)",
    )
    shown = ("k", "c0", "c998", "c999", "c1998", "c1999")
    frame = DeltaTable.forPath(spark, path).toDF()
    assert sorted(map(tuple, frame.select(*shown).collect())) == [
        (0, 0, 0, 0, 0, 0),
        (1, -1, 1, -2, 1, -3),
        (2, 2, 2, 2, 2, 2),
        (9, None, None, None, None, None),
    ]
    there = asked(oracle, f"SELECT {', '.join(shown)} FROM delta.`{path}`")
    assert sorted(tuple(row.values()) for row in there) == sorted(map(tuple, frame.select(*shown).collect()))
    delta_rs_reads(spark, path, list(canonical_lines(frame)), tmp_path)


def test_an_application_writes_once_whichever_engine_writes(
    oracle: LineProcess, spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    one = spark.range(1)
    settings = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"

    def appended_by_delta_spark(version: int) -> int:
        asked(
            oracle,
            f"SET {settings[0]} = nightly",
            f"SET {settings[1]} = {version}",
            f"INSERT INTO delta.`{path}` VALUES (9)",
        )
        return latest_version(path)

    assert write_delta(one, path, txn_app_id="nightly", txn_version=1) == 0
    try:
        assert appended_by_delta_spark(1) == 0
        assert appended_by_delta_spark(2) == 1
    finally:
        asked(oracle, *(f"RESET {name}" for name in settings))
    assert write_delta(one, path, "append", txn_app_id="nightly", txn_version=2) is None
    assert write_delta(one, path, "overwrite", txn_app_id="nightly", txn_version=3) == 2
    assert oracle.ask("lines", path=path) == ['{"id":0}']
