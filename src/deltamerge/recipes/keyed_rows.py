"""The rows of a table that have certain keys, from the files that may have them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from deltamerge.log.file_table import FileTable
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.analysis.join_keys import JoinKey, JoinKeys
from deltamerge.merge.planning.limits import LIMITS
from deltamerge.merge.planning.target_files import key_histograms, may_match
from deltamerge.merge.source.source import numbered_source, summarize_source
from deltamerge.scan.relation import table_frame
from deltamerge.skipping.predicates import ALWAYS, ColumnRef
from deltamerge.spark import columns as F
from deltamerge.spark.session import merge_conf
from deltamerge.spark.table import Table, spark_schema
from deltamerge.sql.conditions import EquiKey
from deltamerge.sql.names import free_prefix, quote


def rows_of_keys(table: Table, snapshot: Snapshot, keys: DataFrame, *, null_safe: bool = True) -> DataFrame:
    """Return the rows of a version of a table whose keys a frame has.

    Args:
        keys: The keys, each once, in columns with the names and types of the table's; one job reads them.
        null_safe: Whether NULL is a key like any other; otherwise it is no row's key.
    """
    rows = table_frame(table, snapshot, files_of_keys(table, snapshot, keys, null_safe=null_safe))
    on = same_keys(keys.columns, "t", "s", null_safe=null_safe)
    found = rows.alias("t").join(keys.alias("s"), F.expr(on), "left_semi")
    return found.select(*(F.col(f"t.{quote(name)}") for name in rows.columns))


def files_of_keys(table: Table, snapshot: Snapshot, keys: DataFrame, *, null_safe: bool) -> FileTable:
    """Return the files that may have rows with those keys, by partition values and statistics."""
    time_zone = merge_conf(table.spark).session_time_zone
    schema = spark_schema(snapshot)
    found = JoinKeys(
        tuple(
            JoinKey(
                EquiKey(ColumnRef((field.name,)), quote(field.name), (field.name,), null_safe),
                field.dataType,
                schema[field.name].dataType,
            )
            for field in keys.schema.fields
        ),
        say_all=True,
    )
    names = InternalColumns(free_prefix(keys.columns))
    histograms = key_histograms(snapshot, ALWAYS, found, time_zone)
    summary = summarize_source(numbered_source(keys, names), None, found, names, histograms, LIMITS)
    return may_match(snapshot, summary.predicate, time_zone)


def same_keys(keys: Sequence[str], left: str, right: str, *, null_safe: bool = True) -> str:
    """Return SQL for equal keys of two sides."""
    sign = "<=>" if null_safe else "="
    return " AND ".join(f"{left}.{quote(name)} {sign} {right}.{quote(name)}" for name in keys)
