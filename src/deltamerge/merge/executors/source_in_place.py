"""A source that is nothing but Parquet files: they are read in place, and Spark computes only what they lack."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.lookup import StagedSource, opened_source
from deltamerge.merge.executors.lookup_recipe import LookupRecipe, lookup_recipe
from deltamerge.merge.executors.spark_staging import (
    aliased,
    check_there,
    comes_to_driver,
    evaluated_rows,
    most_bytes,
    stage_columns,
    staged_files,
    too_many_rows,
)
from deltamerge.merge.executors.staged_columns import StagedColumns, columns_to_stage
from deltamerge.merge.plan import Declined
from deltamerge.merge.planning.fit import arrow_type, type_name
from deltamerge.merge.source.key_summary import KeyRange, summary_of
from deltamerge.scan.parquet_files import GLOB
from deltamerge.scan.plain_parquet import NotPlain, PlainParquet, plain_parquet
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark import columns as F
from deltamerge.spark import tasks
from deltamerge.spark.tasks import PythonWorkersUnfit, collected
from deltamerge.workers.decoded_files import DECODED_SCHEMA, decoding, decoding_work
from deltamerge.workers.staged_rows import STAGED_SUFFIX, StagedFile, StagedRows
from deltamerge.workers.table_columns import in_plain_types

_SLASHES = re.compile("^file:/+")


def look_in_place(execution: Execution) -> None:
    """Raise Declined where the source's own files do not hold its rows."""
    recipe = lookup_recipe(execution.context, execution.plan.changed_rows.choice)
    source_in_place(execution, recipe, columns_to_stage(execution, recipe))


def source_in_place(
    execution: Execution, recipe: LookupRecipe, columns: StagedColumns
) -> tuple[StagedSource, PlainParquet]:
    """Return the source as its own files hold it, from its plan and the footers alone.

    Raises:
        Declined: It is more than a scan of Parquet files, or some of their values are not what Spark reads.
    """
    merge = execution.merge
    in_files = {name: merge.source_schema.fields[index].name for name, index in columns.own.items()}
    wanted: dict[str, pa.DataType] = {}
    set_to = {name for clause in (*columns.updates.values(), *columns.inserts.values()) for name in clause.names}
    taken = [index for name, index in columns.own.items() if name in set_to]
    keys = [index for index in recipe.keys.source if index is not None]
    looked_at = [*taken, *keys, *recipe.choices.source_columns, *sorted(recipe.pair_values.source)]
    for index in [*looked_at, *(() if columns.needs_spark else columns.asked)]:
        column = merge.source_schema.fields[index]
        kind = arrow_type(column.dataType)
        if kind is None or CHAR_VARCHAR_TYPE in (column.metadata or {}):
            raise Declined("source", "in_place", f"its column {column.name} is of type {type_name(column)}")
        wanted[column.name] = kind
    ranged = recipe.ranged
    names = [in_files[name] for name, _ in ranged]
    found = plain_parquet(merge.statement.source, wanted, names, execution.files, execution.table.store.root)
    if isinstance(found, NotPlain):
        raise Declined("source", "in_place", found.reason)
    rows = sum(file.rows for file in found.files)
    # How many are NULL is not known, and counts only where NULL equals NULL.
    ranges = [
        KeyRange(low, high, 0 if key.key.null_safe else rows)
        for (_, key), (low, high) in zip(ranged, found.ranges, strict=True)
    ]
    summary = summary_of(rows, ranges, recipe.keys.keys, partitions=len(found.files))
    summary = replace(summary, key_bytes=summary.key_bytes + found.key_bytes)
    in_parts = execution.opens_in_parts(found.bytes_in_memory)
    staged = StagedRows(found.files, in_files, in_parts=in_parts)
    if rows > execution.limits.indexed_rows or found.bytes_in_memory > most_bytes(execution):
        # Staged, its rows would be as many.
        raise too_many_rows(execution)
    return StagedSource(columns, staged, rows, found.bytes, found.bytes_in_memory, summary), found


def decoded(execution: Execution, source: StagedSource, files: PlainParquet) -> StagedSource:
    """Decode files too large for each task to read them into files that tasks of this machine map into memory.

    Raises:
        Declined: PyArrow does not decode them.
    """
    most = -(-execution.limits.decoding_works // len(files.files))
    shares = [
        (file, groups.tolist(), sum(sizes[group] for group in groups))
        for file, sizes in zip(files.files, files.groups, strict=True)
        if sizes
        for groups in np.array_split(np.arange(len(sizes)), min(len(sizes), most))
    ]
    targets = [
        StagedFile(f"{execution.scratch}/source-{number:05d}{STAGED_SUFFIX}", rows)
        for number, (_, _, rows) in enumerate(shares)
    ]
    works = [decoding_work(file, groups, to.path) for (file, groups, _), to in zip(shares, targets, strict=True)]
    work, rows = decoding(execution.files, files.columns), pa.table({"work": works})
    spark, in_driver = execution.table.spark, execution.context.session.runs_in_local_mode
    try:
        found = tasks.run(spark, work, rows, DECODED_SCHEMA, in_driver=in_driver)
    except PythonWorkersUnfit as unfit:
        raise Declined("source", "in_place", str(unfit)) from unfit
    size = sum(row["size"] for row in found)
    check_there(execution, targets)
    rows_there = replace(source.rows, files=tuple(targets))
    return replace(source, rows=rows_there, bytes=size, bytes_in_memory=size)


def with_chosen(execution: Execution, source: StagedSource) -> StagedSource | None:
    """Evaluate in Arrow which clause takes which row; None where the driver would have to read much."""
    columns, fields = source.columns, execution.merge.source_schema.fields
    if not columns.chosen:
        return source
    asked = {str(index): fields[index].name for index in columns.asked or [next(iter(columns.own.values()))]}
    if source.row_count * len(asked) > execution.limits.collected_values:
        return None
    rows = opened_source(execution, replace(source.rows, names=asked), list(asked))
    numbers = {name: choice.of(rows, len(rows)) for name, choice in columns.chosen.items()}
    return _beside(execution, source, pa.table({**numbers, _place(execution): np.arange(len(rows))}))


def _place(execution: Execution) -> str:
    return execution.merge.names.source_row_index


def _beside(execution: Execution, source: StagedSource, table: pa.Table) -> StagedSource:
    file = StagedFile(f"{execution.scratch}/computed{STAGED_SUFFIX}", len(table))
    execution.files.write_arrow(file.path, [table])
    return _with_files(execution, source, (file,), table.nbytes)


def _with_files(
    execution: Execution, source: StagedSource, computed: tuple[StagedFile, ...], size: int
) -> StagedSource:
    rows = replace(source.rows, computed=computed, position=_place(execution))
    return replace(source, rows=rows, bytes=source.bytes + size, bytes_in_memory=source.bytes_in_memory + size)


def with_computed(
    execution: Execution, recipe: LookupRecipe, source: StagedSource, files: PlainParquet
) -> StagedSource:
    """Let Spark compute the missing columns of a source whose rows are in files."""
    columns, name, merge = source.columns, _place(execution), execution.merge
    if source.rows.in_parts:
        reason = f"Spark computes values of a source larger than {execution.limits.source_bytes >> 20:,} MiB"
        raise Declined("source", "in_place", reason)
    unknown = Declined("source", "in_place", "Spark does not return from which row of which file a row came")
    if any(column.name.lower() == "_metadata" for column in merge.source_schema):
        raise unknown
    frame = merge.statement.source
    if merge.source_alias is not None and files.is_whole and all(GLOB.isdisjoint(f.path) for f in files.files):
        # A view does not say which file a row is of.
        reader = execution.table.spark.read.schema(merge.source_schema)
        frame = reader.parquet(*(file.path for file in files.files))
    try:
        numbered = frame.select("*", _position(files).alias(name))
        # Connect finds out only now whether there is such a column.
        _ = numbered.schema
    except AnalysisException as error:
        raise unknown from error
    frame = evaluated_rows(execution, recipe, numbered, columns).select(name, *aliased(columns.computed))
    if comes_to_driver(execution, frame, source.row_count, source.bytes):
        # By way of the driver, which is faster than tasks for few rows.
        table = collected(frame)
        return _beside(execution, source, in_plain_types(table).combine_chunks())
    found = stage_columns(frame, execution, (), None)
    return _with_files(execution, source, staged_files(found), sum(row["size"] for row in found))


def _position(files: PlainParquet) -> Column:
    row = F.col("_metadata.row_index")
    if len(files.files) == 1:
        return row
    before = [0, *accumulate(file.rows for file in files.files)][:-1]
    uris = F.array(*(F.lit(_SLASHES.sub("file:/", uri)) for uri in files.uris))
    uri = F.replace(F.col("_metadata.file_path"), F.lit("file:///"), F.lit("file:/"))
    file = F.array_position(uris, uri).cast("int")
    return F.get(F.array(*(F.lit(rows).cast("bigint") for rows in before)), file - 1) + row
