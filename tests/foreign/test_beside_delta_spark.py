"""Tables of many writers take a merge, delta-spark reads what it left, and merges over some."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from combinations import ALL
from corpus.canonical import canonical_lines
from deltamerge import DeltaTable
from oracle.client import LineProcess

from .any_merge import merged
from .tables import MANIFEST, WRITABLE, copied, next_numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

# What makes no other table for who merges into it.
NO_KIND = {
    "binary", "checkpoint-multipart", "deletion-vectors-uuid", "empty", "hadoop-checksums", "log-cleaned",
    "no-statistics", "plain", "sidecars", "version-checksum",
}  # fmt: skip


def kind_of(name: str) -> tuple[object, ...]:
    recorded = MANIFEST[name]
    protocol = recorded["protocol"]
    features = (frozenset(protocol.get("writerFeatures", ())), frozenset(recorded["features"]) - NO_KIND)
    return (protocol["minReaderVersion"], protocol["minWriterVersion"], *features)


def one_of_each_kind() -> frozenset[str]:
    """Chooses tables that delta-spark then merges into, too: of each kind the first that has rows."""
    # No merge may give rows the numbers of an identity column again: tests/oracle/test_own_columns.py takes those.
    names = [name for name in WRITABLE if not next_numbers(name)]
    names.sort(key=lambda name: MANIFEST[name]["rows"]["count"] == 0)
    return frozenset({kind_of(name): name for name in reversed(names)}.values())


OVER_OURS = one_of_each_kind()

# Each row goes and comes again.
MERGE_OF_ALL = (
    "MERGE INTO delta.`{path}` t USING (SELECT * FROM delta.`{path}`) s ON false "
    "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE"
)


@pytest.mark.parametrize("name", WRITABLE if ALL else sorted(OVER_OURS))
def test_delta_spark_confirms_a_merge(oracle: LineProcess, spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = copied(name, tmp_path)
    lines = merged(spark, name, path)
    assert oracle.ask("lines", path=path) == lines
    if name not in OVER_OURS:
        return
    (counts,) = oracle.ask("sql", statements=[MERGE_OF_ALL.format(path=path)])
    assert (counts["num_deleted_rows"], counts["num_inserted_rows"]) == (len(lines), len(lines))
    assert canonical_lines(DeltaTable.forPath(spark, path).toDF()) == lines
