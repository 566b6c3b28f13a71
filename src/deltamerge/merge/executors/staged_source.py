"""The source of a key lookup: its rows in files, with what Spark computes of them.

What a source that is nothing but Parquet files has already is not written again; Spark computes only the rest.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame

from deltamerge.merge.analysis.join_keys import JoinKey
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.job_errors import is_lost_source, is_stopped
from deltamerge.merge.executors.lookup_recipe import LookupRecipe, lookup_recipe
from deltamerge.merge.executors.staged_columns import StagedColumns, columns_to_stage
from deltamerge.merge.output.clause_expressions import (
    evaluate_clauses,
    generate_clause_values,
    generate_precomputed_conditions,
)
from deltamerge.merge.output.derived_columns import with_derived
from deltamerge.merge.output.frames import source_rows
from deltamerge.merge.planning.declined import Declined
from deltamerge.merge.planning.fit import arrow_type, type_name
from deltamerge.merge.planning.limits import Limits
from deltamerge.merge.source.key_summary import NO_ROWS, SourceSummary, summary_of
from deltamerge.merge.source.source import read_source
from deltamerge.scan.parquet_files import GLOB
from deltamerge.scan.plain_parquet import NotPlain, PlainParquet, plain_parquet
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark import columns as F
from deltamerge.spark import tasks
from deltamerge.spark.session import SPARK_ERRORS, estimated_bytes
from deltamerge.spark.tasks import collected, python_workers
from deltamerge.workers.decoded_files import DECODED_SCHEMA, decoding, decoding_work
from deltamerge.workers.key_index import KeyIndex
from deltamerge.workers.staged_rows import (
    STAGED_SUFFIX,
    TOO_MANY,
    StagedFile,
    StagedRows,
    Staging,
    in_order,
    open_staged,
    staged_schema,
    staging,
)
from deltamerge.workers.table_columns import in_plain_types

_SLASHES = re.compile("^file:/+")
# Of `monotonically_increasing_id`: the bits of a row's number in its partition.
_ROW_BITS = 33


@dataclass(frozen=True)
class StagedSource:
    columns: StagedColumns
    rows: StagedRows
    row_count: int
    bytes: int
    bytes_in_memory: int
    summary: SourceSummary
    has_unique_keys: bool = False
    index: KeyIndex | None = None


@dataclass(frozen=True)
class Lookup:
    """A key lookup once its source is read."""

    execution: Execution
    recipe: LookupRecipe
    staged: StagedSource


def stage_source(execution: Execution, recipe: LookupRecipe) -> StagedSource:
    """Read the source as planned.

    Raises:
        Declined: It is not plain Parquet files, it has too many rows, or tasks write to another machine's disk.
    """
    steps, in_place = execution.steps, execution.plan.source.choice == "in_place"
    columns = columns_to_stage(execution, recipe)
    if execution.plan.source.choice == "none":
        return StagedSource(columns, StagedRows(()), row_count=0, bytes=0, bytes_in_memory=0, summary=NO_ROWS)
    if not in_place:
        with steps.step("materialize_source", "materializing the source"), _computing(execution, columns):
            return _are_there(execution, _staged(execution, recipe, columns))
    with steps.step("plan_source", "looking at the source"):
        source, files = _in_place(execution, recipe, columns)
    if source.bytes_in_memory > execution.limits.source_bytes:
        with steps.step("materialize_source", "decoding the source's files"):
            source = _decoded(execution, source, files)
    with steps.step("plan_source", "looking at the source"):
        chosen = None if columns.needs_spark else _with_chosen(execution, source)
    if chosen is not None:
        return chosen
    with steps.step("materialize_source", "materializing the source"), _computing(execution, columns):
        return _are_there(execution, _with_computed(execution, recipe, source, files))


def look_in_place(execution: Execution) -> None:
    """Raise Declined where the source's own files do not hold its rows."""
    recipe = lookup_recipe(execution.context, execution.plan.changed_rows.choice)
    _in_place(execution, recipe, columns_to_stage(execution, recipe))


@contextmanager
def _computing(execution: Execution, columns: StagedColumns) -> Iterator[None]:
    """Decline values that cannot be computed: of rows that match nothing nobody may ask for them."""
    try:
        yield
    except SPARK_ERRORS as error:
        if not columns.computed or is_lost_source(error) or is_stopped(error):
            raise
        reason = "a value or condition cannot be computed for every source row"
        raise Declined("changed_rows", execution.plan.changed_rows.choice, reason) from error


def _are_there(execution: Execution, staged: StagedSource) -> StagedSource:
    check_there(execution, (*staged.rows.files, *staged.rows.computed))
    return staged


def check_there(execution: Execution, files: Sequence[StagedFile]) -> None:
    """Check that tasks write where the driver reads: a session may be on another machine."""
    written = [file.path for file in files if file.is_arrow]
    there = set(execution.files.names(execution.scratch)) if written else set()
    if not there.issuperset(path.rpartition("/")[2] for path in written):
        raise Declined("match", "key_lookup", "tasks write to the disk of another machine than the driver's")


def _in_place(execution: Execution, recipe: LookupRecipe, columns: StagedColumns) -> tuple[StagedSource, PlainParquet]:
    merge, limits = execution.merge, execution.limits
    in_files = {name: merge.source_schema.fields[index].name for name, index in columns.own.items()}
    wanted: dict[str, pa.DataType] = {}
    set_to = {name for clause in (*columns.updates.values(), *columns.inserts.values()) for name in clause.names}
    taken = [index for name, index in columns.own.items() if name in set_to]
    looked_at = [*taken, *recipe.keys.source, *recipe.choices.source_columns, *sorted(recipe.pair_values.source)]
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
    values: dict[str, Any] = {"n": sum(found.rows), "last": None}
    for index, (low, high) in enumerate(found.ranges):
        # How many are NULL is not known, and counts only where NULL equals NULL.
        known = 0 if ranged[index][1].key.null_safe else values["n"]
        values |= {f"lo{index}": low, f"hi{index}": high, f"n{index}": known, f"bytes{index}": 0}
    summary = summary_of(values, recipe.keys.keys, {}, limits)
    summary = replace(summary, key_bytes=summary.key_bytes + found.key_bytes, partitions=len(found.files))
    source = StagedSource(
        columns, StagedRows(found.files, in_files), values["n"], found.bytes, found.bytes_in_memory, summary
    )
    most = _most_bytes(execution)
    if source.bytes_in_memory > most:
        raise Declined("source", "in_place", f"it has more than {most >> 20:,} MiB, which each task would read")
    return source, found


def _decoded(execution: Execution, source: StagedSource, files: PlainParquet) -> StagedSource:
    """Decode files too large for each task to read them into files that tasks of this machine map into memory."""
    most = -(-execution.limits.decoding_works // len(files.files))
    shares = [
        (file, groups.tolist())
        for file, count in zip(files.files, files.groups, strict=True)
        for groups in np.array_split(np.arange(count), min(count, most))
    ]
    targets = [
        replace(file, path=f"{execution.scratch}/source-{number:05d}{STAGED_SUFFIX}")
        for number, (file, _) in enumerate(shares)
    ]
    works = [decoding_work(file, groups, target.path) for (file, groups), target in zip(shares, targets, strict=True)]
    work, rows = decoding(execution.files, files.columns), pa.table({"work": works})
    spark, in_driver = execution.table.spark, execution.context.session.runs_in_local_mode
    found = tasks.run(spark, work, rows, DECODED_SCHEMA, in_driver=in_driver)
    size = sum(row["size"] for row in found)
    decoded = replace(source.rows, files=tuple(targets))
    return _are_there(execution, replace(source, rows=decoded, bytes=size, bytes_in_memory=size))


def _with_chosen(execution: Execution, source: StagedSource) -> StagedSource | None:
    """Evaluate in Arrow which clause takes which row; None where the driver would have to read much."""
    columns, fields = source.columns, execution.merge.source_schema.fields
    if not columns.chosen:
        return source
    asked = {str(index): fields[index].name for index in columns.asked or [next(iter(columns.own.values()))]}
    if source.row_count * len(asked) > execution.limits.collected_values:
        return None
    rows = open_staged(execution.files, replace(source.rows, names=asked), list(asked))
    numbers = {name: choice.of(rows) for name, choice in columns.chosen.items()}
    return _beside(execution, source, pa.table({**numbers, _place(execution): np.arange(len(rows))}))


def _place(execution: Execution) -> str:
    return execution.merge.names.source_row_index


def _beside(execution: Execution, source: StagedSource, table: pa.Table) -> StagedSource:
    file = StagedFile(f"{execution.scratch}/computed{STAGED_SUFFIX}", 0, 0)
    execution.files.write_arrow(file.path, [table])
    return _with_files(execution, source, (file,), table.nbytes)


def _with_files(
    execution: Execution, source: StagedSource, computed: tuple[StagedFile, ...], size: int
) -> StagedSource:
    rows = replace(source.rows, computed=computed, position=_place(execution))
    return replace(source, rows=rows, bytes=source.bytes + size, bytes_in_memory=source.bytes_in_memory + size)


def _with_computed(
    execution: Execution, recipe: LookupRecipe, source: StagedSource, files: PlainParquet
) -> StagedSource:
    """Let Spark compute the missing columns of a source whose rows are in files."""
    columns, name, merge = source.columns, _place(execution), execution.merge
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
    frame = _evaluated(execution, recipe, numbered, columns).select(name, *_aliased(columns.computed))
    if source.row_count * len(columns.computed) <= execution.limits.collected_values:
        # By way of the driver, which is faster than tasks for few rows.
        table = collected(frame)
        return _beside(execution, source, in_plain_types(table).combine_chunks())
    found = _stage(frame, execution, (), None)
    return _with_files(execution, source, staged_files(found), sum(row["size"] for row in found))


def _position(files: PlainParquet) -> Column:
    row = F.col("_metadata.row_index")
    if len(files.files) == 1:
        return row
    before = [0, *accumulate(files.rows)][:-1]
    uris = F.array(*(F.lit(_SLASHES.sub("file:/", uri)) for uri in files.uris))
    uri = F.replace(F.col("_metadata.file_path"), F.lit("file:///"), F.lit("file:/"))
    file = F.array_position(uris, uri).cast("int")
    return F.get(F.array(*(F.lit(rows).cast("bigint") for rows in before)), file - 1) + row


def _staged(execution: Execution, recipe: LookupRecipe, columns: StagedColumns) -> StagedSource:
    """Let Spark compute the source once, and stage of its rows what the clauses write."""
    merge, names = execution.merge, execution.merge.names
    rows = _evaluated(execution, recipe, read_source(merge).frame, columns)
    own = (F.col(names.source(index)).alias(name) for name, index in columns.own.items())
    frame = rows.select(*own, *_aliased(columns.computed))
    # A row that no INSERT takes, and that nothing else needs, is only counted.
    needed = merge.matched or recipe.clauses.by_source
    ranged = recipe.ranged
    found = _stage(frame, execution, ranged, None if needed else columns.clause)
    return StagedSource(
        columns=columns,
        rows=StagedRows(staged_files(found)),
        row_count=sum(row["staged"] for row in found),
        bytes=sum(row["size"] for row in found),
        bytes_in_memory=sum(row["size"] for row in found),
        summary=_summary(found, recipe.keys.keys, len(ranged), execution.limits),
    )


def _stage(
    frame: DataFrame, execution: Execution, keys: Sequence[tuple[str, JoinKey]], clause: str | None
) -> list[dict[str, Any]]:
    limits, most_bytes = execution.limits, _most_bytes(execution)
    types = [(name, key.given.simpleString()) for name, key in keys]
    found = stage_rows(frame, execution, limits.indexed_rows, most_bytes, types, clause)
    if found is None:
        raise Declined(
            "match",
            "key_lookup",
            f"the source has more than {limits.indexed_rows:,} rows or {most_bytes >> 20:,} MiB, "
            "which is more than tasks look keys up in",
        )
    return found


def _most_bytes(execution: Execution) -> int:
    """Return how many bytes of a source are staged: tasks map files of this machine, and read others.

    Where the disk is full, the write shall say so.
    """
    limits = execution.limits
    if not (execution.table.store.is_local or execution.context.session.runs_in_local_mode):
        return limits.source_bytes
    free = shutil.disk_usage(execution.scratch or tempfile.gettempdir()).free
    return max(limits.source_bytes, min(limits.mapped_bytes, free // 2))


def stage_rows(
    frame: DataFrame,
    execution: Execution,
    most_rows: int,
    most_bytes: int,
    keys: Sequence[tuple[str, str]] = (),
    clause: str | None = None,
) -> list[dict[str, Any]] | None:
    """Stage a frame's rows in Arrow files; None where they are more than may be staged.

    Args:
        keys: The columns whose ranges are returned, with their types; else as in `Staging`.
    """
    wanted = Staging(execution.scratch, tuple(name for name, _ in keys), most_rows, most_bytes, clause)
    work, few = staging(execution.files, wanted), _few_rows(frame, execution)
    if few is not None:
        found = [row for batch in work(few.to_batches()) for row in batch.to_pylist()]
    else:
        with python_workers():
            found = [
                row.asDict() for row in frame.mapInArrow(work, staged_schema([kind for _, kind in keys])).collect()
            ]
    too_many = sum(row["staged"] for row in found) > most_rows
    return None if too_many or any(row["path"] == TOO_MANY for row in found) else found


def _few_rows(frame: DataFrame, execution: Execution) -> pa.Table | None:
    """Collect a frame's rows where they are few and tasks run on this machine, by Spark's estimate of their bytes.

    Tasks would first wait for Python workers.
    """
    limits = execution.limits
    if not execution.context.session.runs_in_local_mode:
        return None
    estimated = estimated_bytes(frame)
    if estimated > limits.collected_bytes or not execution.fits_driver(estimated, files=0):
        return None
    # Spark's estimate does not count the rows that a function such as explode makes of one.
    most = limits.collected_values // len(frame.columns)
    row_of_partition = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << _ROW_BITS) - 1))
    rows = collected(frame.filter(row_of_partition < F.lit(most)))
    return rows if len(rows) < most else None


def staged_files(found: list[dict[str, Any]]) -> tuple[StagedFile, ...]:
    return tuple(StagedFile(row["path"], 0, 0) for row in found if row["staged"])


def _summary(found: list[dict[str, Any]], keys: Sequence[JoinKey], ranged: int, limits: Limits) -> SourceSummary:
    whole: dict[str, Any] = {"n": sum(row["n"] for row in found), "last": None}
    for index in range(ranged):
        for name, best in ((f"lo{index}", min), (f"hi{index}", max)):
            values = [row[name] for row in found if row[name] is not None]
            whole[name] = best(values, key=in_order) if values else None
        for name in (f"n{index}", f"bytes{index}"):
            whole[name] = sum(row[name] for row in found)
    return replace(summary_of(whole, keys, {}, limits), partitions=len(found))


def _evaluated(execution: Execution, recipe: LookupRecipe, source: DataFrame, columns: StagedColumns) -> DataFrame:
    """Evaluate the clauses on the source's rows; all columns get internal names."""
    merge, names = execution.merge, execution.merge.names
    rows = source_rows(source, merge)
    if recipe.by_spark:
        return rows.renamed().frame
    clauses = recipe.clauses
    if clauses.matched and recipe.choices.pair is None and not recipe.reads_pairs:
        reached = merge.matched[:1] if clauses.take_all else merge.matched
        rows = generate_precomputed_conditions(rows, reached, "matched", F.lit(True), names)
        matched = [clause for clause in clauses.updates if clause.clause.kind == "matched"]
        rows = generate_clause_values(rows, matched, "matched", names, columns.values)
    rows = rows.renamed()
    if merge.inserts:
        rows = evaluate_clauses(rows, merge, "not_matched", values=True)
    for derivation in columns.derivations:
        rows = with_derived(rows, merge, derivation)
    return rows.frame


def _aliased(columns: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]
