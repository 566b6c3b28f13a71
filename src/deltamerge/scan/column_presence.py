"""A guard against files that are read under wrong names: a column that a file lacks is NULL, and so would be all.

A file that was written before a column was added lacks it, so single columns prove nothing. But every file has some of
the table's columns, unless all that it had were dropped since, for which the table must map columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile, Metadata
from deltamerge.log.features.column_mapping import NONE, may_have_lost_oldest, physical_name
from deltamerge.log.paths import decode_path
from deltamerge.log.schema import parse_schema
from deltamerge.spark.table import Table
from deltamerge.storage.store import in_parallel

_SHOWN = 10
_GROUPS = ("nullCount", "minValues", "maxValues")


def check_columns(table: Table, expected: Sequence[str], files: Sequence[AddFile]) -> None:
    """Refuse data files that have none of the table's columns, as far as their statistics show it.

    The footer is read only of files whose statistics name other columns than the table's; where no file has statistics
    of columns, of the first.
    """
    if not expected:
        return
    keys = [json.dumps(name, ensure_ascii=ascii_only) + ":" for name in expected for ascii_only in (False, True)]
    # As most writers spell them; only what is left is parsed.
    unlike = [file for file in files if not any(key in (file.stats or "") for key in keys)]
    unseen = [(file, found) for file in unlike if (found := _columns_in(file.stats)).isdisjoint(expected)]
    if not unseen:
        return
    others = [file for file, found in unseen if found]
    check_footers(table, expected, others if others or len(unseen) < len(files) else [unseen[0][0]])


def check_footers(table: Table, expected: Sequence[str], files: Sequence[AddFile]) -> None:
    """Refuse data files that have none of the table's columns by their footers."""
    if not files or not expected:
        return
    try:
        found = footers(table, files)
    except (OSError, pa.ArrowException):
        # Missing and damaged files are Spark's to report, which reads them next.
        return
    for file, columns in zip(files, found, strict=True):
        check_names(table, expected, file, columns.names)


def footers(table: Table, files: Sequence[AddFile]) -> list[pa.Schema]:
    return in_parallel(partial(_footer, table), files)


def check_names(table: Table, expected: Sequence[str], file: AddFile, found: Sequence[str]) -> None:
    """Refuse a data file with these columns if none is the table's."""
    if not expected or not {name.lower() for name in expected}.isdisjoint(name.lower() for name in found):
        return
    path = table.store.absolute(decode_path(file.path))
    raise DeltaTableException(
        "DELTAMERGE_FILE_WITHOUT_COLUMNS",
        f"The data file {path} has none of the columns that table {table.name} expects in it: {_listed(expected)}. Its "
        f"columns are {_listed(found)}. It was written under other names, so its rows would read as NULL; nothing was "
        "read. Write the file again with the names of the table's schema, or with the engine that wrote it.",
        parameters={"path": path, "tableName": table.name, "expected": _listed(expected), "found": _listed(found)},
    )


def _footer(table: Table, file: AddFile) -> pa.Schema:
    return pq.ParquetFile(table.store.open_input(decode_path(file.path))).schema_arrow


def expected_columns(schema: StructType, metadata: Metadata, mode: str) -> tuple[str, ...]:
    """Return the columns of which each file must have one; none where a file may have lost all of its columns."""
    known = parse_schema(schema.json())
    data = [field for field in known.fields if field.name not in metadata.partition_columns]
    if mode == NONE:
        return tuple(field.name for field in data)
    if may_have_lost_oldest(known, metadata):
        return ()
    return tuple(physical_name(field) for field in data)


def _columns_in(stats: str | None) -> frozenset[str]:
    try:
        found = json.loads(stats or "{}")
    except ValueError:
        return frozenset()
    groups = (found.get(group) for group in _GROUPS) if isinstance(found, dict) else ()
    return frozenset(name for group in groups if isinstance(group, dict) for name in group)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "") if names else "none"
