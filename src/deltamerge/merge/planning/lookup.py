"""Finding matches by the key columns alone, in Arrow, where ON says nothing but that plain keys are equal.

Two equal values of these types are equal for Spark and for Arrow alike: integers, and strings that are compared byte
by byte. All else goes through Spark's join.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import functions as F

from deltamerge.log.actions import AddFile
from deltamerge.log.paths import decode_path
from deltamerge.merge.analysis.column_references import condition_shape
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.executors.matches import OF_SOURCE, Matches, changing_clauses, matches_of
from deltamerge.merge.output.frames import Rows
from deltamerge.merge.output.internal_columns import MergeNames
from deltamerge.merge.source.key_summary import SourceKey, SourceSummary
from deltamerge.scan.paths import without_file_scheme
from deltamerge.spark.table import Table
from deltamerge.sql.conditions import ConditionShape
from deltamerge.storage.store import Store
from deltamerge.workers import file_columns, key_lookup, row_pairs, staged_rows
from deltamerge.write.char_varchar import METADATA_KEY

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")

# What travels with each task.
_MOST_KEY_BYTES = 16 << 20
PLAIN_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "string"})

# Executors need not have this package: what they run travels with the task.
for module in (key_lookup, file_columns, row_pairs, staged_rows):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Lookup:
    """The keys to look up.

    Args:
        target: The target's columns.
        source: For each the position of the source's column that it equals.
        shape: What ON says.
        keys: Its conjuncts, with the types of both sides.
    """

    target: tuple[str, ...]
    source: tuple[int, ...]
    shape: ConditionShape
    keys: tuple[SourceKey, ...]


def few_keys(summary: SourceSummary) -> bool:
    """Tells whether a source's keys may travel with the tasks."""
    return summary.key_bytes <= _MOST_KEY_BYTES


def lookup_of(merge: ResolvedMerge, store: Store, types: frozenset[str] = PLAIN_TYPES) -> Lookup | None:
    """Tells whether a merge's matches are found by its keys alone.

    Args:
        merge: The merge.
        store: The table's files; tasks open them by themselves, so they must be local.
        types: The types that a key may have.

    Returns:
        The keys, or None where only Spark's join can tell. Of what clauses look at they say nothing.
    """
    shape = condition_shape(merge)
    if not shape.equi_keys or len(shape.equi_keys) < len(shape.conjuncts):
        return None
    if not store.is_local:
        return None
    targets, sources, keys = [], [], []
    for key in shape.equi_keys:
        if key.null_safe or key.source_path is None or len(key.source_path) > 1 or len(key.target.path) > 1:
            return None
        target = _only(merge.target_schema.fields, key.target.path[0])
        source = _only(merge.source_schema.fields, key.source_path[0])
        if target is None or source is None:
            return None
        field, given = merge.target_schema.fields[target], merge.source_schema.fields[source].dataType
        both = {field.dataType.simpleString(), given.simpleString()}
        if len(both) > 1 or not both <= types or METADATA_KEY in (field.metadata or {}):
            return None
        targets.append(key.target.path[0])
        sources.append(source)
        keys.append(SourceKey(key, given, field.dataType))
    if len(set(targets)) < len(targets):
        return None
    return Lookup(tuple(targets), tuple(sources), shape, tuple(keys))


def _only(fields: Sequence[StructField], name: str) -> int | None:
    found = [index for index, field in enumerate(fields) if field.name.lower() == name.lower()]
    return found[0] if len(found) == 1 and fields[found[0]].name == name else None


def look_up_matches(
    table: Table,
    merge: ResolvedMerge,
    lookup: Lookup,
    source: Rows,
    names: MergeNames,
    files: Sequence[AddFile],
    *,
    of_source: bool,
) -> Matches | None:
    """Finds matches in files by their key columns.

    Args:
        table: The target.
        merge: The merge.
        lookup: Its keys.
        source: The source's side.
        names: The merge's own names.
        files: The files that may match.
        of_source: Whether it must be known which source rows matched.

    Returns:
        The rows that change, by the files' paths in the log. None where a file's columns have other types than the
        table's, or executors have another Python or no PyArrow.
    """
    keys = [F.col(names.source(index)) for index in lookup.source]
    own = [key.alias(f"k{index}") for index, key in enumerate(keys)]
    frame = source.renamed().frame.where(reduce(and_, (key.isNotNull() for key in keys)))
    wanted = frame.select(*own, F.col(names.source_row_index).alias("n")).toArrow()
    changing = changing_clauses(merge)
    of_target = 0 if changing else None
    code = OF_SOURCE
    if changing and changing[0].action == "update":
        code += 1 + changing[0].number
    paths = {
        "path": [without_file_scheme(table.store.absolute(decode_path(file.path))) for file in files],
        "file": [file.path for file in files],
        "values": [json.dumps(dict(file.partition_values)) for file in files],
    }
    look_up = key_lookup.looking_up(_stream(wanted), lookup.target, of_target, code if of_source else None)
    try:
        found = (
            table.spark.createDataFrame(pa.table(paths))
            .mapInArrow(look_up, key_lookup.FOUND_SCHEMA)
            .toArrow()
        )
    except Exception:
        logger.warning("keys could not be looked up by executors; Spark joins them", exc_info=True)
        return None
    rows = found.to_pylist()
    unfit = [row["file"] for row in rows if row["code"] == key_lookup.UNFIT]
    if unfit:
        logger.info("keys are not looked up in %s; Spark joins them", unfit[0])
        return None
    return matches_of(rows, changing)


def _stream(table: pa.Table) -> bytes:
    plain = {pa.large_string(): pa.string()}
    schema = pa.schema([field.with_type(plain.get(field.type, field.type)) for field in table.schema])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table.cast(schema))
    return bytes(sink.getvalue())
