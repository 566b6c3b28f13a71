"""Tables of many writers take a merge, delta-spark reads what it left, and merges over some."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.golden.tables import copied
from tests.golden.test_golden_tables import WRITABLE, merged

from corpus.canonical import canonical_lines
from deltamerge import DeltaTable
from oracle.client import LineProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

OVER_OURS = frozenset(
    {
        "connectors/data-reader-timestamp_ntz-id-mode",
        "connectors/dv-with-columnmapping",
        "connectors/hive/deltatbl-special-chars-in-partition-column",
        "connectors/log-replay-dv-key-cases",
        "connectors/type-widening-nested",
        "connectors/v2-checkpoint-json",
        "dat/check_constraints",
        "kernel/spark-shredded-variant-preview-delta",
        "rs/cdc_ict_table",
        "rs/cdf-table-with-cdc-and-dvs",
        "rs/partition-type-primitives",
    }
)
"""Tables that delta-spark then merges into, too: one of each kind."""

# Each row goes and comes again.
MERGE_OF_ALL = (
    "MERGE INTO delta.`{path}` t USING (SELECT * FROM delta.`{path}`) s ON false "
    "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE"
)


@pytest.mark.parametrize("name", WRITABLE)
def test_delta_spark_confirms_a_merge(
    oracle: LineProcess, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    path = copied(name, tmp_path)
    lines = merged(spark, path).lines
    assert oracle.ask("lines", path=path) == lines
    if name not in OVER_OURS:
        return
    (counts,) = oracle.ask("sql", statements=[MERGE_OF_ALL.format(path=path)])
    assert (counts["num_deleted_rows"], counts["num_inserted_rows"]) == (len(lines), len(lines))
    assert canonical_lines(DeltaTable.forPath(spark, path).toDF()) == lines
