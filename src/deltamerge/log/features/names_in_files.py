"""By which names a table's log and data files know its columns, where protocol and properties leave it open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltamerge.exceptions import DeltaLogCorruptException, DeltaUnsupportedFeatureException
from deltamerge.log.features.column_mapping import MODE, physical_name
from deltamerge.log.file_table import FileTable
from deltamerge.log.paths import decode_path
from deltamerge.log.schema import StructType
from deltamerge.storage.store import Store


def are_mapped(store: Store, schema: StructType, partition_columns: Sequence[str], files: FileTable) -> bool:
    """Return whether files know columns by their physical names, from the first and the last of them."""
    # Columns that were there before the table was mapped have one name for both.
    names = {f.name: physical_name(f) for f in schema.fields if f.name != physical_name(f)}
    if files.num_files == 0 or not names:
        return False
    found = set(partition_keys(files.arrow)) if partition_columns else set()
    for file in files.take(sorted({0, files.num_files - 1})).add_files():
        with store.open_input(decode_path(file.path)) as source:
            found |= set(pq.ParquetFile(source).schema_arrow.names)
    logical, physical = not found.isdisjoint(names), not found.isdisjoint(names.values())
    if logical != physical:
        return physical
    kinds = "of both kinds" if logical else "of neither kind"
    raise DeltaUnsupportedFeatureException(
        "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
        f"Unable to operate on table {store.root}: its property {MODE} asks for column mapping, its protocol does not "
        f"list it, and its data files have names {kinds}, so that columns would be read as NULL. Nothing was read or "
        "written; add the feature columnMapping to the table with the engine that wrote it, or copy the table.",
        parameters={"features": "columnMapping"},
    )


def check_partition_keys(files: pa.Table, expected: Iterable[str], root: str) -> None:
    """Refuse files whose partition values are those of other columns: the table's would be NULL."""
    expected = frozenset(expected)
    unknown = [key for key in partition_keys(files) if key not in expected]
    if not unknown:
        return
    # Arrow keeps the keys of rows that a slice leaves out.
    for path, values in zip(files["path"].to_pylist(), files["partition_values"].to_pylist(), strict=True):
        wrong = sorted(key for key, _ in values or () if key not in expected)
        if wrong:
            raise DeltaLogCorruptException(
                "DELTAMERGE_UNKNOWN_PARTITION_COLUMN",
                f"The log of table {root} has partition values of {', '.join(wrong)} for the file {path}, but the "
                f"table's partition columns are {', '.join(sorted(expected))} there: their values would be read as "
                "NULL. Nothing was read; write the file again with the engine that wrote it.",
                parameters={"path": path, "columns": ", ".join(wrong)},
            )


def partition_keys(files: pa.Table) -> list[str]:
    keys = [chunk.keys for chunk in files["partition_values"].chunks]
    found: list[str] = pc.unique(pa.chunked_array(keys, pa.string())).to_pylist()
    return found
