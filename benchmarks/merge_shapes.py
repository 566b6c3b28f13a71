"""Merges that have a shape of their own: days with BY SOURCE clauses, change data, and a thousand columns.

    python benchmarks/merge_shapes.py

A table of 30 days, partitioned or with a file for each day, takes one day's snapshot: rows that the source
no longer has are deleted, of that day only. The same table takes change data: a source whose column ``op`` holds
for each row whether it is deleted, updated or inserted. A table of 1,000 columns has three of them updated. Beside
the times of deltamerge and delta-spark is how many of the table's files deltamerge scanned.

It needs the dependency group dev, Java and, for delta-spark, an environment of its own that it builds by
Maven when there is none (see tests/oracle/environment.py). The engines take turns, so that both see the
same machine; a time counts only where the table is what the merge must make of it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from merge_engines import ROOT, Engine, comparison, lineitem_settings

DAYS = 30
DAY = 17
ROWS_OF_DAY = 100_000
COLUMNS = 1_000
WIDE_ROWS = 5_000
WIDE_FILES = 4
EVERY = 21
"""Of so many rows of the wide table one is updated."""


@dataclass(frozen=True)
class Shape:
    """A table and a merge.

    Args:
        name: What it is.
        tables: The table's rows, one for each file.
        partition: The partition column, or None.
        source: The source's rows.
        result: What the table must hold afterwards.
        statement: The merge, with ``{target}`` for the table's path and ``{source}`` for the source's.
    """

    name: str
    tables: Callable[[], list[pa.Table]]
    partition: str | None
    source: Callable[[], pa.Table]
    result: Callable[[], pa.Table]
    statement: str

    def make(self, folder: Path) -> tuple[Path, Path]:
        """Make the table and the source; merges work on copies."""
        path, source = folder / "shape", folder / "shape-source"
        for old in (path, source):
            shutil.rmtree(old, ignore_errors=True)
        for rows in self.tables():
            by = [self.partition] if self.partition else None
            write_deltalake(path, rows, mode="append", partition_by=by)
        source.mkdir(parents=True)
        pq.write_table(self.source(), source / "source.parquet")
        return path, source

    def is_right(self, path: Path) -> bool:
        """Return whether a table is what the merge must make of it."""
        wanted = self.result()
        rows = DeltaTable(path).to_pyarrow_table(columns=wanted.column_names).cast(wanted.schema)
        return rows.sort_by("id").equals(wanted.sort_by("id"))


def day(number: int) -> pa.Table:
    """Return the rows of a day."""
    ids = np.arange(ROWS_OF_DAY, dtype=np.int64) + number * ROWS_OF_DAY
    return pa.table(
        {
            "id": ids,
            "day": np.full(ROWS_OF_DAY, number, dtype=np.int32),
            "amount": ids % 997,
            "note": pc.binary_join_element_wise("note", pa.array(ids).cast(pa.string()), " "),
        }
    )


def days() -> list[pa.Table]:
    """Return the rows of all days."""
    return [day(number) for number in range(DAYS)]


def snapshot_of_day() -> pa.Table:
    """Return the source: a tenth of the day's rows are missing, a tenth of the others has changed."""
    rows = day(DAY)
    kept = rows.filter(pc.not_equal(pc.bit_wise_and(rows["id"], 7), 0))
    changed = pc.equal(pc.bit_wise_and(kept["id"], 7), 1)
    amount = pc.if_else(changed, pc.add(kept["amount"], 1), kept["amount"])
    return kept.set_column(2, "amount", amount)


def days_after() -> pa.Table:
    """Return the rows of all days after the merge."""
    return pa.concat_tables([*(day(n) for n in range(DAYS) if n != DAY), snapshot_of_day()])


CHANGED_DAYS = 5
CHANGED_EVERY = 10
"""Of so many rows of these days one is in the change data."""


def change_data() -> pa.Table:
    """Return the source: of the changed rows the first is deleted, the others updated; each tenth is new as well."""
    rows = pa.concat_tables([day(number) for number in range(CHANGED_DAYS)])
    ids = rows["id"].to_numpy()
    changed = rows.filter(pa.array(ids % CHANGED_EVERY == 0))
    ids = changed["id"].to_numpy()
    ops = pa.array(np.where(ids % (2 * CHANGED_EVERY) == 0, "delete", "update"))
    changed = changed.set_column(2, "amount", pa.array(-ids)).append_column("op", ops)
    new = changed.filter(pa.array(ids % (10 * CHANGED_EVERY) == 0))
    new = new.set_column(0, "id", pc.subtract(pc.negate(new["id"]), 1))
    new = new.set_column(4, "op", pa.array(["insert"] * len(new)))
    # A delete that came late, for a row that is not there.
    late = new.slice(0, 1).set_column(0, "id", pa.array([-7])).set_column(4, "op", pa.array(["delete"]))
    return pa.concat_tables([changed, new, late])


def days_after_changes() -> pa.Table:
    """Return the rows of all days after the change data."""
    rows = pa.concat_tables(days())
    ids = rows["id"].to_numpy()
    stay = rows.filter(pa.array((ids >= CHANGED_DAYS * ROWS_OF_DAY) | (ids % CHANGED_EVERY != 0)))
    changes = change_data()
    return pa.concat_tables([stay, changes.filter(pc.not_equal(changes["op"], "delete")).drop_columns(["op"])])


def wide_file(number: int) -> pa.Table:
    """Return the rows of one file of the wide table."""
    ids = np.arange(WIDE_ROWS, dtype=np.int64) * WIDE_FILES + number
    return pa.table({"id": ids, **{f"c{i}": ids + i for i in range(1, COLUMNS)}})


def wide_source() -> pa.Table:
    """Return new values of three columns for some rows of each file."""
    ids = np.arange(0, WIDE_ROWS * WIDE_FILES, EVERY, dtype=np.int64)
    return pa.table({"id": ids, "c1": -ids, "c2": -ids, "c3": -ids})


def wide_after() -> pa.Table:
    """Return the wide table's rows after the merge."""
    rows = pa.concat_tables([wide_file(number) for number in range(WIDE_FILES)])
    hit = pc.equal(pc.subtract(rows["id"], pc.multiply(pc.divide(rows["id"], EVERY), EVERY)), 0)
    for i in (1, 2, 3):
        rows = rows.set_column(i, f"c{i}", pc.if_else(hit, pc.negate(rows["id"]), rows[f"c{i}"]))
    return rows


ABOUT = "deltamerge scanned {files_scanned} of {files_before} files by {executor}"
SNAPSHOT = (
    "MERGE INTO delta.`{target}` t USING parquet.`{source}` s ON t.id = s.id AND t.day = s.day "
    "WHEN MATCHED AND t.amount <> s.amount THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * "
    f"WHEN NOT MATCHED BY SOURCE AND t.day = {DAY} THEN DELETE"
)
CHANGES = (
    "MERGE INTO delta.`{{target}}` t USING parquet.`{{source}}` s ON {on} "
    "WHEN MATCHED AND s.op = 'delete' THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET id = s.id, day = s.day, amount = s.amount, note = s.note "
    "WHEN NOT MATCHED AND s.op <> 'delete' THEN INSERT (id, day, amount, note) "
    "VALUES (s.id, s.day, s.amount, s.note)"
)
SHAPES = (
    Shape("BY SOURCE, partitioned by day", days, "day", snapshot_of_day, days_after, SNAPSHOT),
    Shape("BY SOURCE, a file for each day", days, None, snapshot_of_day, days_after, SNAPSHOT),
    Shape("change data", days, None, change_data, days_after_changes, CHANGES.format(on="t.id = s.id")),
    Shape(
        "change data, partitioned by day",
        days,
        "day",
        change_data,
        days_after_changes,
        CHANGES.format(on="t.id = s.id AND t.day = s.day"),
    ),
    Shape(
        "3 of 1,000 columns",
        lambda: [wide_file(number) for number in range(WIDE_FILES)],
        None,
        wide_source,
        wide_after,
        "MERGE INTO delta.`{target}` t USING parquet.`{source}` s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET c1 = s.c1, c2 = s.c2, c3 = s.c3",
    ),
)


def merge(engine: Engine, shape: Shape, prepared: tuple[Path, Path], target: Path) -> dict[str, Any]:
    """Merge into a fresh copy and check it.

    Raises:
        SystemExit: The table is not what it must be.
    """
    table, source = prepared
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(table, target)
    answer = engine.merge_sql(shape.statement.format(target=target, source=source), {})
    if not shape.is_right(target):
        raise SystemExit(f"{engine.name} is wrong in {shape.name}: its table is in {target}")
    return answer


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="merges of each engine; the median counts")
    parser.add_argument("--warm-up", type=int, default=2, help="merges before those")
    parser.add_argument("--engines", default="deltamerge,delta-spark")
    parser.add_argument("--shapes", default="*", help="shapes by name, or patterns, between commas")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench")
    options = parser.parse_args()
    folder = options.folder.resolve()
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with ExitStack() as stack:
        engines = [
            stack.enter_context(Engine(name, lineitem_settings(name), folder / f"shapes-{name}.log"))
            for name in options.engines.split(",")
        ]
        for shape in SHAPES:
            if not any(fnmatch(shape.name, pattern) for pattern in options.shapes.split(",")):
                continue
            prepared = shape.make(folder)
            runs: dict[str, list[dict[str, Any]]] = {engine.name: [] for engine in engines}
            for _ in range(options.warm_up + options.repeat):
                for engine in engines:
                    runs[engine.name].append(merge(engine, shape, prepared, folder / f"shape-{engine.name}"))
            results[shape.name] = {name: answers[options.warm_up :] for name, answers in runs.items()}
            print(comparison(shape.name, results[shape.name], ABOUT), flush=True)
    (folder / "merge_shapes.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
