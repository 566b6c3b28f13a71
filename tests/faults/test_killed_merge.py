"""A merge that is killed at any step, or around any write: old or new rows, and VACUUM finds what is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import QueryBuilder

from combinations import some
from deltamerge import DeltaTable, write_delta
from faults.images import Images, around_writes
from merge.tables import EXECUTOR, VECTORS, actions, files_below, frame, latest_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltamerge import DeltaMergeBuilder

SCHEMA = "id INT, v INT"
OLD = [(i, 0) for i in range(10)]
NEW = sorted([*((i, 0) for i in range(10) if i not in (3, 7)), (3, 1), (12, 1)])
CHANGE_DATA = {"delta.enableChangeDataFeed": "true"}
CASES = {
    "vectors": ("key_lookup", VECTORS),
    "patched": ("key_lookup", {}),
    "low_shuffle": ("low_shuffle", VECTORS | CHANGE_DATA),
    "classic": ("classic", CHANGE_DATA),
}


def table(spark: SparkSession, path: Path, properties: dict[str, str]) -> str:
    properties = {**properties, "delta.checkpointInterval": "1"}
    write_delta(frame(spark, SCHEMA, OLD).coalesce(1), str(path), properties=properties)
    return str(path)


def merge(spark: SparkSession, path: str) -> DeltaMergeBuilder:
    source = frame(spark, SCHEMA, [(3, 1), (7, -1), (12, 1)]).alias("s")
    target = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    return target.whenMatchedDelete("s.v < 0").whenMatchedUpdateAll().whenNotMatchedInsertAll("s.v > 0")


def read(path: str | Path) -> list[tuple[int, int]]:
    """Reads a table by delta-rs, which knows nothing of what is lying around."""
    rows = pa.table(QueryBuilder().register("t", DeltaRs(str(path))).execute("SELECT id, v FROM t")).to_pylist()
    return sorted((row["id"], row["v"]) for row in rows)


def named(path: str | Path) -> Iterator[str]:
    for version in range(latest_version(path) + 1):
        for kind in ("add", "cdc"):
            for action in actions(path, version, kind):
                yield action["path"]
                vector = action.get("deletionVector")
                if vector:
                    yield vector["pathOrInlineDv"][:-20]


def strays(path: str | Path) -> set[str]:
    """Returns the files that no commit names."""
    names = set(named(path))
    files = {name for name in files_below(path) if not name.startswith("_delta_log") and not name.endswith(".crc")}
    vectors = {name for name in files if name.endswith(".bin") and str(Path(name).parent) in names}
    return files - names - vectors


@pytest.mark.parametrize("case", some(CASES, 3))
def test_killed_anywhere(spark: SparkSession, tmp_path: Path, case: str) -> None:
    executor, properties = CASES[case]
    path = table(spark, tmp_path / "t", properties)
    spark.conf.set(EXECUTOR, executor)
    images = Images(Path(path), tmp_path / "images")
    with around_writes(images.take):
        merge(spark, path).run(progress=images)
    assert read(path) == NEW
    assert not strays(path)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")
    with_strays = []
    for what, image in images.taken.items():
        version = latest_version(image)
        assert read(image) == (OLD if version == 0 else NEW), what
        left = strays(image)
        would_go = DeltaTable.forPath(spark, str(image)).vacuum(0, dry_run=True).collect()
        removed = {action["path"] for v in range(version + 1) for action in actions(image, v, "remove")}
        changes = {action["path"] for v in range(version + 1) for action in actions(image, v, "cdc")}
        assert {row.path.removeprefix(f"file:{image}/") for row in would_go} - removed - changes == left, what
        with_strays += [what] if left else []
    assert with_strays
    landed = next(what for what, image in images.taken.items() if latest_version(image))
    for what in {with_strays[0], with_strays[len(with_strays) // 2], with_strays[-1], landed}:
        killed = str(images.taken[what])
        merge(spark, killed).run()
        assert read(killed) == NEW, what
        DeltaTable.forPath(spark, killed).vacuum(0)
        assert read(killed) == NEW, what
        assert not strays(killed), what


@pytest.mark.parametrize("case", ["vectors", "classic"])
def test_interrupted_anywhere(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """Ctrl-C: old or new rows, and nothing is left but where it may have come after the commit."""
    executor, properties = CASES[case]
    spark.conf.set(EXECUTOR, executor)
    seen: list[str] = []

    class Interrupt:
        def __init__(self, at: int) -> None:
            self.at = at

        def step(self, name: str, description: str) -> None:
            seen.append(name)
            if self.at == len(seen) - 1:
                raise KeyboardInterrupt

    for at in range(20):
        seen.clear()
        path = table(spark, tmp_path / str(at), properties)
        try:
            merge(spark, path).run(progress=Interrupt(at))
        except KeyboardInterrupt:
            assert read(path) == (NEW if seen[-1] == "refresh" else OLD), seen
            # Of what is interrupted in a commit it is not known whether it landed.
            assert seen[-1] == "commit" or not strays(path), seen
        else:
            break
    assert seen[-2:] == ["commit", "refresh"]
    assert at > 5
