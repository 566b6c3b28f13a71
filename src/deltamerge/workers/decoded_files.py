"""Parquet files of a source decoded into Arrow files, which tasks map into memory and take rows from anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from deltamerge.workers.answers import answer
from deltamerge.workers.files import Files, read_rows
from deltamerge.workers.left_to_spark import leaving_to_spark
from deltamerge.workers.staged_rows import StagedFile
from deltamerge.workers.table_columns import in_plain_types

DECODED_SCHEMA = "path STRING, size BIGINT"


def decoding_work(file: StagedFile, groups: Sequence[int], target: str) -> str:
    return json.dumps({"file": asdict(file), "groups": list(groups), "target": target})


def decoding(files: Files, columns: Sequence[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that does the works of a column `work`, for ``mapInArrow``.

    Returns:
        A function that returns for each work the new file and the bytes of its rows in memory.
    """

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for work in map(json.loads, batch.column("work").to_pylist()):
                yield answer(DECODED_SCHEMA, {"path": work["target"], "size": _decode(files, work, columns)})

    return decode


def _decode(files: Files, work: Mapping[str, Any], columns: Sequence[str]) -> int:
    file = StagedFile(**work["file"])
    size = 0

    def pieces() -> Iterator[pa.Table]:
        nonlocal size
        for group in work["groups"]:
            with files.parquet_columns(file.path, columns, [group], memory_map=False) as opened:
                table = read_rows(opened, [group], list(columns))
            piece = in_plain_types(table.select(list(columns)))
            size += piece.nbytes
            yield piece

    with leaving_to_spark(file.path), file.unchanged(files):
        files.write_arrow(work["target"], pieces())
    return size
