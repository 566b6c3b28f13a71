"""Tables of other engines: each is read as delta-spark reads it, and takes a merge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from corpus.canonical import canonical_lines
from deltamerge import DeltaTable
from deltamerge.exceptions import DeltaUnsupportedFeatureException
from merge.tables import CONNECT

from .any_merge import merged
from .tables import FOLDER, MANIFEST, OWN, REFUSED_TABLES, WRITABLE, checksum, copied, manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


UNREADABLE = [name for name, recorded in MANIFEST.items() if "error" in recorded]
READABLE = [name for name, recorded in MANIFEST.items() if "rows" in recorded]
# One of each kind; all are merged into beside delta-spark.
MERGED = frozenset(
    {
        "deletion-vectors",
        "log-compaction-by-delta-rs",
        "special-characters-column-names",
        "types-legacy-parquet",
        "connectors/data-reader-escaped-chars",
        "connectors/data-reader-date-types-Etc/GMT+9",
        "connectors/kernel-timestamp-PST",
        "connectors/multi-part-checkpoint",
        "connectors/parquet-all-types-legacy-format",
        "connectors/table-with-columnmapping-mode-name",
        "connectors/type-widening-nested",
        "connectors/v2-checkpoint-json",
        "kernel/spark-shredded-variant-preview-delta",
        "rs/cdf-table-with-cdc-and-dvs",
        "rs/partition-type-primitives",
        "spark/transaction_log_schema_evolvability",
    }
)


@pytest.mark.quick
@pytest.mark.parametrize("name", READABLE)
def test_rows_are_what_delta_spark_reads(spark: SparkSession, name: str) -> None:
    recorded = MANIFEST[name]["rows"]
    frame = DeltaTable.forPath(spark, str(FOLDER / name)).toDF()
    if spark.version.startswith("4.0.") and name in ("variant", "variant-shredded"):
        # Its Parquet library knows no such annotation of a column.
        with pytest.raises(Exception, match="FAILED_READ_FILE"):
            frame.collect()
        return
    lines = canonical_lines(frame)
    assert len(lines) == recorded["count"]
    assert lines[: len(recorded.get("sample", ()))] == recorded.get("sample", [])
    assert lines == recorded.get("full", lines)
    assert checksum(lines) == recorded["checksum"]


@pytest.mark.quick
@pytest.mark.parametrize("folder", ["a b%:=#+é漢", "a%20b"])
def test_paths_with_special_characters(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    path = copied("plain", tmp_path / folder, OWN)
    lines = canonical_lines(DeltaTable.forPath(spark, path).toDF())
    assert lines == manifest(OWN)["plain"]["rows"]["full"]


@pytest.mark.quick
@pytest.mark.parametrize("name", UNREADABLE)
def test_broken_table_gives_an_error_that_says_why(spark: SparkSession, name: str) -> None:
    recorded = MANIFEST[name]
    with pytest.raises(PySparkException) as raised:
        canonical_lines(DeltaTable.forPath(spark, str(FOLDER / name)).toDF())
    if "no-data-files" in recorded["features"]:
        # Over Connect it is Spark that says which file is missing.
        missing = "PATH_NOT_FOUND" if CONNECT else "FAILED_READ_FILE.FILE_NOT_EXIST"
        assert raised.value.getCondition() == missing
        assert f"{FOLDER.name}/{name}/" in str(raised.value)
    elif "catalog-managed" in recorded["features"]:
        assert "catalog" in str(raised.value)
    else:
        assert raised.value.getCondition() == recorded["error"]["class"]


@pytest.mark.sessions
@pytest.mark.parametrize("name", [name for name in WRITABLE if name in MERGED])
def test_takes_a_merge(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = copied(name, tmp_path)
    merged(spark, name, path)
    assert DeltaTable.forPath(spark, path).table.snapshot().version == MANIFEST[name]["version"] + 1


@pytest.mark.quick
@pytest.mark.parametrize("name", REFUSED_TABLES)
def test_refuses_a_merge_by_the_features_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = copied(name, tmp_path)
    with pytest.raises(DeltaUnsupportedFeatureException, match=REFUSED_TABLES[name]):
        merged(spark, name, path)
    assert DeltaTable.forPath(spark, path).table.snapshot().version == MANIFEST[name]["version"]
