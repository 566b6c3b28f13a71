"""The lineitem tables in two layouts, the merges' sources, and what each merge must come to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import convert_to_deltalake

from merge_cases import MergeCase
from merge_checksum import Checksum, rows_checksum

FILES = 20
LAYOUTS = ("sorted", "shuffled")
_SEED = 20240229
# About as many as Spark writes into one.
_SOURCE_ROWS_OF_A_FILE = 1_000_000


@dataclass(frozen=True)
class Layout:
    """A prepared Delta table, never merged into: merges work on copies.

    Args:
        name: ``sorted`` (files hold disjoint key ranges) or ``shuffled`` (each holds keys of all ranges).
        path: The table's folder.
        files: Checksums by file name.
    """

    name: str
    path: Path
    files: dict[str, Checksum]

    @property
    def checksum(self) -> Checksum:
        """Sums up the whole table."""
        return sum(self.files.values(), Checksum(0, 0))

    def copy(self, path: Path, *, deletion_vectors: bool = False) -> None:
        """Make a fresh copy; data files are linked, since no engine changes them in place.

        Args:
            path: Where to; what is there is deleted.
            deletion_vectors: Whether merges into the copy may write deletion vectors.
        """
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.path / "_delta_log", path / "_delta_log")
        if deletion_vectors:
            _enable_deletion_vectors(path / "_delta_log" / f"{0:020}.json")
        for name in self.files:
            os.link(self.path / name, path / name)


@dataclass(frozen=True)
class Source:
    """A merge's source.

    Args:
        path: A folder with one Parquet file.
        rows: Its number of rows.
        result: What the table must come to.
    """

    path: Path
    rows: int
    result: Checksum


def generator() -> str:
    """Find ``tpchgen-cli``, beside this Python or on the path."""
    found = shutil.which("tpchgen-cli", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        raise SystemExit("tpchgen-cli is missing: install the dependency group 'bench' (uv sync --group bench)")
    return found


def prepare(folder: Path, scale: float, name: str) -> Layout:
    """Make a layout of lineitem at a scale, or take the one that is there."""
    place = folder / f"lineitem-{scale:g}"
    table, description = place / name, place / f"{name}.json"
    if not description.exists():
        shutil.rmtree(table, ignore_errors=True)
        if name == "sorted":
            _generate(place, table, scale)
        else:
            _shuffle(prepare(folder, scale, "sorted"), table)
        sums = _to_delta(table)
        description.write_text(json.dumps({file: asdict(value) for file, value in sums.items()}))
    sums = json.loads(description.read_text())
    return Layout(name, table, {file: Checksum(**value) for file, value in sums.items()})


def _generate(place: Path, table: Path, scale: float) -> None:
    command = [generator(), "parquet", "--quiet", f"--scale-factor={scale:g}", "--tables=lineitem"]
    output = place / "generated"
    shutil.rmtree(output, ignore_errors=True)
    subprocess.run([*command, f"--parts={FILES}", "--field-ids=false", f"--output-dir={output}"], check=True)
    (output / "lineitem").rename(table)
    shutil.rmtree(output)


def _shuffle(ordered: Layout, table: Path) -> None:
    random = np.random.default_rng(_SEED)
    parts: list[list[pa.Table]] = [[] for _ in range(FILES)]
    for name in sorted(ordered.files):
        rows = read(ordered.path / name)
        order = random.permutation(rows.num_rows)
        for number, part in enumerate(parts):
            part.append(rows.take(order[number::FILES]))
    table.mkdir(parents=True)
    for number, part in enumerate(parts):
        pq.write_table(pa.concat_tables(part), table / f"lineitem.{number + 1}.parquet", row_group_size=1 << 17)


def _to_delta(table: Path) -> dict[str, Checksum]:
    convert_to_deltalake(table)
    log = table / "_delta_log" / f"{0:020}.json"
    # TPC-H's columns are NOT NULL; the tables of MergeBenchmark have no such constraints to be checked.
    log.write_text(log.read_text().replace(r"\"nullable\":false", r"\"nullable\":true"))
    return {path.name: rows_checksum(read(path)) for path in sorted(table.glob("*.parquet"))}


def _enable_deletion_vectors(commit: Path) -> None:
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors", "appendOnly", "invariants"],
            }
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.enableDeletionVectors"] = "true"
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


def read(path: Path) -> pa.Table:
    """Read a file of lineitem, with plain and nullable types."""
    rows = pq.read_table(path)
    return rows.cast(pa.schema([(f.name, pa.string() if f.type == pa.string_view() else f.type) for f in rows.schema]))


def make_source(layout: Layout, case: MergeCase) -> Source:
    """Make a case's source, or take the one that is there.

    Matched rows are drawn from the files without putting back and get another quantity and comment. New rows
    are drawn in the same way; TPC-H's order keys use 8 of every 32 numbers, so that their key + 8 is new,
    between the old ones.
    """
    deletes = any(clause.kind == "delete" for clause in case.clauses)
    fractions = f"{case.files:g}-{case.matched:g}-{case.not_matched:g}" + ("-delete" if deletes else "")
    fractions += "" if case.in_order else "-unordered"
    path = layout.path.with_name(f"{layout.name}-source-{fractions}")
    description = path / "_description.json"
    if not description.exists():
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        old, matched, new = _draw(layout, case)
        rows = pa.concat_tables([matched, new])
        if not case.in_order:
            rows = rows.take(np.random.default_rng(_SEED).permutation(len(rows)))
        for number, first in enumerate(range(0, len(rows), _SOURCE_ROWS_OF_A_FILE)):
            some = rows.slice(first, _SOURCE_ROWS_OF_A_FILE)
            pq.write_table(some, path / f"source-{number:05d}.parquet", row_group_size=1 << 17)
        result = layout.checksum - rows_checksum(old) + rows_checksum(new)
        result = result if deletes else result + rows_checksum(matched)
        values = {"rows": matched.num_rows + new.num_rows, "result": asdict(result)}
        description.write_text(json.dumps(values))
    values = json.loads(description.read_text())
    return Source(path, values["rows"], Checksum(**values["result"]))


def _draw(layout: Layout, case: MergeCase) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Draws the target's rows that match, what the source has for them, and the source's new rows."""
    random = np.random.default_rng(_SEED)
    names = sorted(layout.files)
    chosen = sorted(random.choice(len(names), max(1, round(case.files * len(names))), replace=False))
    old: list[pa.Table] = []
    new: list[pa.Table] = []
    for number in chosen:
        rows = read(layout.path / names[number])
        for drawn, fraction in ((old, case.matched), (new, case.not_matched)):
            drawn.append(rows.take(np.sort(random.choice(len(rows), round(fraction * len(rows)), replace=False))))
    before, added = pa.concat_tables(old), pa.concat_tables(new)
    quantity = pc.add(before["l_quantity"], pa.scalar(Decimal("1.00")))
    changed = {
        "l_quantity": quantity.cast(before.schema.field("l_quantity").type),
        "l_comment": pc.binary_join_element_wise("new", before["l_comment"], " "),
    }
    return (
        before,
        _replaced(before, changed),
        _replaced(added, {"l_orderkey": pc.add(added["l_orderkey"], 8)}),
    )


def _replaced(rows: pa.Table, columns: dict[str, pa.ChunkedArray]) -> pa.Table:
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    return rows
