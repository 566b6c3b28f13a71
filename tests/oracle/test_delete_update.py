"""DELETE and UPDATE beside delta-spark: rows, metrics, change data and history of both."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from combinations import ALL
from corpus.canonical import canonical_lines
from deltamerge import DeltaTable
from merge.tables import actions, commit_info, latest_version

from .client import LineProcess
from .turns import asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oracle

PROPERTIES = {
    "plain": "'delta.enableDeletionVectors' = 'false'",
    "vectors": "'delta.enableDeletionVectors' = 'true'",
    "feed": "'delta.enableDeletionVectors' = 'false', 'delta.enableChangeDataFeed' = 'true'",
    "vectors and feed": "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'",
    "mapping": "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'",
    "row tracking": "'delta.enableDeletionVectors' = 'false', 'delta.enableRowTracking' = 'true'",
}
STATEMENTS: tuple[tuple[str, str | None, dict[str, str] | None], ...] = (
    ("some rows", "id % 3 = 0", {"v": "v + 1"}),
    ("a partition", "p = 'a'", {"v": "v + 1"}),
    ("moved to another partition", "id < 4", {"p": "'b'", "v": "0"}),
    ("rows again", "id IN (1, 3, 12) OR v IS NULL", {"v": "-v"}),
    ("no row", "id > 100", {"v": "0"}),
    ("some rows", "id % 4 = 1", None),
    ("a whole file", "id >= 10 AND p = 'b'", None),
    ("a partition", "p = 'a'", None),
    ("all", None, None),
)
# How many files rows go to is each engine's own choice.
UNLIKE = (
    "executionTimeMs", "scanTimeMs", "rewriteTimeMs", "numAddedFiles", "numAddedBytes", "numRemovedBytes",
    "numAddedChangeFiles",
)  # fmt: skip


def table(oracle: LineProcess, path: Path, properties: str) -> str:
    """Has delta-spark make a table of two partitions with two files each."""
    asked(
        oracle,
        f"CREATE TABLE delta.`{path}` (id BIGINT, v BIGINT, p STRING, g BIGINT GENERATED ALWAYS AS (v * 2)) "
        f"USING delta PARTITIONED BY (p) TBLPROPERTIES ({properties})",
        *(
            f"INSERT INTO delta.`{path}` (id, v, p) SELECT /*+ COALESCE(1) */ id, id * 10, IF(id % 2 = 0, 'a', 'b') "
            f"FROM range({first}, {first + 10})"
            for first in (0, 10)
        ),
    )
    return str(path)


def by_delta_spark(oracle: LineProcess, path: str, condition: str | None, values: dict[str, str] | None) -> None:
    where = "" if condition is None else f" WHERE {condition}"
    if values is None:
        asked(oracle, f"DELETE FROM delta.`{path}`{where}")
    else:
        asked(oracle, f"UPDATE delta.`{path}` SET {', '.join(f'{n} = {v}' for n, v in values.items())}{where}")


def committed(path: str) -> dict[str, Any]:
    info = commit_info(path, latest_version(path))
    info["operationMetrics"] = {k: v for k, v in info["operationMetrics"].items() if k not in UNLIKE}
    names = ("operation", "operationMetrics", "isolationLevel", "isBlindAppend", "tags", "readVersion")
    return {name: info.get(name) for name in names}


@pytest.mark.parametrize("feature", PROPERTIES if ALL else ["vectors and feed", "row tracking"])
def test_beside_delta_spark(feature: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    """The same statements on a table and its copy: the same rows, metrics and changes; each reads the other's."""
    ours, theirs = table(oracle, tmp_path / "ours", PROPERTIES[feature]), str(tmp_path / "theirs")
    shutil.copytree(ours, theirs)
    for what, condition, values in STATEMENTS:
        opened = DeltaTable.forPath(spark, ours)
        if values is None:
            opened.delete(condition)
        else:
            opened.update(condition, values)
        by_delta_spark(oracle, theirs, condition, values)
        expected = oracle.ask("lines", path=theirs)
        assert oracle.ask("lines", path=ours) == expected, what
        assert canonical_lines(DeltaTable.forPath(spark, ours).toDF()) == expected, what
        assert latest_version(ours) == latest_version(theirs), what
        assert committed(ours) == committed(theirs), what
        assert bool(actions(ours, latest_version(ours), "cdc")) == bool(actions(theirs, latest_version(ours), "cdc"))
        if "feed" in feature:
            version = latest_version(ours)
            rows = [
                asked(
                    oracle,
                    f"SELECT id, v, p, g, _change_type FROM table_changes_by_path('{path}', {version}) ORDER BY ALL",
                )
                for path in (ours, theirs)
            ]
            assert rows[0] == rows[1], what
        # Rows lie in other files from here on unless both go on from the same table.
        shutil.rmtree(ours)
        shutil.copytree(theirs, ours)
