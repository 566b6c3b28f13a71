"""Tables whose files know columns by other names: written, read, evolved, under both modes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import QueryBuilder, Schema, write_deltalake
from pyspark.errors import PySparkException

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException, DeltaTableException, DeltaUnsupportedFeatureException
from deltamerge.log.actions import Protocol
from deltamerge.log.protocol import writer_features
from log.logs import Log, add, metadata

from .tables import EXECUTOR, actions, delete_checksums, edited, files_below, latest_version, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEEP = "ARRAY<STRUCT<`in ner`: INT, m: MAP<STRING, STRUCT<w: INT>>>>"


def mapped_table(spark: SparkSession, path: Path, mode: str) -> str:
    """Makes a table with names that only mapping allows, nested fields, a partition column and a change feed."""
    builder = DeltaTable.create(spark).location(str(path)).addColumn("id", "INT")
    builder = builder.addColumn("my part", "STRING").addColumn("s", f"STRUCT<a: INT, `b,c`: {DEEP}>")
    builder = builder.partitionedBy("my part").property("delta.columnMapping.mode", mode)
    builder.property("delta.enableChangeDataFeed", "true").execute()
    first = (
        "SELECT 1 AS id, 'x=1' AS `my part`, "
        f"CAST(named_struct('a', 1, 'b,c', array(named_struct('i', 5, 'm', map('k', named_struct('w', 7))))) "
        f"AS STRUCT<a: INT, `b,c`: {DEEP}>) AS s UNION ALL SELECT 2, NULL, NULL"
    )
    write_delta(spark.sql(first).coalesce(1), str(path), mode="append")
    return str(path)


def fields(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Gives every field of a log's schema with its path of physical names, as Parquet nests them."""
    for field in schema["fields"]:
        own = (*path, field["metadata"]["delta.columnMapping.physicalName"])
        yield own, field
        yield from _within(field["type"], own)


def _within(data_type: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(data_type, dict):
        return
    if data_type["type"] == "struct":
        yield from fields(data_type, path)
    elif data_type["type"] == "array":
        yield from _within(data_type["elementType"], (*path, "[]"))
    else:
        yield from _within(data_type["keyType"], (*path, "{k}"))
        yield from _within(data_type["valueType"], (*path, "{v}"))


def ids_in(kind: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    """Gives the Parquet field ids of a file's columns and struct fields."""
    found: dict[tuple[str, ...], int] = {}
    for field in kind:
        own = (*path, field.name)
        found[own] = int((field.metadata or {})[b"PARQUET:field_id"])
        found |= _ids_within(field.type, own)
    return found


def _ids_within(kind: pa.DataType, path: tuple[str, ...]) -> dict[tuple[str, ...], int]:
    if pa.types.is_struct(kind):
        return ids_in([kind.field(i) for i in range(kind.num_fields)], path)
    if pa.types.is_map(kind):
        return _ids_within(kind.key_type, (*path, "{k}")) | _ids_within(kind.item_type, (*path, "{v}"))
    return _ids_within(kind.value_type, (*path, "[]")) if pa.types.is_list(kind) else {}


def log_schema(path: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Gives the newest schema and properties in the log."""
    found = [m for v in range(latest_version(path) + 1) for m in actions(path, v, "metaData")]
    return json.loads(found[-1]["schemaString"]), found[-1]["configuration"]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_merge_that_evolves_a_mapped_table(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    path = mapped_table(spark, tmp_path / "t", mode)
    before, _ = log_schema(path)
    spark.sql(
        "SELECT 1 AS id, 'p q' AS `my part`, named_struct('a', 10, 'new', 11) AS s, 12 AS `an other` "
        "UNION ALL SELECT 3, NULL, named_struct('a', 30, 'new', 31), 32"
    ).createOrReplaceTempView("src")
    merge_sql(
        spark,
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t USING src s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )

    found = DeltaTable.forPath(spark, path).toDF()
    shown = found.selectExpr("id", "`my part`", "s.a", "s.new", "s.`b,c`[0].`in ner`", "`an other`")
    assert rows(shown) == [
        (1, "p q", 10, 11, 5, 12),
        (2, None, None, None, None, None),
        (3, None, 30, 31, None, 32),
    ]
    assert rows(found.where("id = 1").selectExpr("s.`b,c`[0].m['k'].w")) == [(7,)]
    assert rows(found.where("`my part` = 'p q' AND s.a = 10").select("id")) == [(1,)]

    schema, configuration = log_schema(path)
    known = dict(fields(schema))
    ids = [field["metadata"]["delta.columnMapping.id"] for field in known.values()]
    assert sorted(ids) == list(range(1, len(known) + 1))
    assert configuration["delta.columnMapping.maxColumnId"] == str(len(known))
    old = dict(fields(before))
    assert {key: known[key]["metadata"] for key in old} == {key: f["metadata"] for key, f in old.items()}
    assert all(key[-1].startswith("col-") for key in known)

    version = latest_version(path)
    part = next(key[0] for key, field in known.items() if field["name"] == "my part")
    for kind in ("add", "cdc"):
        for file in actions(path, version, kind):
            assert set(file["partitionValues"]) == {part}
            schema_of_file = pq.read_schema(Path(path, unquote(file["path"])))
            data = [f for f in schema_of_file if f.name != "_change_type"]
            ids_of_file = ids_in(data)
            assert ids_of_file == {
                key: field["metadata"]["delta.columnMapping.id"] for key, field in known.items() if key[0] != part
            }
    column = next(key[0] for key, field in known.items() if field["name"] == "id")
    stats = [json.loads(file["stats"]) for file in actions(path, version, "add")]
    assert sorted(s["minValues"][column] for s in stats) == [1, 3]

    assert {r["id"]: (r["my part"], r["an other"]) for r in read_by_delta_rs(path)} == {
        1: ("p q", 12),
        2: (None, None),
        3: (None, 32),
    }


def read_by_delta_rs(path: str) -> list[dict[str, Any]]:
    """Reads a table with delta-rs."""
    return pa.table(QueryBuilder().register("t", DeltaRs(path)).execute("SELECT * FROM t")).to_pylist()


@pytest.mark.quick
def test_files_are_skipped_by_physical_names(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.range(0, 100, 1, 1).toDF("a b").createOrReplaceTempView("low")
    properties = {"delta.columnMapping.mode": "name"}
    write_delta(spark.table("low"), path, properties=properties)
    write_delta(spark.range(100, 200, 1, 1).toDF("a b"), path, mode="append")
    merged = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 5L AS k) s ON t.`a b` = s.k WHEN MATCHED THEN DELETE",
    )
    assert merged.metrics["numTargetFilesAfterSkipping"] == 1
    assert merged.metrics["numTargetRowsDeleted"] == 1
    before = json.loads(actions(path, 0, "metaData")[0]["schemaString"])
    write_delta(spark.range(3).toDF("a b"), path, mode="overwrite")
    assert log_schema(path)[0] == before
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(0,), (1,), (2,)]


def test_id_mode_finds_columns_of_other_writers_by_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    """Files that came with a table of another format keep the names that their columns had then."""
    path = mapped_table(spark, tmp_path / "t", "id")
    schema, _ = log_schema(path)
    fields_by_name = {field["name"]: field["metadata"] for _, field in fields(schema)}
    ids = {name: metadata["delta.columnMapping.id"] for name, metadata in fields_by_name.items()}
    # A conversion takes the names of its day for physical names: here that of a column which was `id` once.
    schema["fields"].append(
        {
            "name": "late",
            "type": "integer",
            "nullable": True,
            "metadata": {"delta.columnMapping.id": 99, "delta.columnMapping.physicalName": "was"},
        }
    )
    metadata = actions(path, 0, "metaData")[0]
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"]["delta.columnMapping.maxColumnId"] = "99"
    inner = pa.struct([field_with_id("odd", pa.int32(), ids["a"])])
    numbered = [field_with_id("Struct", inner, ids["s"]), field_with_id("was", pa.int32(), ids["id"])]
    values = [pa.array([{"odd": 9}], inner), pa.array([8], pa.int32())]
    file = Path(path, "foreign.parquet")
    pq.write_table(pa.Table.from_arrays(values, schema=pa.schema(numbered)), file)
    added = {
        "path": "foreign.parquet",
        "partitionValues": {fields_by_name["my part"]["delta.columnMapping.physicalName"]: "z"},
        "size": file.stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
    }
    commit = Path(path, "_delta_log", f"{latest_version(path) + 1:020d}.json")
    commit.write_text(json.dumps({"metaData": metadata}) + "\n" + json.dumps({"add": added}) + "\n")

    shown = ("id", "`my part`", "s.a", "s.`b,c`", "late")
    frame = DeltaTable.forPath(spark, path).toDF()
    assert rows(frame.where("id <> 1").selectExpr(*shown)) == [
        (2, None, None, None, None),
        (8, "z", 9, None, None),
    ]
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 8 AS k) s ON t.id = s.k WHEN MATCHED THEN UPDATE SET late = t.s.a",
    )
    frame = DeltaTable.forPath(spark, path).toDF()
    assert rows(frame.where("late IS NOT NULL").selectExpr(*shown)) == [(8, "z", 9, None, 9)]


@pytest.mark.quick
def test_id_mode_finds_fields_in_every_kind_of_list(spark: SparkSession, tmp_path: Path) -> None:
    struct = pa.struct([field_with_id("odd", pa.int32(), 2)])

    def column(name: str, number: int, kind: object) -> dict[str, object]:
        mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name.upper()}
        return {"name": name, "type": kind, "nullable": True, "metadata": mapped}

    element = {"type": "struct", "fields": [column("x", 2, "integer")]}
    items = {"type": "array", "elementType": element, "containsNull": True}
    of_table = metadata(
        schemaString=json.dumps({"type": "struct", "fields": [column("items", 1, items)]}),
        configuration={"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "2"},
    )
    files = []
    for number, kind in enumerate((pa.list_(struct), pa.large_list(struct), pa.list_(struct, 1), pa.list_view(struct))):
        path = tmp_path / f"{number}.parquet"
        values = pa.array([[{"odd": number}]], kind)
        pq.write_table(pa.Table.from_arrays([values], schema=pa.schema([field_with_id("Items", kind, 1)])), path)
        files.append(add(path.name, size=path.stat().st_size))
    Log(tmp_path).commit({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, of_table, *files)
    frame = DeltaTable.forPath(spark, str(tmp_path)).toDF()
    assert rows(frame.selectExpr("items[0].x AS x")) == [(0,), (1,), (2,), (3,)]


def field_with_id(name: str, kind: pa.DataType, number: int) -> pa.Field:
    """Gives an Arrow field with a Parquet field id."""
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


def test_the_versions_that_are_asked_for_are_enough(spark: SparkSession, tmp_path: Path) -> None:
    properties = {
        "delta.columnMapping.mode": "name",
        "delta.minReaderVersion": "2",
        "delta.minWriterVersion": "5",
    }
    for name, more, expected in (
        ("plain", {}, (2, 5, None, None)),
        (
            "more",
            {"delta.enableTypeWidening": "true"},
            (3, 7, {"columnMapping", "typeWidening"}, writer_features(Protocol(2, 5)) | {"typeWidening"}),
        ),
    ):
        path = tmp_path / name
        builder = DeltaTable.create(spark).location(str(path)).addColumn("a b", "INT")
        for key, value in {**properties, **more}.items():
            builder = builder.property(key, value)
        builder.execute()
        protocol = actions(path, 0, "protocol")[0]
        lists = (protocol.get(key) for key in ("readerFeatures", "writerFeatures"))
        found = tuple(None if features is None else set(features) for features in lists)
        assert (protocol["minReaderVersion"], protocol["minWriterVersion"], *found) == expected
        _, configuration = log_schema(str(path))
        assert set(configuration) == {"delta.columnMapping.mode", "delta.columnMapping.maxColumnId", *more}


def test_odd_names_need_mapping(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a b", "a,b", "a;b", "a=b", "a{b"):
        with pytest.raises(DeltaAnalysisException) as caught:
            DeltaTable.create(spark).location(str(tmp_path / "t")).addColumn(name, "INT").execute()
        assert caught.value.getErrorClass() == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
        assert name in str(caught.value)
    assert not (tmp_path / "t").exists()
    path = str(tmp_path / "plain")
    write_delta(spark.range(1), path)
    with pytest.raises(PySparkException) as raised:
        merge_sql(
            spark,
            f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t USING (SELECT 1L AS id, 2 AS `a b`) s "
            "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
        )
    assert raised.value.getErrorClass() == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
    assert latest_version(path) == 0


@pytest.mark.parametrize(
    ("features", "properties", "partitioned_by"),
    [
        ({"timestampNtz"}, {"delta.columnMapping.mode": "name"}, []),
        ({"timestampNtz"}, {"delta.columnMapping.mode": "id"}, ["p"]),
        (
            {"deletionVectors"},
            {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"},
            ["p"],
        ),
    ],
)
def test_mapping_that_the_protocol_does_not_have(
    features: set[str],
    properties: dict[str, str],
    partitioned_by: list[str],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """delta-rs sets ids and physical names in tables whose protocol lists other features, and maps nothing."""
    path = str(tmp_path / "t")
    values = {"k": pa.array([1, 2, 3], pa.int32()), "p": ["x", "y", None]}
    if "timestampNtz" in features:
        values["at"] = pa.array([1, 2, 3], pa.timestamp("us"))
    source = pa.table(values)
    DeltaRs.create(path, Schema.from_arrow(source.schema), partition_by=partitioned_by, configuration=properties)
    write_deltalake(path, source, mode="append")
    protocol = DeltaRs(path).protocol()
    assert features <= set(protocol.writer_features or ())
    assert "columnMapping" not in (protocol.writer_features or ())
    metadata = actions(path, 0, "metaData")[0]
    assert all(
        "delta.columnMapping.physicalName" in field["metadata"]
        for field in json.loads(metadata["schemaString"])["fields"]
    )

    frame = DeltaTable.forPath(spark, path).toDF()
    assert rows(frame.select("k", "p")) == [(1, "x"), (2, "y"), (3, None)]
    assert rows(frame.where("k > 1 AND p = 'y'").select("k", "p")) == [(2, "y")]
    before = files_below(path)
    for write in (
        lambda: write_delta(frame.limit(1), path, mode="append"),
        lambda: write_delta(frame.limit(1), path, mode="overwrite"),
        lambda: merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE",
        ),
    ):
        with pytest.raises(DeltaUnsupportedFeatureException, match="columnMapping") as raised:
            write()
        assert raised.value.getCondition() == "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH"
    assert files_below(path) == before


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapping_that_only_the_writer_features_name(mode: str, spark: SparkSession, tmp_path: Path) -> None:
    """Delta 3.1 wrote such tables, which read as NULL in every column."""
    path = mapped_table(spark, tmp_path / "t", mode)
    file = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    features = ["appendOnly", "changeDataFeed", "columnMapping", "invariants"]
    lists = {"readerFeatures": [], "writerFeatures": features}
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **lists}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    delete_checksums(path)

    assert rows(DeltaTable.forPath(spark, path).toDF().select("id", "my part")) == [(1, "x=1"), (2, None)]
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT id FROM VALUES (2), (3) AS s(id)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET `my part` = 'two' WHEN NOT MATCHED THEN INSERT (id) VALUES (id)",
    )
    assert rows(DeltaTable.forPath(spark, path).toDF().select("id", "my part")) == [(1, "x=1"), (2, "two"), (3, None)]


@pytest.mark.parametrize("executor", ["auto", "classic"])
@pytest.mark.parametrize("with_stats", [True, False])
def test_files_under_other_names_are_refused(
    executor: str, with_stats: bool, spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(1, 2)], "k INT, v INT").coalesce(1), path)
    (added,) = actions(path, 0, "add")
    file = tmp_path / "t" / unquote(added["path"])
    pq.write_table(pa.table({"x": pa.array([1], pa.int32())}), file)
    stats = json.dumps({"numRecords": 1, "nullCount": {"x": 0}}) if with_stats else None
    edited(path, 0, lambda add: add.update(stats=stats, size=file.stat().st_size))
    before = files_below(path)
    with pytest.raises(DeltaTableException, match=r"`k`, `v`.* columns are `x`") as raised:
        DeltaTable.forPath(spark, path).toDF()
    assert raised.value.getCondition() == "DELTAMERGE_FILE_WITHOUT_COLUMNS"
    spark.conf.set(EXECUTOR, executor)
    with pytest.raises(DeltaTableException, match=r"`k`, `v`.* columns are `x`"):
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING (SELECT id AS k, 1 AS v FROM RANGE(3)) s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        )
    assert files_below(path) == before
