"""Small merges, sessions warm: deltamerge beside delta-spark with its defaults.

    python benchmarks/merge_small.py

Ten rows upserted into a ten-row table, and 1,000 rows into one file of a table of 20. Beside the times is how
many Spark jobs a merge of deltamerge takes, and what one job costs on this machine.

It needs the dependency group dev, Java and, for delta-spark, an environment of its own that it builds by
Maven when there is none (see tests/oracle/environment.py). The engines take turns, so that both see the
same machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from merge_engines import ROOT, SPARK, Engine, comparison


@dataclass(frozen=True)
class SmallCase:
    """A small upsert.

    Args:
        name: What it is.
        rows: Rows of each file of the table; their ids go on from file to file.
        files: Its files.
        first: The lowest id of the source.
        count: The source's rows; half of them are in the table.
    """

    name: str
    rows: int
    files: int
    first: int
    count: int

    def make(self, folder: Path) -> Path:
        """Make the table; merges work on copies."""
        path = folder / f"small-{self.files}-files"
        shutil.rmtree(path, ignore_errors=True)
        for file in range(self.files):
            ids = pa.array(range(file * self.rows, (file + 1) * self.rows), pa.int64())
            write_deltalake(path, pa.table({"id": ids, "v": self._texts("old", ids)}), mode="append")
        return path

    def query(self) -> str:
        """Write the source as SQL."""
        return f"SELECT id, concat('new ', id) AS v FROM range({self.first}, {self.first + self.count})"

    def is_right(self, table: Path) -> bool:
        """Return whether a table is what the merge must make of it."""
        files = [pq.read_table(uri.removeprefix("file://")) for uri in DeltaTable(table).file_uris()]
        rows = pa.concat_tables(f.cast(pa.schema({"id": pa.int64(), "v": pa.string()})) for f in files).sort_by("id")
        last = max(self.rows * self.files, self.first + self.count)
        ids = pa.array(range(last), pa.int64())
        is_new = pc.and_(pc.greater_equal(ids, self.first), pc.less(ids, self.first + self.count))
        wanted = pc.if_else(is_new, self._texts("new", ids), self._texts("old", ids))
        return rows["id"].combine_chunks().equals(ids) and rows["v"].combine_chunks().equals(wanted)

    @staticmethod
    def _texts(word: str, ids: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(word, ids.cast(pa.string()), " ")


CASES = (
    SmallCase("ten rows into ten", rows=10, files=1, first=5, count=10),
    SmallCase("1,000 rows into the last of 20 files", rows=100_000, files=20, first=1_999_500, count=1_000),
)
# Spark's and delta-spark's own defaults, as a user has them who sets nothing.
SETTINGS: dict[str, str | None] = {
    **SPARK,
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": None,
    "spark.databricks.delta.snapshotPartitions": None,
}
ABOUT = "deltamerge took {jobs} Spark jobs; a job of one row costs {job_seconds:.2f} s"
MERGE = (
    "MERGE INTO delta.`{target}` t USING source s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def merge(engine: Engine, case: SmallCase, prepared: Path, target: Path) -> dict[str, float]:
    """Merge into a fresh copy and check it; return the seconds, and the jobs where the engine counts them."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(prepared, target)
    answer = engine.merge_sql(MERGE.format(target=target), {"source": case.query()})
    if not case.is_right(target):
        raise SystemExit(f"{engine.name} is wrong: its table is in {target}")
    return answer


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9, help="merges of each engine; the median counts")
    parser.add_argument("--warm-up", type=int, default=15, help="merges before those")
    parser.add_argument("--engines", default="deltamerge,delta-spark")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench")
    options = parser.parse_args()
    folder = options.folder.resolve()
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    with ExitStack() as stack:
        names = options.engines.split(",")
        engines = [stack.enter_context(Engine(name, SETTINGS, folder / f"small-{name}.log")) for name in names]
        for case in CASES:
            prepared = case.make(folder)
            answers: dict[str, list[dict[str, float]]] = {name: [] for name in names}
            for _ in range(options.warm_up + options.repeat):
                for engine in engines:
                    answers[engine.name].append(merge(engine, case, prepared, folder / f"small-{engine.name}"))
            results[case.name] = {name: runs[options.warm_up :] for name, runs in answers.items()}
            print(comparison(case.name, results[case.name], ABOUT), flush=True)
    (folder / "merge_small.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
