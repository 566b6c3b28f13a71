"""A small table and sources in files, made by delta-rs and PyArrow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from deltalake import DeltaTable, write_deltalake

UPSERT = (
    "MERGE INTO target t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def make_table(path: Path) -> Path:
    write_deltalake(
        path,
        pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"], "p": [1, 1, 2]}),
        partition_by=["p"],
        configuration={"delta.logRetentionDuration": "interval 30 days"},
    )
    return path


def make_source(path: Path, ids: list[int]) -> Path:
    rows = pa.table({"id": ids, "v": [f"new {i}" for i in ids], "p": [2] * len(ids)})
    if path.suffix == ".parquet":
        pa.parquet.write_table(rows, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(rows, path)
    else:
        lines = [f'{{"id": {i}, "v": "new {i}", "p": 2}}\n' for i in ids]
        path.write_text("".join(lines), encoding="utf-8")
    return path


def rows_of(path: Path) -> dict[int, str]:
    rows = pa.table(DeltaTable(path).to_pyarrow_table())
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
