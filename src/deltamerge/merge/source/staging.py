"""The source of a merge kept in files: what its clauses write of each row, computed once by Spark.

What a source that is nothing but Parquet files has already is not written again; Spark computes the rest alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from deltamerge.merge.analysis.arrow_conditions import ClauseChoice
from deltamerge.merge.analysis.column_references import clause_choice, taken_as_it_is
from deltamerge.merge.analysis.resolved_merge import ResolvedClause, TakeTarget
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.output.clause_expressions import (
    evaluate_not_matched,
    generate_action_expr,
    generate_clause_values,
    generate_precomputed_conditions,
)
from deltamerge.merge.output.frames import source_rows
from deltamerge.merge.planning.key_lookup_fit import KeyLookup, arrow_type
from deltamerge.merge.source.key_summary import SourceKey, SourceSummary, summary_of
from deltamerge.merge.source.source import read_source
from deltamerge.scan.paths import without_file_scheme
from deltamerge.scan.plain_parquet import PlainParquet, plain_parquet
from deltamerge.skipping.key_ranges import key_ranges, may_have_key_ranges
from deltamerge.skipping.predicates import And, InRanges, Predicate
from deltamerge.workers import staged_rows
from deltamerge.workers.staged_rows import (
    STAGED_SUFFIX,
    TOO_MANY,
    KeptFile,
    KeptRows,
    StagedRows,
    in_order,
    open_staged,
    plain_types,
    staged_schema,
    staging,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Tasks map the kept rows into memory and put the keys into hash tables.
_MOST_ROWS = 1_000_000
_MOST_BYTES = 1 << 30
# So many values may come to the driver.
_MOST_COLLECTED = 2_000_000

_GLOB = frozenset("*?[]{}\\,")
_SLASHES = re.compile("^file:/+")

# Executors need not have this package: what they run travels with the task.
cloudpickle.register_pickle_by_value(staged_rows)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class StagedColumns:
    """What is kept of each source row.

    Args:
        keys: The columns that are the keys, in ON's order.
        updates: By the number of an UPDATE clause, for each of the table's columns that it sets the column.
        matched: The column with the number of the MATCHED clause that takes the row where it matches, NULL where none
            changes anything; None where the first one takes all, and where the target's row decides, too.
        inserts: By the number of an INSERT clause, for each of the table's columns the column.
        clause: The column with the number of the INSERT clause that takes the row; None where the only one takes all.
        own: Those of all these columns, and of those that pairs of rows are asked for, that are the source's as it is,
            by name: their positions there.
        computed: The others, as expressions over the rows on which the clauses were evaluated.
        chosen: Those of the computed ones that hold clauses' numbers and need no Spark.
    """

    keys: tuple[str, ...]
    updates: Mapping[int, Mapping[str, str]]
    matched: str | None
    inserts: Mapping[int, Mapping[str, str]]
    clause: str | None
    own: Mapping[str, int]
    computed: Mapping[str, Column]
    chosen: Mapping[str, ClauseChoice]

    @property
    def needs_spark(self) -> bool:
        """Whether something of a row that lies in a file is for Spark to compute."""
        return bool(self.computed.keys() - self.chosen.keys())

    @property
    def asked(self) -> list[int]:
        """The positions of the source's columns that decide which clause takes a row."""
        return sorted(frozenset[int]().union(*(choice.columns for choice in self.chosen.values())))


@dataclass(frozen=True)
class StagedSource:
    """The source's rows, kept.

    Args:
        columns: What is kept of each.
        kept: Where they lie.
        rows: How many there are.
        bytes: About how many bytes they take together.
        bytes_in_memory: The same once they are read.
        summary: What is known of the source.
    """

    columns: StagedColumns
    kept: KeptRows
    rows: int
    bytes: int
    bytes_in_memory: int
    summary: SourceSummary


@dataclass(frozen=True)
class LyingSource:
    """A source that is nothing but files.

    Args:
        source: The source, without what is computed of its rows.
        files: The files.
    """

    source: StagedSource
    files: PlainParquet

    @property
    def is_too_large(self) -> bool:
        """Whether these are more rows than tasks may put into hash tables."""
        return self.source.rows > _MOST_ROWS or self.source.bytes_in_memory > _MOST_BYTES


def with_keys_counted(source: StagedSource, keys: pa.Table) -> StagedSource:
    """Counts the rows that have NULL in a key, and those whose keys a row before them has.

    Args:
        source: The source.
        keys: The keys of its rows.

    Returns:
        The source; it knows nothing of that where some of its rows are not kept.
    """
    if source.rows < source.summary.row_count:
        return source
    whole = keys.drop_null() if any(column.null_count for column in keys.columns) else keys
    different = whole.group_by(keys.column_names).aggregate([])
    nulls, repeated = len(keys) - len(whole), len(whole) - len(different)
    return replace(source, summary=replace(source.summary, null_keys=nulls, repeated_keys=repeated))


def with_gaps(source: StagedSource, keys: pa.Table) -> StagedSource:
    """Leaves the gaps between a source's keys out of what a target row may be.

    Args:
        source: The source.
        keys: The keys of its rows.

    Returns:
        The source with a predicate that is narrower where there are gaps.
    """
    predicate = source.summary.predicate
    names = source.columns.keys
    if not isinstance(predicate, And) or len(predicate.parts) != len(names):
        return source
    parts: list[Predicate] = []
    for part, name in zip(predicate.parts, names, strict=True):
        if isinstance(part, InRanges) and may_have_key_ranges(part.type_name, source.rows):
            found = key_ranges(keys.column(name))
            part = part if found is None else replace(part, ranges=found)
        parts.append(part)
    return replace(source, summary=replace(source.summary, predicate=And(tuple(parts))))


def staged_columns(execution: Execution, how: KeyLookup) -> StagedColumns:
    """Chooses what is kept of each source row.

    Args:
        execution: What to work on.
        how: How the merge runs.
    """
    merge, names = execution.merge, execution.names
    columns = _Columns(execution)
    keys = tuple(columns.of_source(index) for index in how.lookup.source)
    updated = {clause.number: columns.of_clause(clause) for clause in how.updates}
    for index in how.asked_of_source:
        columns.of_source(index)
    matched = None
    if how.matched and not how.takes_all and how.of_pairs is None:
        taken, numbers = F.col(names.clause("matched")), [clause.number for clause in how.matched]
        matched = columns.compute(names.clause("matched"), F.when(taken.isin(*numbers), taken))
        columns.choose(matched, clause_choice(merge, merge.matched, numbers))
    inserting = [clause for clause in merge.not_matched if clause.action == "insert"]
    inserted = {clause.number: columns.of_clause(clause) for clause in inserting}
    clause = None
    if inserting and any(c.condition is not None or c.action != "insert" for c in merge.not_matched):
        clause = columns.compute(names.clause("not_matched"), F.col(names.clause("not_matched")))
        numbers = [c.number for c in merge.not_matched]
        columns.choose(clause, clause_choice(merge, merge.not_matched, numbers))
    return StagedColumns(
        keys, updated, matched, inserted, clause, columns.own, columns.computed, columns.chosen
    )


def source_as_it_lies(execution: Execution, how: KeyLookup, columns: StagedColumns) -> LyingSource | None:
    """Finds out whether the source's own files hold all that is not computed.

    Args:
        execution: What to work on.
        how: How the merge runs.
        columns: What is kept of each row.

    Returns:
        The files; None where Spark must read them.
    """
    merge, lookup, types = execution.merge, how.lookup, how.types
    in_files = {name: merge.source_schema.fields[index].name for name, index in columns.own.items()}
    wanted = {in_files[name]: types[column] for name, column in zip(columns.keys, lookup.target, strict=True)}
    for each in (*columns.updates.values(), *columns.inserts.values()):
        wanted |= {in_files[name]: types[column] for column, name in each.items() if name in in_files}
    looked_at = [*how.asked_of_source, *(() if columns.needs_spark else columns.asked)]
    for field in [merge.source_schema.fields[index] for index in looked_at]:
        kind = arrow_type(field)
        if kind is None:
            return None
        wanted[field.name] = kind
    found = plain_parquet(merge.statement.source, wanted, [in_files[name] for name in columns.keys])
    if found is None:
        return None
    told: dict[str, Any] = {"n": sum(found.rows), "last": None}
    for index, (low, high) in enumerate(found.ranges):
        told |= {f"lo{index}": low, f"hi{index}": high, f"n{index}": told["n"], f"bytes{index}": 0}
    summary = summary_of(told, lookup.keys, {})
    summary = replace(summary, key_bytes=summary.key_bytes + found.key_bytes, partitions=len(found.files))
    kept = KeptRows(found.files, in_files)
    source = StagedSource(columns, kept, told["n"], found.bytes, found.bytes_in_memory, summary)
    return LyingSource(source, found)


def with_chosen(execution: Execution, source: StagedSource) -> StagedSource | None:
    """Finds out which clause takes which row of a source whose rows lie in files.

    Args:
        execution: What to work on.
        source: The source; all that is computed of it are clauses' numbers that need no Spark.

    Returns:
        The source with all its columns; None where the driver would have to read much.
    """
    columns, fields = source.columns, execution.merge.source_schema.fields
    if not columns.chosen:
        return source
    asked = {str(index): fields[index].name for index in columns.asked or [columns.own[columns.keys[0]]]}
    if source.rows * len(asked) > _MOST_COLLECTED:
        return None
    rows = open_staged(replace(source.kept, names=asked), list(asked))
    numbers = {name: choice.of(rows) for name, choice in columns.chosen.items()}
    return _beside(execution, source, pa.table({**numbers, _place(execution): np.arange(len(rows))}))


def _place(execution: Execution) -> str:
    """Gives the name of the column with a row's number among all rows of the source."""
    return execution.names.source_row_index


def _beside(execution: Execution, source: StagedSource, table: pa.Table) -> StagedSource:
    """Writes what was computed of the source's rows beside them."""
    path = execution.table.store.absolute(f"{execution.folder}/computed{STAGED_SUFFIX}")
    file = KeptFile(without_file_scheme(path), 0, 0)
    with pa.ipc.new_file(file.path, table.schema) as writer:
        writer.write_table(table)
    return _with_files(execution, source, (file,), table.nbytes)


def _with_files(
    execution: Execution, source: StagedSource, computed: tuple[KeptFile, ...], size: int
) -> StagedSource:
    kept = replace(source.kept, computed=computed, position=_place(execution))
    return replace(
        source, kept=kept, bytes=source.bytes + size, bytes_in_memory=source.bytes_in_memory + size
    )


def with_computed(execution: Execution, how: KeyLookup, lying: LyingSource) -> StagedSource | None:
    """Computes what is computed of a source whose rows lie in files.

    Args:
        execution: What to work on.
        how: How the merge runs.
        lying: The source.

    Returns:
        The source with all its columns; None where Spark does not tell which row of which file is which.
    """
    source, columns, name = lying.source, lying.source.columns, _place(execution)
    merge = execution.merge
    if any(field.name.lower() == "_metadata" for field in merge.source_schema):
        return None
    frame = merge.statement.source
    if (
        merge.source_alias is not None
        and lying.files.is_whole
        and all(_GLOB.isdisjoint(f.path) for f in lying.files.files)
    ):
        # A view does not say which file a row is of.
        reader = execution.table.spark.read.schema(merge.source_schema)
        frame = reader.parquet(*(file.path for file in lying.files.files))
    try:
        numbered = frame.select("*", _position(lying.files).alias(name))
        # Connect finds out only now whether there is such a column.
        _ = numbered.schema
    except AnalysisException:
        return None
    frame = _evaluated(execution, how, numbered).select(name, *_under_their_names(columns.computed))
    if source.rows * len(columns.computed) <= _MOST_COLLECTED:
        # By way of the driver, which is faster than tasks for few rows.
        table = frame.toArrow()
        return _beside(execution, source, table.cast(plain_types(table.schema)).combine_chunks())
    told = _stage(frame, execution, (), None)
    return _with_files(execution, source, _files(told), sum(row["size"] for row in told)) if told else None


def _position(files: PlainParquet) -> Column:
    """Gives a row's number among the rows of all files."""
    row = F.col("_metadata.row_index")
    if len(files.files) == 1:
        return row
    before = [0, *accumulate(files.rows)][:-1]
    uris = F.array(*(F.lit(_SLASHES.sub("file:/", uri)) for uri in files.uris))
    uri = F.replace(F.col("_metadata.file_path"), F.lit("file:///"), F.lit("file:/"))
    file = F.array_position(uris, uri).cast("int")
    return F.get(F.array(*(F.lit(rows).cast("bigint") for rows in before)), file - 1) + row


def stage_source(execution: Execution, how: KeyLookup, columns: StagedColumns) -> StagedSource | None:
    """Computes the source once and keeps of its rows what the clauses write.

    Args:
        execution: What to work on.
        how: How the merge runs.
        columns: What is kept of each row.

    Returns:
        The kept rows; None where they are too many.
    """
    merge, names, lookup = execution.merge, execution.names, how.lookup
    rows = _evaluated(execution, how, read_source(merge, names).frame)
    own = (F.col(names.source(index)).alias(name) for name, index in columns.own.items())
    frame = rows.select(*own, *_under_their_names(columns.computed))
    # A row that no INSERT takes, and that nothing else needs, is only counted.
    needed = merge.matched or how.by_source
    told = _stage(frame, execution, columns.keys, None if needed else columns.clause, lookup.keys)
    if told is None:
        return None
    return StagedSource(
        columns=columns,
        kept=KeptRows(_files(told)),
        rows=sum(row["kept"] for row in told),
        bytes=sum(row["size"] for row in told),
        bytes_in_memory=sum(row["size"] for row in told),
        summary=_summary(told, lookup.keys),
    )


def _stage(
    frame: DataFrame,
    execution: Execution,
    columns: tuple[str, ...],
    clause: str | None,
    keys: tuple[SourceKey, ...] = (),
) -> list[dict[str, Any]] | None:
    """Writes rows into files; gives what the tasks tell of them, None where they are too many."""
    kept = StagedRows(
        folder=without_file_scheme(execution.table.store.absolute(execution.folder)),
        keys=columns,
        most_rows=_MOST_ROWS,
        most_bytes=_MOST_BYTES,
        clause=clause,
    )
    types = [key.given.simpleString() for key in keys]
    told = [row.asDict() for row in frame.mapInArrow(staging(kept), staged_schema(types)).collect()]
    if any(row["path"] == TOO_MANY for row in told) or sum(row["kept"] for row in told) > _MOST_ROWS:
        return None
    return told


def _files(told: list[dict[str, Any]]) -> tuple[KeptFile, ...]:
    return tuple(KeptFile(row["path"], 0, 0) for row in told if row["kept"])


def _summary(told: list[dict[str, Any]], keys: tuple[SourceKey, ...]) -> SourceSummary:
    """Puts together what the tasks tell."""
    whole: dict[str, Any] = {"n": sum(row["n"] for row in told), "last": None}
    for index in range(len(keys)):
        for name, best in ((f"lo{index}", min), (f"hi{index}", max)):
            found = [row[name] for row in told if row[name] is not None]
            whole[name] = best(found, key=in_order) if found else None
        for name in (f"n{index}", f"bytes{index}"):
            whole[name] = sum(row[name] for row in told)
    return replace(summary_of(whole, keys, {}), partitions=len(told))


def _evaluated(execution: Execution, how: KeyLookup, source: DataFrame) -> DataFrame:
    """Evaluates the clauses on the source's rows alone; all columns have the merge's own names."""
    merge, names = execution.merge, execution.names
    rows = source_rows(source, merge.source_schema, merge.source_alias, names)
    if how.matched and how.of_pairs is None:
        reached = merge.matched[:1] if how.takes_all else merge.matched
        rows = generate_precomputed_conditions(rows, reached, "matched", F.lit(True), names)
        rows = generate_clause_values(rows, how.updates, "matched", names)
    rows = rows.renamed()
    if any(clause.action == "insert" for clause in merge.not_matched):
        rows = evaluate_not_matched(rows, merge, names)
    return rows.frame


def _under_their_names(columns: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]


class _Columns:
    """Collects columns to keep, each of them once."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self.own: dict[str, int] = {}
        self.computed: dict[str, Column] = {}
        self.chosen: dict[str, ClauseChoice] = {}

    def compute(self, name: str, column: Column) -> str:
        self.computed.setdefault(name, column)
        return name

    def choose(self, name: str, choice: ClauseChoice | None) -> None:
        if choice is not None:
            self.chosen[name] = choice

    def of_source(self, index: int) -> str:
        name = self._execution.names.source(index)
        self.own[name] = index
        return name

    def of_clause(self, clause: ResolvedClause) -> dict[str, str]:
        """Gives the columns of what an UPDATE or INSERT sets, by the table's columns."""
        execution = self._execution
        merge, names = execution.merge, execution.names
        found = {}
        for index, (output, field) in enumerate(zip(clause.outputs, merge.output_schema.fields, strict=True)):
            if isinstance(output, TakeTarget):
                continue
            taken = taken_as_it_is(merge, clause, index)
            if taken is not None:
                found[field.name] = self.of_source(taken)
            else:
                name = f"{names.value(clause.clause.kind, clause.number, index)}_stored"
                value = generate_action_expr(merge, clause, index, names, execution.defaults)
                found[field.name] = self.compute(name, value)
        return found
