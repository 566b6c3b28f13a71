"""The executors as the command runs them: scan, join, write; nothing here commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F

from deltamerge.config import MergeConf
from deltamerge.errors import DeltaAnalysisException, DeltaRuntimeException
from deltamerge.log.actions import AddFile, Metadata
from deltamerge.log.column_mapping import mapping_mode
from deltamerge.log.paths import decode_path
from deltamerge.log.schema import parse_schema
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.change_data import generate_cdc_and_output_rows, generate_inserted_rows
from deltamerge.merge.classic import keep_one_match, write_all_changes_rows
from deltamerge.merge.insert_only import (
    WHEN_NO_MATCHED_CLAUSES,
    WHEN_NO_MATCHES,
    filtered_source,
    generate_inserts_only_output,
    unmatched_by_number,
    unmatched_source,
)
from deltamerge.merge.job_errors import assigning_values
from deltamerge.merge.metrics import ScanSizes, record_count
from deltamerge.merge.plan import (
    bytes_that_may_match,
    condition_shape,
    plan_files,
    read_predicate,
    source_keys,
)
from deltamerge.merge.resolved import ResolvedMerge
from deltamerge.merge.scopes import Rows, source_rows, target_rows
from deltamerge.merge.source import Source, SourceSummary, can_broadcast, summarize_source
from deltamerge.merge.steps import Steps
from deltamerge.merge.touched_files import TouchedFiles, find_touched_files
from deltamerge.names import MergeNames
from deltamerge.scan.target import ScanColumns, absolute_key, target_frame
from deltamerge.skipping.predicates import ALWAYS, Predicate
from deltamerge.table import Table
from deltamerge.write.constraints import checked
from deltamerge.write.data_files import WriteTarget, WrittenFiles, write_files, write_files_with_changes
from deltamerge.write.defaults import column_defaults

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NOTHING_WRITTEN = WrittenFiles((), (), ())
_SMALL_TARGET_BYTES = 8 << 20
_FEW_TASKS = 8
_ROWS_IN_A_FILE = 200_000
BY_KEYS_AND_CONDITIONS = "the source's key ranges and the conditions on the target"
NOTHING_TOUCHED = TouchedFiles((), (), {}, has_multiple_matches=False)


@dataclass(frozen=True)
class Execution:
    """All that an executor works on.

    Args:
        table: The target.
        snapshot: Its state that the merge reads.
        metadata: Its metadata after the merge.
        merge: What the statement means for it.
        conf: The session's settings.
        names: The merge's own names.
        steps: Runs and times the steps.
        folder: A folder of the table in which nothing was ever written.
        clock: Gives the time in milliseconds since 1970.
    """

    table: Table
    snapshot: Snapshot
    metadata: Metadata
    merge: ResolvedMerge
    conf: MergeConf
    names: MergeNames
    steps: Steps
    folder: str
    clock: Callable[[], int]

    @property
    def defaults(self) -> Callable[[int], Column]:
        """Gives an output column's default."""
        return column_defaults(self.merge.output_schema)

    @property
    def writes_change_data(self) -> bool:
        """Whether the table has a change data feed."""
        return self.snapshot.metadata.configuration.get("delta.enableChangeDataFeed", "").lower() == "true"

    @property
    def write_target(self) -> WriteTarget:
        """Where and how rows are written."""
        return WriteTarget(
            store=self.table.store,
            schema=self.merge.output_schema,
            log_schema=parse_schema(self.merge.output_schema.json()),
            partition_columns=self.metadata.partition_columns,
            configuration=self.metadata.configuration,
            folder=self.folder,
            clock=self.clock,
        )


@dataclass(frozen=True)
class MergeChanges:
    """What an executor found and wrote.

    Args:
        execution: What it worked on.
        source_rows: Rows of the source.
        second_scan_rows: Rows of the source in a second scan, -1 where there was none.
        scan: What skipping left.
        read_files: The files that were read.
        predicate: What the target rows look like that had to be seen.
        touched: What the first scan found; its `rewrite` files are replaced.
        written: The new files.
        inserted: Rows inserted.
        inserted_by_clause: The same by clause.
        copied: Rows of replaced files that no clause changed.
        notes: Sentences for the report.
    """

    execution: Execution
    source_rows: int
    second_scan_rows: int
    scan: ScanSizes
    read_files: tuple[AddFile, ...]
    predicate: Predicate
    touched: TouchedFiles
    written: WrittenFiles
    inserted: int
    inserted_by_clause: Mapping[tuple[str, int], int]
    copied: int
    notes: tuple[str, ...]


def reads_source_once(execution: Execution) -> bool:
    """Tells whether a merge that only inserts is best done in one pass, as long as nothing is known of the source.

    Spark sends a small target to every executor, so that the source is not shuffled.
    """
    predicate = read_predicate(execution.merge, condition_shape(execution.merge), ALWAYS)
    zone = execution.conf.session_time_zone
    return bytes_that_may_match(execution.snapshot, predicate, zone) <= _SMALL_TARGET_BYTES


def execute_insert_only(execution: Execution, source: Source) -> MergeChanges:
    """Runs a merge that only inserts.

    Args:
        execution: What to work on.
        source: The source.

    Returns:
        The files written. Delta: InsertOnlyMergeExecutor.writeOnlyInserts with filterMatchedRows.
    """
    merge, names, steps = execution.merge, execution.names, execution.steps
    summary = source.summary
    with steps.step("plan", "choosing the files to read"):
        possible = ALWAYS if summary is None else summary.predicate
        predicate = read_predicate(merge, condition_shape(merge), possible)
        files, sizes = plan_files(execution.snapshot, predicate, execution.conf.session_time_zone)
    counted = Observation()
    frame = (
        source.frame.observe(counted, F.count(F.lit(1)).alias("rows")) if summary is None else source.frame
    )
    rows = source_rows(frame, merge.source_schema, merge.source_alias, names)
    with steps.step("write_only_inserts", "writing new files for only inserts"), assigning_values(merge):
        unmatched = filtered_source(merge, rows)
        if files and summary is None:
            unmatched = unmatched_source(merge, unmatched, target_side(execution, files))
        elif files and summary is not None:
            unmatched = _unmatched(execution, unmatched, summary, files)
        if summary is not None:
            together = put_together(unmatched.frame, summary.partitions, summary.row_count)
            unmatched = Rows(together, unmatched.names)
        written, by_clause = write_inserts(execution, unmatched, WHEN_NO_MATCHED_CLAUSES)
        source_count = int(counted.get.get("rows", 0)) if summary is None else summary.row_count
    by = "ON's conditions on the target" if summary is None else BY_KEYS_AND_CONDITIONS
    return MergeChanges(
        execution=execution,
        source_rows=source_count,
        second_scan_rows=-1,
        scan=sizes,
        read_files=files,
        predicate=predicate,
        touched=NOTHING_TOUCHED,
        written=written,
        inserted=written.row_count,
        inserted_by_clause=by_clause,
        copied=0,
        notes=skipping_notes(sizes, by),
    )


def execute_classic(execution: Execution, source: Source) -> MergeChanges:
    """Runs any merge in two scans: find the touched files, then write them again with all changes.

    Args:
        execution: What to work on.
        source: The source.

    Returns:
        The files written and those they replace. Delta: ClassicMergeExecutor.
    """
    merge, names, steps = execution.merge, execution.names, execution.steps
    shape = condition_shape(merge)
    summary = source.summary
    if summary is None:
        with steps.step("summarize_source", "counting the source's rows and its keys' ranges"):
            summary = summarize_source(source, merge.source_alias, source_keys(merge, shape), names)
    with steps.step("plan", "choosing the files to read"):
        predicate = read_predicate(merge, shape, summary.predicate)
        files, sizes = plan_files(execution.snapshot, predicate, execution.conf.session_time_zone)
    rows = source_rows(source.frame, merge.source_schema, merge.source_alias, names)
    touched = NOTHING_TOUCHED
    if files:
        with steps.step("find_touched_files", "scanning files for matches"):
            by_name = {absolute_key(execution.table, file): file for file in files}
            touched = find_touched_files(merge, rows, target_side(execution, files), by_name, names)
    if touched.rewrite:
        refuse_append_only(execution.snapshot)
    written, by_clause, second_scan = NOTHING_WRITTEN, dict[tuple[str, int], int](), -1
    if touched.rewrite:
        second_scan = summary.row_count
        with (
            steps.step(
                "write_all_changes",
                f"rewriting {len(touched.rewrite)} file{'' if len(touched.rewrite) == 1 else 's'}",
            ),
            assigning_values(merge),
        ):
            written, by_clause = _write_all_changes(execution, rows, touched)
    elif merge.inserts and summary.row_count:
        second_scan = summary.row_count
        with (
            steps.step("write_only_inserts", "writing new files for only inserts"),
            assigning_values(merge),
        ):
            if touched.only_matched:
                rows = _unmatched(execution, rows, summary, touched.only_matched)
            written, by_clause = write_inserts(execution, rows, WHEN_NO_MATCHES)
    copied, inserted = count_rows(execution, touched, written)
    return MergeChanges(
        execution=execution,
        source_rows=summary.row_count,
        second_scan_rows=second_scan,
        scan=sizes,
        read_files=files,
        predicate=predicate,
        touched=touched,
        written=written,
        inserted=inserted,
        inserted_by_clause=by_clause if len(by_clause) > 1 else only_clause(merge, inserted),
        copied=copied,
        notes=skipping_notes(sizes, BY_KEYS_AND_CONDITIONS),
    )


def _unmatched(execution: Execution, rows: Rows, summary: SourceSummary, files: tuple[AddFile, ...]) -> Rows:
    """Keeps the source rows that match no row of some files."""
    target = target_side(execution, files)
    broadcast = can_broadcast(summary, execution.conf.auto_broadcast_join_threshold)
    return unmatched_by_number(execution.merge, rows, target, execution.names, broadcast=broadcast)


def target_side(execution: Execution, files: tuple[AddFile, ...]) -> Rows:
    """Makes the target's side of a join from some files."""
    merge, names = execution.merge, execution.names
    return target_rows(scan_files(execution, files), merge.target_schema, merge.target_alias, names)


def scan_files(execution: Execution, files: tuple[AddFile, ...]) -> DataFrame:
    """Reads some files of the target, with each row's file and position."""
    return target_frame(
        execution.table,
        execution.merge.target_schema,
        execution.snapshot.metadata.partition_columns,
        files,
        ScanColumns(execution.names.file_name, execution.names.row_index),
        mapping_mode(execution.snapshot.metadata.configuration),
    )


def write_inserts(
    execution: Execution, unmatched: Rows, extra_op_type: str
) -> tuple[WrittenFiles, dict[tuple[str, int], int]]:
    """Writes source rows that match nothing; counts them by clause."""
    merge, names = execution.merge, execution.names
    rows = generate_inserts_only_output(merge, unmatched, names, execution.defaults, extra_op_type)
    frame, counts = observing_clauses(merge, rows.frame, F.col(names.clause("not_matched")))
    rows = Rows(frame, rows.names)
    if execution.writes_change_data:
        changed = generate_inserted_rows(rows, merge.output_schema, names)
        written = _write_with_changes(execution, changed)
    else:
        written = _write(execution, table_columns(rows, execution))
    return written, observed_inserts(merge, counts, written.row_count)


def _write_all_changes(
    execution: Execution, source: Rows, touched: TouchedFiles
) -> tuple[WrittenFiles, dict[tuple[str, int], int]]:
    merge, names = execution.merge, execution.names
    # Files in which nothing changes are joined only so that an INSERT knows of their matches.
    rewritten = F.lit(True)
    scanned = scan_files(execution, touched.rewrite).withColumn(names.file_rewritten, rewritten)
    if merge.inserts and touched.only_matched:
        matched = scan_files(execution, touched.only_matched).withColumn(names.file_rewritten, F.lit(False))
        scanned = scanned.union(matched) if touched.rewrite else matched
    target = target_rows(scanned, merge.target_schema, merge.target_alias, names)
    target = Rows(target.frame, (*target.names[:-1], names.file_rewritten, names.target_row_present))
    rows = write_all_changes_rows(merge, source, target, names, execution.conf, execution.defaults)
    if touched.has_multiple_matches:
        rows = keep_one_match(rows, names)
    change = F.col(names.change)
    counts = None
    if len([c for c in merge.not_matched if c.action == "insert"]) > 1:
        inserting = F.when(change == F.lit("insert"), F.col(names.clause("not_matched")))
        frame, counts = observing_clauses(merge, rows.frame, inserting)
        rows = Rows(frame, rows.names)
    if execution.writes_change_data:
        changed = generate_cdc_and_output_rows(rows, merge.output_schema, names)
        written = _write_with_changes(execution, changed)
    else:
        kept = change.isin("insert", "update") | (change.isNull() & F.col(names.file_rewritten))
        written = _write(execution, table_columns(Rows(rows.frame.where(kept), rows.names), execution))
    return written, observed_inserts(merge, counts, 0) if counts is not None else {}


def table_columns(rows: Rows, execution: Execution) -> DataFrame:
    """Gives output columns the table's names."""
    schema, names = execution.merge.output_schema, execution.names
    return rows.frame.select(*(F.col(names.output(i)).alias(f.name) for i, f in enumerate(schema.fields)))


def _write(execution: Execution, frame: DataFrame) -> WrittenFiles:
    return write_files(guarded_rows(execution, frame), execution.write_target)


def _write_with_changes(execution: Execution, frame: DataFrame) -> WrittenFiles:
    guarded = guarded_changes(execution, frame)
    return write_files_with_changes(guarded, execution.names.change_type, execution.write_target)


def guarded_rows(execution: Execution, frame: DataFrame) -> DataFrame:
    """Makes rows of the table ready to be written: put together by partition, constraints checked."""
    target = execution.write_target
    frame = repartition_if_needed(execution, frame)
    return checked(frame, target.schema, target.configuration)


def guarded_changes(execution: Execution, frame: DataFrame) -> DataFrame:
    """Makes rows of the table and of its change data ready to be written; see `guarded_rows`."""
    target = execution.write_target
    frame = repartition_if_needed(execution, frame)
    is_table_row = F.col(execution.names.change_type).isNull()
    return checked(frame, target.schema, target.configuration, is_table_row)


def repartition_if_needed(execution: Execution, frame: DataFrame) -> DataFrame:
    """Brings the rows of a partition together, where the session wants that."""
    columns = execution.snapshot.metadata.partition_columns
    if not columns or not execution.conf.repartition_before_write:
        return frame
    return frame.repartition(*("`" + name.replace("`", "``") + "`" for name in columns))


def observing_clauses(
    merge: ResolvedMerge, frame: DataFrame, number: Column
) -> tuple[DataFrame, Observation | None]:
    """Counts the rows of each INSERT clause where there are several."""
    inserting = [c for c in merge.not_matched if c.action == "insert"]
    if len(inserting) < 2:
        return frame, None
    observation = Observation()
    counts = [F.sum((number == F.lit(c.number)).cast("int")).alias(f"clause_{c.number}") for c in inserting]
    return frame.observe(observation, *counts), observation


def observed_inserts(
    merge: ResolvedMerge, observation: Observation | None, inserted: int
) -> dict[tuple[str, int], int]:
    """Reads the counts of `observing_clauses`; one clause has all rows."""
    if observation is None:
        return only_clause(merge, inserted)
    found = observation.get
    return {
        ("not_matched", c.number): int(found.get(f"clause_{c.number}") or 0)
        for c in merge.not_matched
        if c.action == "insert"
    }


def put_together(frame: DataFrame, tasks: int, rows: int) -> DataFrame:
    """Lets Spark put rows together that would come from many tasks, each of which would write a small file.

    Args:
        frame: The rows.
        tasks: About how many tasks they come from.
        rows: About how many they are.
    """
    return frame.hint("rebalance") if tasks > _FEW_TASKS and rows < tasks * _ROWS_IN_A_FILE else frame


def only_clause(merge: ResolvedMerge, inserted: int) -> dict[tuple[str, int], int]:
    """Counts all inserted rows for the one INSERT clause."""
    return {("not_matched", c.number): inserted for c in merge.not_matched if c.action == "insert"}


def count_rows(execution: Execution, touched: TouchedFiles, written: WrittenFiles) -> tuple[int, int]:
    """Finds how many rows were copied and inserted, from what the files themselves say.

    Raises:
        DeltaRuntimeException: The written rows do not add up; committing them would lose or double rows.
    """
    merge = execution.merge
    before = sum(rows_in(execution, file) for file in touched.rewrite)
    clauses = (*merge.matched, *merge.not_matched_by_source)
    updated, deleted = touched.rows(clauses, "update"), touched.rows(clauses, "delete")
    copied = before - updated - deleted
    inserted = written.row_count - updated - copied
    if copied < 0 or inserted < 0 or (inserted and not merge.inserts):
        raise DeltaRuntimeException(
            "DELTA_MERGE_SOURCE_CHANGED",
            f"The merge found {updated} rows to update and {deleted} to delete among {before}, but then wrote "
            f"{written.row_count} rows. The source gave other rows when it was read again; the table is as it was. Set "
            "spark.databricks.delta.merge.materializeSource to auto, or make the source deterministic.",
            sqlstate="XXKDS",
        )
    return copied, inserted


def rows_in(execution: Execution, file: AddFile) -> int:
    """Counts a file's rows, by its statistics or its footer."""
    counted = record_count(file)
    if counted is not None:
        return counted
    return int(pq.ParquetFile(execution.table.store.open_input(decode_path(file.path))).metadata.num_rows)


def skipping_notes(sizes: ScanSizes, by: str) -> tuple[str, ...]:
    """Says how many files were not read."""
    skipped = sizes.files_before - sizes.files_after
    return (f"{skipped} of {sizes.files_before} files were never read, thanks to {by}.",) if skipped else ()


def refuse_append_only(snapshot: Snapshot) -> None:
    """Refuses to update or delete rows of a table that only takes appends."""
    if snapshot.metadata.configuration.get("delta.appendOnly", "").lower() == "true":
        raise DeltaAnalysisException(
            "DELTA_CANNOT_MODIFY_APPEND_ONLY",
            "This table is configured to only allow appends, and the merge updates or deletes rows. Nothing was "
            "changed. To permit it: ALTER TABLE … SET TBLPROPERTIES (delta.appendOnly=false).",
            sqlstate="42809",
        )
