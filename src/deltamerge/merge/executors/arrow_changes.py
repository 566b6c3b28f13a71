"""Changed and new rows written by PyArrow: values of the source's rows, at the positions that the lookup found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql.types import StructType

from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import rows_about
from deltamerge.log.packing import packed
from deltamerge.log.paths import decode_path
from deltamerge.merge.executors.execution import Execution, file_form
from deltamerge.merge.executors.key_matching import Pairs
from deltamerge.merge.executors.lookup import Lookup
from deltamerge.merge.executors.merge_changes import NOTHING_WRITTEN, MergeChanges
from deltamerge.merge.executors.partitions import Partition, Partitions, moved_rows, partitions_of, rows_of_a_file
from deltamerge.merge.executors.row_counts import RowCounts, changes_of, writing_step
from deltamerge.merge.executors.source_exchange import with_exchanged_inserts
from deltamerge.merge.executors.touched_files import TouchedFiles, log_matched_files
from deltamerge.merge.output.identity_columns import generated_identities
from deltamerge.merge.plan import Declined
from deltamerge.merge.planning.fit import PARQUET_CODECS, parquet_options
from deltamerge.merge.planning.target_files import TargetFiles
from deltamerge.scan.column_mapping import physical_field
from deltamerge.scan.file_types import given_shape
from deltamerge.spark import tasks
from deltamerge.spark.nested_types import inner_types
from deltamerge.workers.arrow_rows import DONE_SCHEMA, writing
from deltamerge.workers.new_rows import NOTHING_INSERTED, ChangingFile, NewRows, new_file_work, patch_work
from deltamerge.workers.row_tracking import Origin
from deltamerge.workers.row_values import ClauseRows
from deltamerge.workers.staged_rows import SPARK_VERSION, StagedRows
from deltamerge.write.data_files import WrittenFiles, change_folder, files_of_tasks
from deltamerge.write.deletion_vectors import VectorChanges, write_deletion_vectors
from deltamerge.write.identity_columns import RowNumbers, identity_column
from deltamerge.write.patching import patchable


@dataclass(frozen=True)
class ArrowChanges:
    """What PyArrow is to write.

    Args:
        found: The pairs that clauses take.
        matched: All pairs: what is in them is not inserted.
        values: What Spark computed of each pair; None where it computed nothing.
    """

    lookup: Lookup
    target: TargetFiles
    found: tuple[Pairs, ...]
    matched: tuple[Pairs, ...]
    values: StagedRows | None = None

    @cached_property
    def touched(self) -> TouchedFiles:
        files = tuple(pairs.file for pairs in self.found if pairs.taken_rows)
        counts = {
            key: sum(pairs.rows_by_clause.get(number, 0) for pairs in self.found)
            for key, number in self.lookup.recipe.clauses.numbers.items()
        }
        return TouchedFiles(files, (), counts, has_multiple_matches=False)

    def updated(self, pairs: Pairs) -> int:
        return sum(pairs.rows_by_clause.get(clause.code, 0) for clause in self.lookup.recipe.clauses.updates)

    def located(self, pairs: Sequence[Pairs]) -> list[ChangingFile]:
        return [
            ChangingFile(
                self.lookup.execution.located(decode_path(p.file.path)),
                p.path,
                Origin(p.file.base_row_id, p.file.default_row_commit_version),
                p.exchanged,
            )
            for p in pairs
        ]

    @cached_property
    def writes_change_data(self) -> bool:
        """Whether change files are written; of a commit that only adds files, these are the change data."""
        return self.lookup.execution.writes_change_data and bool(self.touched.rewrite)

    @property
    def roots(self) -> list[str]:
        folder = self.lookup.execution.folder
        return [folder, change_folder(folder)] if self.writes_change_data else [folder]

    def new_files(self, partition: Partition, kind: str, *numbers: int) -> tuple[str, str]:
        """Return the paths of a new file and of the file with its change data, which may be empty."""
        name = "-".join([kind, *(f"{number:05d}" for number in numbers)])
        data, *changes = [
            self.lookup.execution.located(f"{root}/{partition.folders}{prefix}{name}.parquet")
            for root, prefix in zip(self.roots, ("", "cdc-"), strict=False)
        ]
        return data, changes[0] if changes else ""


def write_changes(changes: ArrowChanges) -> MergeChanges:
    """Write changed and new rows, and copy the others of touched files where they have no deletion vectors.

    Raises:
        Declined: A file is not to be written by PyArrow, or rows go to very many partitions.
    """
    execution, touched = changes.lookup.execution, changes.touched
    merge, steps = execution.merge, execution.steps
    if touched.rewrite:
        execution.refuse_append_only()
        if not execution.writes_deletion_vectors:
            check_patchable(execution, touched.rewrite)
    partitions = _partitions(changes)
    items = _items(changes, partitions.each)
    written, counts = NOTHING_WRITTEN, None
    if items:
        with steps.step(*writing_step(execution, touched), touched.rewrite):
            written, counts = _write_files(changes, items, partitions.order)
            _remove_empty_folders(changes, partitions.each, written)
    return changes_of(
        execution,
        changes.lookup.staged.summary,
        changes.target,
        touched,
        written,
        counts,
        second_scan=bool(items) and not merge.statement.is_insert_only,
        delete_rows=partial(_delete_rows, changes),
    )


def _partitions(changes: ArrowChanges) -> Partitions:
    """Find the partitions that get files, and make their folders."""
    touched = {file.path for file in changes.touched.rewrite}
    log_matched_files(sorted(touched))
    pairs = sorted((p for p in changes.found if p.file.path in touched), key=lambda pairs: -pairs.file.size)
    execution = changes.lookup.execution
    changed, moved = moved_rows(changes.lookup, pairs, changes.values)
    if execution.writes_deletion_vectors and not changes.writes_change_data:
        changed = tuple(found for found in changed if changes.updated(found))
    partitions = partitions_of(changes.lookup, changes.matched, changed, moved)
    partitions = with_exchanged_inserts(changes.lookup, partitions)
    for root in changes.roots:
        for folder in sorted({partition.folders for partition in partitions.each}):
            changes.lookup.execution.table.store.make_folder(f"{root}/{folder}")
    return partitions


def _remove_empty_folders(changes: ArrowChanges, partitions: Sequence[Partition], written: WrittenFiles) -> None:
    named = [*(file.path for file in written.files), *(file.path for file in written.change_files)]
    paths = (decode_path(path).split("/")[:-1] for path in named)
    used = {"/".join([*levels[:depth], ""]) for levels in paths for depth in range(1, len(levels) + 1)}
    for root in changes.roots:
        for partition in partitions:
            levels = partition.folders.split("/")[:-1]
            for depth in range(len(levels)):
                folder = "/".join([root, *levels[: depth + 1], ""])
                if folder not in used:
                    changes.lookup.execution.table.store.delete_folder(folder)


def _items(changes: ArrowChanges, partitions: Sequence[Partition]) -> list[str]:
    """Describe the files to be written, the ones that take longest first."""
    by_vectors, located = changes.lookup.execution.writes_deletion_vectors, changes.located
    changed: list[str] = []
    new: list[str] = []
    for number, partition in enumerate(partitions):
        new_files = partial(changes.new_files, partition)
        if _is_small(changes, partition):
            files, (inserted,) = located(partition.pairs), partition.inserted or (NOTHING_INSERTED,)
            whole, updated = ((), files) if by_vectors else (files, ())
            target, moved = new_files("part", number, 0), located(partition.moved)
            new.append(new_file_work(*target, rewritten=whole, changed=updated, moved=moved, inserted=inserted))
            continue
        if by_vectors:
            for i, group in enumerate(_groups(changes, partition.pairs)):
                changed.append(new_file_work(*new_files("changed", number, i), changed=located(group)))
        else:
            for i, file in enumerate(located(partition.pairs)):
                changed.append(patch_work(file, *new_files("kept", number, i)))
        for i, group in enumerate(_groups(changes, partition.moved)):
            new.append(new_file_work(*new_files("moved", number, i), moved=located(group)))
        for i, inserted in enumerate(partition.inserted):
            new.append(new_file_work(*new_files("part", number, i), inserted=inserted))
    return [*changed, *new]


def _is_small(changes: ArrowChanges, partition: Partition) -> bool:
    """Return whether a partition gets only one file: small merges shall not leave ever more small files."""
    rows, most = partition.rows + sum(map(changes.updated, partition.moved)), rows_of_a_file(changes.lookup.execution)
    if most is not None and rows + _rows_written_again(changes, partition.pairs) > most:
        return False
    size = changes.lookup.staged.bytes + sum(pairs.file.size for pairs in partition.pairs)
    limits, files = changes.lookup.execution.limits, len(partition.pairs) + len(partition.moved)
    if len(partition.inserted) > 1 or files > limits.driver_files or size > limits.small_partition_bytes:
        return False
    return bool(rows) or len(partition.pairs) > 1


def _rows_written_again(changes: ArrowChanges, changed: Sequence[Pairs]) -> int:
    if changes.lookup.execution.writes_deletion_vectors:
        return sum(map(changes.updated, changed))
    return rows_about((pairs.file.stats, pairs.file.size) for pairs in changed)


def _groups(changes: ArrowChanges, changed: Sequence[Pairs]) -> Iterator[list[Pairs]]:
    """Put files together whose updated rows go into one new file, which is not too large unless one file has more."""
    limit = changes.lookup.execution.limits.pairs_of_a_file
    most = min(rows_of_a_file(changes.lookup.execution) or limit, limit)
    return packed(((pairs, changes.updated(pairs)) for pairs in changed), most)


def _write_files(changes: ArrowChanges, items: Sequence[str], order: str) -> tuple[WrittenFiles, RowCounts]:
    """Write all files in one job; return them, and how many rows each INSERT clause took."""
    execution, columns, table = changes.lookup.execution, changes.lookup.staged.columns, changes.lookup.recipe.table
    spark, limits = execution.table.spark, execution.limits
    partition_columns = execution.snapshot.metadata.partition_columns
    stored = {name: field for name, field in table.columns.items() if name not in partition_columns}
    new = NewRows(
        staged=changes.lookup.staged.rows,
        updates={number: _by_stored_name(clause, stored) for number, clause in columns.updates.items()},
        inserts={number: _by_stored_name(clause, stored) for number, clause in columns.inserts.items()},
        clause=columns.clause,
        form=file_form(execution),
        values=changes.values,
        of_pairs=changes.lookup.recipe.pair_values.names,
        identities=_identities(changes),
        counted_by=next(iter((*columns.own, *columns.computed)), None),
        not_null=frozenset(
            _physical_path(execution, path) for path in table.not_null if path[0] not in partition_columns
        ),
        shapes={
            stored[field.name].name: given_shape(field.dataType, stored[field.name].type)
            for field in execution.merge.output_schema.fields
            if field.name in stored and inner_types(field.dataType)
        },
        checks=table.checks,
        metadata={SPARK_VERSION: spark.version.encode()},
        pairs=tuple(pairs.path for pairs in changes.matched),
        order=order,
        options=parquet_options(PARQUET_CODECS[execution.context.session.compression.lower()]),
    )
    rows = pa.table({"work": pa.array(items, pa.string())})
    in_driver = (
        len(items) <= limits.driver_new_files
        and changes.lookup.staged.bytes_in_memory <= limits.driver_source_bytes
        and execution.fits_driver(_bytes_read(changes, new), len(changes.found))
    )
    report = execution.steps.advance
    done = tasks.run(spark, writing(execution.files, new), rows, DONE_SCHEMA, in_driver=in_driver, report=report)
    counts = Counter[tuple[str, int]]({clause.key: 0 for clause in execution.merge.inserting})
    for row in done:
        if row["unfit"] is not None:
            raise Declined("changed_rows", execution.plan.changed_rows.choice, row["unfit"])
        counts.update({("not_matched", int(number)): rows for number, rows in json.loads(row["detail"]).items()})
    written = files_of_tasks(execution.write_target, done)
    return written, RowCounts(written.row_count, counts)


def _physical_path(execution: Execution, path: Sequence[str]) -> tuple[str, ...]:
    names, fields = list[str](), execution.merge.output_schema
    for name in path:
        field = next(field for field in fields.fields if field.name == name)
        names.append(physical_field(field, execution.context.mapping_mode).name)
        fields = field.dataType if isinstance(field.dataType, StructType) else StructType()
    return tuple(names)


def _identities(changes: ArrowChanges) -> dict[str, tuple[int, int]]:
    """Return of the identity columns that get values those of the first source row, and their steps."""
    merge, numbers = changes.lookup.execution.merge, RowNumbers((0,), changes.lookup.staged.row_count)
    given = generated_identities(merge)
    columns = [column for column in map(identity_column, merge.output_schema.fields) if column is not None]
    stored = changes.lookup.recipe.table.columns
    return {stored[c.name].name: (numbers.first_value(c), c.step) for c in columns if c.name in given}


def _by_stored_name(clause: ClauseRows, stored: Mapping[str, pa.Field]) -> ClauseRows:
    return replace(clause, settings={stored[n].name: how for n, how in clause.settings.items() if n in stored})


def _bytes_read(changes: ArrowChanges, new: NewRows) -> float:
    share = 1.0
    if changes.lookup.execution.writes_deletion_vectors and not changes.writes_change_data:
        # Of a changed row only what its UPDATE leaves as it was is read in its file.
        kept = [
            name for name in new.schema.names if any(name not in clause.settings for clause in new.updates.values())
        ]
        share = len(kept) / len(new.schema)
    return changes.lookup.staged.bytes + share * sum(pairs.file.size for pairs in changes.found)


def _delete_rows(changes: ArrowChanges) -> VectorChanges:
    changed = [pairs for pairs in changes.found if pairs.taken_rows]
    deleted = {pairs.file.path: pairs.changed for pairs in changed}
    files = {pairs.file.path: pairs.file for pairs in changed}
    return write_deletion_vectors(changes.lookup.execution.table.store, changes.lookup.execution.folder, deleted, files)


def check_patchable(execution: Execution, files: Sequence[AddFile]) -> None:
    """Decline files that PyArrow cannot write again exactly as they are."""
    fit = patchable(execution.table.store, execution.files, files)
    for file in files:
        if file.path not in fit:
            reason = f"PyArrow cannot write {file.path} again exactly as it is"
            raise Declined("match", "key_lookup", reason)
