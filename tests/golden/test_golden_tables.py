"""Tables of many writers: each is read as delta-spark reads it, and takes a merge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from conftest import CONNECT
from deltamerge import DeltaTable
from deltamerge.exceptions import DeltaUnsupportedFeatureException
from golden.tables import (
    MANIFEST,
    REFUSED,
    canonical_lines,
    checksum,
    copied,
    golden_merge,
    needs_to_read,
    needs_to_write,
    next_numbers,
    parameter,
    quoted,
)
from log.golden import FOLDER, require_golden_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One of each kind; the others run with the slow tests.
QUICK = frozenset(
    {
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
MERGED_QUICK = frozenset({"rs/cdf-table-with-cdc-and-dvs"})
REFUSED_TABLES = {
    name: REFUSED[feature]
    for name, told in MANIFEST.items()
    for feature in told["features"]
    if feature in REFUSED
}
UNREADABLE = [name for name, told in MANIFEST.items() if "error" in told]
READABLE = [name for name, told in MANIFEST.items() if "rows" in told]


def test_golden_tables_are_there() -> None:
    require_golden_tables()


@pytest.mark.parametrize(
    "name", [parameter(name, needs_to_read(name), quick=name in QUICK) for name in READABLE]
)
def test_rows_are_what_delta_spark_reads(spark: SparkSession, name: str) -> None:
    told = MANIFEST[name]
    lines = canonical_lines(DeltaTable.forPath(spark, str(FOLDER / name)).toDF())
    assert len(lines) == told["rows"]["count"]
    assert lines[: len(told["rows"].get("sample", ()))] == told["rows"].get("sample", [])
    assert lines == told["rows"].get("full", lines)
    assert checksum(lines) == told["rows"]["checksum"]


@pytest.mark.parametrize("name", [parameter(n, needs_to_read(n), quick=True) for n in UNREADABLE])
def test_broken_table_gives_an_error_that_says_why(spark: SparkSession, name: str) -> None:
    told = MANIFEST[name]["error"]
    # Over Connect it is Spark that says which file is missing.
    with pytest.raises(PySparkException) as raised:
        canonical_lines(DeltaTable.forPath(spark, str(FOLDER / name)).toDF())
    if told["class"] == "FileNotFoundException":
        missing = raised.value.getCondition()
        assert missing == "PATH_NOT_FOUND" if CONNECT else "FAILED_READ_FILE.FILE_NOT_EXIST"
        assert f"golden/{name}/" in str(raised.value)
    elif "catalog-managed" in MANIFEST[name]["features"]:
        assert "catalog" in str(raised.value)
    else:
        assert raised.value.getCondition() == told["class"]


def merged(spark: SparkSession, name: str, path: str) -> list[str]:
    """Merges into a copy of a table, checks counts and rows, and gives the rows."""
    table = DeltaTable.forPath(spark, path)
    frame, numbers = table.toDF(), next_numbers(name)
    merge = golden_merge(spark, frame, numbers)
    values = {quoted(column): f"s.{quoted(column)}" for column in merge.given}
    builder = table.alias("t").merge(merge.source.alias("s"), merge.condition)
    builder = builder.whenMatchedDelete("s.__op = 'delete'")
    if merge.changed is not None:
        builder = builder.whenMatchedUpdate("s.__op = 'update'", {quoted(merge.changed): "s.__new"})
    metrics = builder.whenNotMatchedInsert("s.__op = 'insert'", values).run().metrics
    assert merge.counts == tuple(
        metrics[f"numTargetRows{what}"] for what in ("Updated", "Deleted", "Inserted")
    )
    after = DeltaTable.forPath(spark, path).toDF()
    given = {column: after.agg(F.max(quoted(column))).collect()[0][0] for column in numbers}
    # Which of the numbers that come next a row gets is the engine's own matter.
    assert all(given[column] >= number for column, number in numbers.items())
    lines = canonical_lines(after)
    assert lines == merge.lines(frame.schema, given)
    return lines


WRITABLE = [
    parameter(name, needs_to_write(name), quick=name in MERGED_QUICK)
    for name in READABLE
    if name not in REFUSED_TABLES and "writeError" not in MANIFEST[name]
]


# The others are merged into beside delta-spark, on classic Spark.
@pytest.mark.parametrize("name", [p for p in WRITABLE if p.values[0] in (QUICK if CONNECT else MERGED_QUICK)])
def test_takes_a_merge(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = copied(name, tmp_path)
    merged(spark, name, path)
    assert DeltaTable.forPath(spark, path).table.snapshot().version == MANIFEST[name]["version"] + 1


@pytest.mark.parametrize(
    "name", [parameter(name, needs_to_read(name), quick=False) for name in REFUSED_TABLES]
)
def test_refuses_a_merge_by_the_features_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = copied(name, tmp_path)
    with pytest.raises(DeltaUnsupportedFeatureException, match=REFUSED_TABLES[name]):
        merged(spark, name, path)
    assert DeltaTable.forPath(spark, path).table.snapshot().version == MANIFEST[name]["version"]
