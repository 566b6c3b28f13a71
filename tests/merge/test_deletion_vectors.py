"""Merges into tables with deletion vectors: what is read, what is written, who else can read it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import QueryBuilder
from pyspark.sql import functions as F

from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import DeltaConcurrentModificationException, DeltaRuntimeException
from deltamerge.log.actions import DeletionVectorDescriptor
from deltamerge.log.features.deletion_vectors import read_deletion_vectors, vector_path, z85_encode
from deltamerge.merge.limits import Limits
from deltamerge.storage.local_store import LocalStore

from .tables import (
    CONNECT,
    EXECUTOR,
    actions,
    changes,
    claim_rows,
    commit_info,
    delete_checksums,
    edited,
    files_below,
    folders_below,
    frame,
    latest_version,
    made_once,
    rows,
)
from .test_transactions import At

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltamerge import DeltaMergeBuilder


VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {**VECTORS, "delta.enableChangeDataFeed": "true"}
SWITCH = "spark.databricks.delta.merge.deletionVectors.persistent"


def table(spark: SparkSession, path: Path, properties: dict[str, str] = VECTORS, name: str = "t") -> str:
    """Makes a table of ids 0 to 9 in one file and 10 to 14 in another, v as id."""

    def make(folder: str) -> None:
        first = spark.range(10).selectExpr("id", "id AS v").coalesce(1)
        write_delta(first, folder, properties=properties)
        write_delta(spark.range(10, 15).selectExpr("id", "id AS v").coalesce(1), folder, mode="append")

    return made_once(path / name, f"vectors {properties}", make)


def merge(spark: SparkSession, path: str, ids: list[int]) -> DeltaMergeBuilder:
    """Begins a merge of rows (id, -id)."""
    source = frame(spark, "id BIGINT, v BIGINT", [(i, -i) for i in ids]).alias("s")
    return DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")


def delete(spark: SparkSession, path: str, ids: list[int]) -> dict[str, int]:
    return counted(merge(spark, path, ids).whenMatchedDelete())


def upsert(spark: SparkSession, path: str, ids: list[int]) -> dict[str, int]:
    return counted(merge(spark, path, ids).whenMatchedUpdateAll().whenNotMatchedInsertAll())


def counted(builder: DeltaMergeBuilder) -> dict[str, int]:
    """Runs a merge; gives its metrics of files, vectors and copies, in short."""
    metrics = builder.run().metrics
    return {
        short: metrics[f"numTarget{name}"]
        for short, name in {
            "removed": "FilesRemoved",
            "copied": "RowsCopied",
            "dv_added": "DeletionVectorsAdded",
            "dv_removed": "DeletionVectorsRemoved",
            "dv_updated": "DeletionVectorsUpdated",
        }.items()
    }


def holds(spark: SparkSession, path: str, expected: dict[int, int]) -> None:
    """Checks the table's rows, as deltamerge and as delta-rs read them."""
    wanted = sorted(expected.items())
    assert sorted(tuple(row) for row in DeltaTable.forPath(spark, path).toDF().collect()) == wanted
    assert sorted(read_by_delta_rs(path)) == wanted


def read_by_delta_rs(path: str) -> list[tuple[int, int]]:
    found = pa.table(QueryBuilder().register("t", DeltaRs(path)).execute("SELECT id, v FROM t"))
    return list(zip(*found.to_pydict().values(), strict=True))


def vector_file(vector: dict[str, Any]) -> str:
    """Gives the file of a vector with a relative path."""
    path = vector_path(DeletionVectorDescriptor("u", vector["pathOrInlineDv"], 1, 1, 1))
    assert path is not None
    return path


def test_vectors_grow_until_the_file_goes(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    assert upsert(spark, path, [1, 2, 10, 99]) == {
        "removed": 0, "copied": 0, "dv_added": 2, "dv_removed": 0, "dv_updated": 0,
    }  # fmt: skip
    values = {**{i: i for i in range(15)}, 1: -1, 2: -2, 10: -10, 99: -99}
    holds(spark, path, values)
    again = [add for add in actions(path, 2, "add") if "deletionVector" in add]
    assert {(a["path"], a.get("deletionVector") is None) for a in actions(path, 2, "remove")} == {
        (a["path"], True) for a in again
    }
    assert sorted(a["deletionVector"]["cardinality"] for a in again) == [1, 2]
    assert all(a["dataChange"] and not json.loads(a["stats"])["tightBounds"] for a in again)
    assert sorted(json.loads(a["stats"])["numRecords"] for a in again) == [5, 10]
    written = {vector_file(a["deletionVector"]) for a in again}
    assert len(written) == 1, "the vectors of one merge share a file"
    assert written <= files_below(path)

    assert delete(spark, path, [0, 3, 11]) == {
        "removed": 0, "copied": 0, "dv_added": 2, "dv_removed": 2, "dv_updated": 2,
    }  # fmt: skip
    for gone in (0, 3, 11):
        del values[gone]
    holds(spark, path, values)
    removed = {(a["path"], a["deletionVector"]["cardinality"]) for a in actions(path, 3, "remove")}
    assert removed == {(a["path"], a["deletionVector"]["cardinality"]) for a in again}

    # The rest of the second file goes.
    assert delete(spark, path, [12, 13, 14]) == {
        "removed": 1, "copied": 0, "dv_added": 0, "dv_removed": 1, "dv_updated": 0,
    }  # fmt: skip
    for gone in (12, 13, 14):
        del values[gone]
    holds(spark, path, values)
    assert commit_info(path, 4)["operationMetrics"]["numTargetBytesRemoved"] != "0"

    spark.conf.set(SWITCH, "false")
    assert upsert(spark, path, [4, 5]) == {
        "removed": 1, "copied": 4, "dv_added": 0, "dv_removed": 0, "dv_updated": 0,
    }  # fmt: skip
    holds(spark, path, {**values, 4: -4, 5: -5})
    assert all("deletionVector" not in add for add in actions(path, 5, "add"))
    assert DeltaTable.forPath(spark, path).at(version=2).count() == 16


@pytest.mark.sessions
def test_all_clauses_with_a_feed(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path, FEED)
    builder = (
        merge(spark, path, [1, 2, 11, 77])
        .whenMatchedDelete("s.id = 2")
        .whenMatchedUpdate(set={"v": "s.v"})
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceUpdate("t.id = 5", set={"v": "t.v + 100"})
        .whenNotMatchedBySourceDelete("t.id >= 13")
    )
    assert counted(builder)["copied"] == 0
    values = {i: i for i in range(13) if i != 2}
    holds(spark, path, {**values, 1: -1, 11: -11, 77: -77, 5: 105})
    feed = sorted((c["id"], c["_change_type"], c["v"]) for c in changes(path, latest_version(path)))
    assert feed == [
        (1, "update_postimage", -1),
        (1, "update_preimage", 1),
        (2, "delete", 2),
        (5, "update_postimage", 105),
        (5, "update_preimage", 5),
        (11, "update_postimage", -11),
        (11, "update_preimage", 11),
        (13, "delete", 13),
        (14, "delete", 14),
        (77, "insert", -77),
    ]
    delete(spark, path, [3, 4])
    assert sorted((c["id"], c["_change_type"]) for c in changes(path, latest_version(path))) == [
        (3, "delete"),
        (4, "delete"),
    ]


@pytest.mark.sessions
def test_several_matches_of_a_deleted_row(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    assert delete(spark, path, [3, 3, 3, 12])["dv_added"] == 2
    holds(spark, path, {i: i for i in range(15) if i not in (3, 12)})


def test_rows_of_a_large_file(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows_before = 150_000
    write_delta(spark.range(rows_before).selectExpr("id", "id AS v").coalesce(1), path, properties=VECTORS)
    gone = spark.range(rows_before).where("id % 7 = 0 OR id BETWEEN 40000 AND 80000").alias("s")
    target = DeltaTable.forPath(spark, path).alias("t")
    target.merge(gone, "t.id = s.id").whenMatchedDelete().execute()
    left = [i for i in range(rows_before) if i % 7 and not 40000 <= i <= 80000]
    assert [r[0] for r in target.toDF().select("id").orderBy("id").collect()] == left
    (add,) = actions(path, 1, "add")
    vector = DeletionVectorDescriptor(
        "u", *(add["deletionVector"][n] for n in ("pathOrInlineDv", "offset", "sizeInBytes", "cardinality"))
    )
    (positions,) = read_deletion_vectors(LocalStore(path), [vector]).values()
    assert sorted({*range(rows_before)} - {*positions}) == left
    assert sorted(key for key, _ in read_by_delta_rs(path)) == left


def test_partitions_with_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "a b%20+ü#'&=[x]{y};€😀")
    odd = ["x y", "100%", "a+b", "a/b=c:d", "ü€😀", "'\"", "", None, "[x]{y}*?", "#&;,@!$^~|<>"]
    before = [(i, odd[i % len(odd)]) for i in range(40)]
    source = frame(spark, "id INT, p STRING", before).coalesce(1)
    write_delta(source, path, partition_by="p", properties=VECTORS)
    target = DeltaTable.forPath(spark, path).alias("t")
    for ids in (range(10), range(20, 30)):
        some = frame(spark, "id INT", [(i,) for i in ids]).alias("s")
        target.merge(some, "t.id = s.id").whenMatchedDelete().execute()
    expected = [(i, p or None) for i, p in before if not (i < 10 or 20 <= i < 30)]
    assert [tuple(row) for row in target.toDF().orderBy("id").collect()] == expected


def test_vectors_of_a_file_without_statistics(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    for version in (0, 1):
        edited(path, version, lambda add: add.pop("stats"))
    delete(spark, path, [0, *range(10, 15)])
    (add,) = actions(path, 2, "add")
    assert json.loads(add["stats"]) == {"numRecords": 10, "tightBounds": False}
    holds(spark, path, {i: i for i in range(1, 10)})


@pytest.mark.parametrize("kind", ["i", "p"])
def test_inline_and_absolute_vectors(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    delete(spark, path, [1, 2])

    def change(add: dict[str, Any]) -> None:
        add["deletionVector"] = respelled(path, add["deletionVector"], kind)

    edited(path, 2, change)
    values = {i: i for i in range(15) if i not in (1, 2)}
    holds(spark, path, values)
    delete(spark, path, [3])
    del values[3]
    holds(spark, path, values)
    (removed,) = actions(path, 3, "remove")
    assert removed["deletionVector"]["storageType"] == kind


def respelled(path: str, vector: dict[str, Any], kind: str) -> dict[str, Any]:
    """Gives the same vector inline or with an absolute path."""
    if kind == "u":
        return vector
    file = Path(path, vector_file(vector))
    if kind == "p":
        return {**vector, "storageType": "p", "pathOrInlineDv": file.as_uri()}
    start = vector["offset"] + 4
    data = file.read_bytes()[start : start + vector["sizeInBytes"]]
    text = z85_encode(data + b"\0" * (-len(data) % 4))
    return {k: v for k, v in vector.items() if k != "offset"} | {"storageType": "i", "pathOrInlineDv": text}


def damage_vector(path: str) -> None:
    """Changes a bit in the table's only file of vectors."""
    (vector,) = (file for file in files_below(path) if file.endswith(".bin"))
    content = Path(path, vector).read_bytes()
    Path(path, vector).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.sessions
def test_two_merges_of_one_file(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    spark.conf.set("spark.deltamerge.merge.conflictRetries", "0")
    other = At("commit", lambda: delete(spark, path, [1]))
    before = files_below(path)
    with pytest.raises(DeltaConcurrentModificationException):
        merge(spark, path, [1, 2]).whenMatchedUpdateAll().run(progress=other)
    holds(spark, path, {i: i for i in range(15) if i != 1})
    new = {Path(file).suffix for file in files_below(path) - before if "_delta_log" not in file}
    assert new == {".bin"}, "the loser's rows and vectors are gone"
    assert sum(file.endswith(".bin") for file in files_below(path)) == 1


def test_two_merges_of_one_file_where_the_later_runs_again(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    other = At("commit", lambda: delete(spark, path, [1]))
    report = merge(spark, path, [2]).whenMatchedDelete().run(progress=other)
    assert report.metrics["numTargetRowsDeleted"] == 1
    holds(spark, path, {i: i for i in range(15) if i not in (1, 2)})
    assert sum(file.endswith(".bin") for file in files_below(path)) == 2


@pytest.mark.sessions
def test_a_failed_merge_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    delete(spark, path, [1])
    before = files_below(path), folders_below(path)
    damage_vector(path)
    with pytest.raises(Exception, match="DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH"):
        upsert(spark, path, [2, 50])
    assert (files_below(path), folders_below(path)) == before


def test_a_table_may_have_vectors_and_not_want_more(spark: SparkSession, tmp_path: Path) -> None:
    made = table(spark, tmp_path)
    delete(spark, made, [1])
    path = str(shutil.copytree(made, tmp_path / "copy"))
    first = Path(path) / "_delta_log" / f"{0:020d}.json"
    first.write_text(first.read_text().replace('"delta.enableDeletionVectors":"true"', '"x":"y"'))
    delete_checksums(path)
    assert upsert(spark, path, [2]) == {
        "removed": 1, "copied": 8, "dv_added": 0, "dv_removed": 0, "dv_updated": 0,
    }  # fmt: skip
    holds(spark, path, {**{i: i for i in range(15) if i != 1}, 2: -2})
    assert rows(DeltaTable.forPath(spark, path).toDF().where("id < 3").selectExpr("id")) == [(0,), (2,)]


@pytest.mark.sessions
@pytest.mark.parametrize("change", ["by source"] if CONNECT else ["upsert", "delete", "by source"])
def test_more_rows_than_the_driver_takes_positions_of(spark: SparkSession, tmp_path: Path, change: str) -> None:
    found = []
    for name, claimed in (("few", None), ("many", 1 << 30)):
        path = table(spark, tmp_path, name=name)
        for version in (0, 1):
            if claimed is not None:
                claim_rows(path, version, claimed)
        builder = merge(spark, path, [3, 4, 12, 77])
        builder = builder.whenMatchedDelete() if change == "delete" else builder.whenMatchedUpdateAll()
        if change == "by source":
            builder = builder.whenNotMatchedBySourceDelete("t.id IN (0, 3, 14)")
        spark.conf.set(EXECUTOR, "classic")
        report = builder.run()
        added = actions(path, report.version, "add")
        assert len({add["deletionVector"]["pathOrInlineDv"] for add in added if "deletionVector" in add}) == (
            1 if claimed is None else 2
        )
        kept = {k: v for k, v in report.metrics.items() if not k.endswith(("Ms", "Bytes"))}
        found.append((kept, rows(DeltaTable.forPath(spark, path).toDF())))
    assert found[0] == found[1]
    read_by_delta_rs(path)


@pytest.mark.sessions
@pytest.mark.parametrize("kind", ["u"] if CONNECT else ["u", "p", "i"])
def test_vectors_of_more_rows_than_the_driver_takes_a_bit_of(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltamerge.scan.undeleted_rows.MOST_BLOCKS", 0)
    path = table(spark, tmp_path, name="a b[1]%41")
    delete(spark, path, [3, 4, 12])
    if kind != "u":
        edited(path, 2, lambda add: add.update(deletionVector=respelled(path, add["deletionVector"], kind)))
    left = {i: i for i in range(15) if i not in (3, 4, 12)}
    read = DeltaTable.forPath(spark, path).toDF()
    assert rows(read) == sorted(left.items(), key=repr)
    if not CONNECT:
        plan = read._jdf.queryExecution().executedPlan().toString()
        assert ("binaryFile" in plan) == (kind != "i"), "tasks read the vectors' files"
    report = merge(spark, path, [3, 5, 77]).whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert report.metrics["numTargetRowsUpdated"] == 1
    left |= {3: -3, 5: -5, 77: -77}
    assert rows(DeltaTable.forPath(spark, path).toDF()) == sorted(left.items(), key=repr)


def test_one_vector_file_spelled_in_two_ways(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltamerge.scan.undeleted_rows.MOST_BLOCKS", 1)
    path = table(spark, tmp_path)
    delete(spark, path, [3, 12])
    adds = iter(range(2))
    edited(
        path,
        2,
        lambda add: add.update(deletionVector=respelled(path, add["deletionVector"], "up"[next(adds)])),
    )
    assert rows(DeltaTable.forPath(spark, path).toDF().select("id")) == sorted(
        ((i,) for i in range(15) if i not in (3, 12)), key=repr
    )


def test_paths_with_dots(spark: SparkSession, tmp_path: Path) -> None:
    table(spark, tmp_path)
    (tmp_path / "x").mkdir()
    path = f"{tmp_path}/x/../x/.././t"
    delete(spark, path, [3])
    spark.conf.set(EXECUTOR, "classic")
    upsert(spark, path, [4, 12])
    left = {**{i: i for i in range(15) if i != 3}, 4: -4, 12: -12}
    assert rows(DeltaTable.forPath(spark, path).toDF()) == sorted(left.items(), key=repr)


def test_damaged_vectors_of_very_many_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltamerge.scan.undeleted_rows.MOST_BLOCKS", 0)
    path = table(spark, tmp_path)
    delete(spark, path, [1])
    damage_vector(path)
    with pytest.raises(Exception, match=r"the deletion vector of .*\.parquet cannot be read: CRC checksum"):
        DeltaTable.forPath(spark, path).toDF().collect()


@pytest.mark.sessions
def test_other_rows_when_positions_are_looked_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltamerge.merge.preparation.LIMITS", Limits(positions=0))
    path = table(spark, tmp_path)
    before, changed = (files_below(path), rows(DeltaTable.forPath(spark, path).toDF())), tmp_path / "changed"
    chosen = F.udf(lambda i: i in ((3, 4) if changed.exists() else (3, 12)), "boolean")
    spark.conf.set(EXECUTOR, "classic")
    deleting = merge(spark, path, [3, 4, 12]).whenMatchedDelete(chosen("t.id"))
    with pytest.raises(DeltaRuntimeException) as raised:
        deleting.run(progress=At("write_deletion_vectors", changed.touch))
    assert raised.value.getCondition() == "DELTA_MERGE_SOURCE_CHANGED"
    assert (files_below(path), rows(DeltaTable.forPath(spark, path).toDF())) == before
