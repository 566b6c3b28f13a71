"""The source of a merge kept in Arrow files: what its clauses write of each row, computed once by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from deltamerge.merge.execution import Execution
from deltamerge.merge.lookup import Lookup
from deltamerge.merge.output import (
    evaluate_not_matched,
    generate_all_action_exprs,
    generate_clause_values,
)
from deltamerge.merge.resolved import Output, ResolvedClause, ResolvedMerge, TakeSource, TakeTarget
from deltamerge.merge.scopes import source_rows
from deltamerge.merge.source import SourceKey, SourceSummary, read_source, summary_of
from deltamerge.scan import staged_rows
from deltamerge.scan.plain_parquet import plain_parquet
from deltamerge.scan.staged_rows import TOO_MANY, KeptFile, StagedRows, in_order, staged_schema, staging
from deltamerge.scan.target import without_file_scheme

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Tasks map the kept rows into memory and put the keys into hash tables.
_MOST_ROWS = 1_000_000
_MOST_BYTES = 1 << 30

# Executors need not have this package: what they run travels with the task.
cloudpickle.register_pickle_by_value(staged_rows)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class StagedColumns:
    """What is kept of each source row.

    Args:
        keys: The columns that are the keys, in ON's order.
        update: For each of the table's columns that the UPDATE sets, the column; None where no clause updates.
        inserts: By the number of an INSERT clause, for each of the table's columns the column.
        clause: The column with the number of the INSERT clause that takes the row; None where the only one takes all.
    """

    keys: tuple[str, ...]
    update: Mapping[str, str] | None
    inserts: Mapping[int, Mapping[str, str]]
    clause: str | None


@dataclass(frozen=True)
class StagedSource:
    """The source's rows, kept.

    Args:
        columns: What is kept of each.
        files: The files.
        rows: How many rows lie in each.
        bytes: About how many bytes they take together.
        summary: What is known of the source.
    """

    columns: StagedColumns
    files: tuple[KeptFile, ...]
    rows: tuple[int, ...]
    bytes: int
    summary: SourceSummary


def source_as_it_lies(
    execution: Execution, lookup: Lookup, update: ResolvedClause | None, types: Mapping[str, pa.DataType]
) -> StagedSource | None:
    """Takes the source's own files, where they hold all that the clauses write.

    Args:
        execution: What to work on.
        lookup: The keys.
        update: The UPDATE clause that takes every matched row, if one does; it sets columns from the source alone.
        types: The types of the table's columns in Arrow.

    Returns:
        The rows; None where Spark must compute them, or they are too many.
    """
    merge = execution.merge
    columns = _own_columns(merge, lookup, update)
    if columns is None:
        return None
    own = {
        name: column
        for each in (columns.update or {}, *columns.inserts.values())
        for column, name in each.items()
    }
    wanted = {name: types[column] for name, column in own.items()}
    wanted |= {name: types[column] for name, column in zip(columns.keys, lookup.target, strict=True)}
    found = plain_parquet(merge.statement.source, wanted, columns.keys)
    if found is None or sum(found.rows) > _MOST_ROWS or found.bytes > _MOST_BYTES:
        return None
    told: dict[str, Any] = {"n": sum(found.rows), "last": None}
    for index, (low, high) in enumerate(found.ranges):
        told |= {f"lo{index}": low, f"hi{index}": high, f"n{index}": told["n"], f"bytes{index}": 0}
    summary = summary_of(told, lookup.keys)
    summary = replace(summary, key_bytes=summary.key_bytes + found.key_bytes, partitions=len(found.files))
    return StagedSource(columns, found.files, found.rows, found.bytes, summary)


def _own_columns(merge: ResolvedMerge, lookup: Lookup, update: ResolvedClause | None) -> StagedColumns | None:
    """Names the source's columns that the clauses take as they are; None where there is more to it."""
    fields, schema = merge.source_schema.fields, merge.output_schema.fields
    if any(clause.condition is not None or clause.action != "insert" for clause in merge.not_matched):
        return None
    found: dict[tuple[str, int], dict[str, str]] = {}
    for clause in (*merge.not_matched, *([] if update is None else [update])):
        own = found[clause.clause.kind, clause.number] = {}
        for output, field in zip(clause.outputs, schema, strict=True):
            if isinstance(output, TakeTarget):
                continue
            if not isinstance(output, TakeSource) or fields[output.index].dataType != field.dataType:
                return None
            own[field.name] = fields[output.index].name
    keys = tuple(fields[index].name for index in lookup.source)
    inserts = {clause.number: found["not_matched", clause.number] for clause in merge.not_matched}
    return StagedColumns(keys, None if update is None else found["matched", update.number], inserts, None)


def stage_source(execution: Execution, lookup: Lookup, update: ResolvedClause | None) -> StagedSource | None:
    """Computes the source once and keeps of its rows what the clauses write.

    Args:
        execution: What to work on.
        lookup: The keys.
        update: The UPDATE clause that takes every matched row, if one does; it sets columns from the source alone.

    Returns:
        The kept rows; None where they are too many.
    """
    merge, names = execution.merge, execution.names
    frame, columns = _frame_to_stage(execution, lookup, update)
    kept = StagedRows(
        folder=without_file_scheme(execution.table.store.absolute(execution.folder)),
        keys=columns.keys,
        most_rows=_MOST_ROWS,
        most_bytes=_MOST_BYTES,
        clause=names.clause("not_matched") if columns.clause is not None and not merge.matched else None,
    )
    types = [key.given.simpleString() for key in lookup.keys]
    told = [row.asDict() for row in frame.mapInArrow(staging(kept), staged_schema(types)).collect()]
    if any(row["path"] == TOO_MANY for row in told) or sum(row["kept"] for row in told) > _MOST_ROWS:
        return None
    files = [row for row in told if row["kept"]]
    return StagedSource(
        columns=columns,
        files=tuple(KeptFile(row["path"], 0, 0) for row in files),
        rows=tuple(row["kept"] for row in files),
        bytes=sum(row["size"] for row in files),
        summary=_summary(told, lookup.keys),
    )


def _summary(told: list[dict[str, Any]], keys: tuple[SourceKey, ...]) -> SourceSummary:
    """Puts together what the tasks tell."""
    whole: dict[str, Any] = {"n": sum(row["n"] for row in told), "last": None}
    for index in range(len(keys)):
        for name, best in ((f"lo{index}", min), (f"hi{index}", max)):
            found = [row[name] for row in told if row[name] is not None]
            whole[name] = best(found, key=in_order) if found else None
        for name in (f"n{index}", f"bytes{index}"):
            whole[name] = sum(row[name] for row in told)
    return replace(summary_of(whole, keys), partitions=len(told))


def _frame_to_stage(
    execution: Execution, lookup: Lookup, update: ResolvedClause | None
) -> tuple[DataFrame, StagedColumns]:
    merge, names = execution.merge, execution.names
    source = read_source(merge, names).frame
    rows = source_rows(source, merge.source_schema, merge.source_alias, names)
    if update is not None:
        taken = F.lit(update.number).alias(names.clause("matched"))
        rows = rows.adding([(names.clause("matched"), taken)])
        rows = generate_clause_values(rows, (update,), "matched", names)
    rows = rows.renamed()
    inserting = [clause for clause in merge.not_matched if clause.action == "insert"]
    if inserting:
        rows = evaluate_not_matched(rows, merge, names)
    columns = _Columns(execution)
    keys = tuple(columns.of_source(index) for index in lookup.source)
    updated = None if update is None else columns.of_clause(update)
    inserted = {clause.number: columns.of_clause(clause) for clause in inserting}
    clause = None
    if inserting and any(c.condition is not None or c.action != "insert" for c in merge.not_matched):
        clause = columns.add(names.clause("not_matched"), F.col(names.clause("not_matched")))
    frame = rows.frame.select(*(column.alias(name) for name, column in columns.taken.items()))
    return frame, StagedColumns(keys, updated, inserted, clause)


class _Columns:
    """Collects columns to keep, each of them once."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self.taken: dict[str, Column] = {}

    def add(self, name: str, column: Column) -> str:
        self.taken.setdefault(name, column)
        return name

    def of_source(self, index: int) -> str:
        name = self._execution.names.source(index)
        return self.add(name, F.col(name))

    def of_clause(self, clause: ResolvedClause) -> dict[str, str]:
        """Gives the columns of what an UPDATE or INSERT sets, by the table's columns."""
        execution = self._execution
        merge, names = execution.merge, execution.names
        values = generate_all_action_exprs(merge, clause, names, execution.defaults)
        found = {}
        for index, (output, field) in enumerate(zip(clause.outputs, merge.output_schema.fields, strict=True)):
            if isinstance(output, TakeTarget):
                continue
            if self._is_as_it_is(output, field):
                assert isinstance(output, TakeSource)
                found[field.name] = self.of_source(output.index)
            else:
                name = f"{names.value(clause.clause.kind, clause.number, index)}_stored"
                found[field.name] = self.add(name, values[index])
        return found

    def _is_as_it_is(self, output: Output, field: StructField) -> bool:
        schema = self._execution.merge.source_schema
        return isinstance(output, TakeSource) and schema.fields[output.index].dataType == field.dataType
