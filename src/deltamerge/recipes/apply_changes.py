"""scd2 and apply_changes: a target that follows a feed of changes, late and repeated ones too."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructField, StructType

from deltamerge.api.arguments import names_in
from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import DeltaMergeBuilder
from deltamerge.api.report import MergeReport
from deltamerge.commands.auto_compact import merge_and_compact
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.command import MergeIntoCommand
from deltamerge.merge.executors.job_errors import translating
from deltamerge.merge.outcome import LostCommit, MergeOutcome, Progress
from deltamerge.merge.reruns import RUN_AGAIN, check_same_columns, seconds_to_wait
from deltamerge.recipes.changes import (
    CHANGE_LOG,
    SEQUENCE,
    Feed,
    FoldRules,
    events_of,
    left_out_notes,
    log_schema,
    record,
    sequence_field,
    shared_columns,
    written_columns,
)
from deltamerge.recipes.history import (
    HistoryColumns,
    merge_of_history,
    merge_of_newest,
    with_events_shown,
    with_rows_shown,
)
from deltamerge.recipes.keyed_rows import files_of_keys, rows_of_keys
from deltamerge.recipes.logged_names import (
    OF_TABLE,
    LoggedNames,
    check_log_of,
    logged_names,
    names_of_new_log,
    naming_log,
    record_names,
    widen_log,
)
from deltamerge.recipes.outcomes import outcome_of_call
from deltamerge.recipes.sequences import KeptSequence, SequenceBy, check_history, sequence_column
from deltamerge.recipes.targets import (
    Target,
    TargetPlace,
    column_of,
    key_names,
    named_column,
    place_of_target,
    refuse_in_folder,
    run_without_transaction,
    type_of_value,
    unknown_column,
)
from deltamerge.spark import columns as F
from deltamerge.spark.session import merge_conf
from deltamerge.spark.table import spark_schema
from deltamerge.sql.names import quote
from deltamerge.storage.credentials import StoreOptions
from deltamerge.txn.application import NO_TRANSACTION, ApplicationTransaction, option_transaction, session_transaction
from deltamerge.write.align import find_field, same_name

AUTO_CDC = HistoryColumns("__START_AT", "__END_AT")


def scd2(
    target: Target,
    source: DataFrame,
    keys: str | Sequence[str],
    tracked: Sequence[str] | None = None,
    *,
    effective_at: str | Column,
    delete_when: str | Column | None = None,
    except_columns: str | Sequence[str] = (),
    ignore_nulls: bool = False,
    valid_from: str = "valid_from",
    valid_to: str = "valid_to",
    is_current: str | None = "is_current",
    change_log: str | None = None,
    options: StoreOptions | None = None,
    progress: Progress | None = None,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    user_metadata: str | None = None,
) -> MergeReport:
    """Keep a history of rows: a change of a tracked column starts a new version and closes the previous one.

    Changes may arrive late, in any order and more than once: the result depends only on the set of changes. All of
    them are kept in a table beside the target, the change log; see docs/recipes.md for what that costs.

    Args:
        target: The table: a `DeltaTable`, a path (a string with a slash), or a name in the catalog. If a path has
            no table, one is created with the source's columns and the three of the history.
        source: The changes, each with all columns of the row as they are from then on.
        keys: The columns that identify what the versions are of; NULL is an ordinary key value.
        tracked: The columns whose changes make a new version; the others are overwritten in the current one. By default
            all but the keys and `effective_at`.
        effective_at: When a row of the source becomes valid: a column, SQL or a Column over the source, never NULL.
        delete_when: A condition over the source, which is ``s`` there: the row ends without a new version.
        except_columns: Columns of the source that a new table does not get.
        ignore_nulls: Whether NULL in a change leaves the value as it was, also in fields of structs.
        valid_from: The target's column for the start of a version.
        valid_to: The target's column for its end, exclusive; NULL for the current version.
        is_current: The target's column that is TRUE for the current version, or None without one.
        change_log: A path or a name for the change log. By default it is in a folder of the target.
        options: The options of the object store, as for `DeltaTable.forPath`.
        progress: An object whose ``step(name, description)`` is called as each step begins, such as
            `show_progress`.
        txn_app_id: The application that merges; with `txn_version` the changes are applied once.
        txn_version: The application's number for this call, greater than those of its earlier writes.
        user_metadata: A string for the commit's ``userMetadata``.

    Returns:
        The report of the merge into the target.

    Raises:
        DeltaAnalysisException: A column is missing, or the arguments do not fit the table; nothing was written.
        MultipleSourceRowsException: A key has several different changes at one time; nothing was written.
        DeltaRuntimeException: The data is at fault; the target is unchanged.
        DeltaConcurrentModificationException: Other writers committed first each time; their changes are in the target.
    """
    feed = Feed(
        key_names(keys),
        F.as_column(effective_at),
        "effective_at",
        None if delete_when is None else F.as_column(delete_when),
        names_in("except_columns", except_columns),
    )
    place = place_of_target(source.sparkSession, target, options)
    follower = _Follower(
        source=place.rows(source),
        feed=feed,
        place=place,
        history=HistoryColumns(valid_from, valid_to, is_current),
        tracked=None if tracked is None else names_in("tracked", tracked),
        effective_at=effective_at,
        ignore_nulls=ignore_nulls,
        change_log=change_log,
    )
    return follower.run(progress, option_transaction(txn_app_id, txn_version), user_metadata)


def apply_changes(
    target: Target,
    source: DataFrame,
    keys: str | Sequence[str],
    sequence_by: str | Column | Sequence[str],
    *,
    apply_as_deletes: str | Column | None = None,
    except_columns: str | Sequence[str] = (),
    scd_type: Literal[1, 2] = 1,
    ignore_null_updates: bool = False,
    track_history_columns: Sequence[str] | None = None,
    track_history_except_columns: Sequence[str] = (),
    change_log: str | None = None,
    options: StoreOptions | None = None,
    progress: Progress | None = None,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    user_metadata: str | None = None,
) -> MergeReport:
    """Apply a feed of changes in the order of their sequence, as Databricks' AUTO CDC does.

    Changes may arrive late, in any order and more than once: the result depends only on the set of changes. All of
    them are kept in a table beside the target, the change log, so that a late change meets the deletes and the values
    that came after it; see docs/recipes.md for what that costs.

    Args:
        target: The table: a `DeltaTable`, a path (a string with a slash), or a name in the catalog. If a path has
            no table, one is created with the source's columns.
        source: The changes, each with all columns of the row, or with NULL for those that stay (`ignore_null_updates`).
        keys: The columns that identify a row; NULL is an ordinary key value.
        sequence_by: What orders the changes of a key: a column, several, SQL or a Column over the source, never NULL.
        apply_as_deletes: A condition over the source, which is ``s`` there: the change deletes its row.
        except_columns: Columns of the source that the target does not get.
        scd_type: 1 keeps the newest row of each key. 2 keeps all its versions, in a table with the columns
            ``__START_AT`` and ``__END_AT`` of the sequence's type.
        ignore_null_updates: Whether NULL in a change leaves the value as it was, also in fields of structs.
        track_history_columns: With `scd_type` 2: the columns whose changes make a new version; by default all but the
            keys that the target gets.
        track_history_except_columns: With `scd_type` 2, instead: the columns whose changes make none.
        change_log: A path or a name for the change log. By default it is in a folder of the target.
        options: The options of the object store, as for `DeltaTable.forPath`.
        progress: An object whose ``step(name, description)`` is called as each step begins, such as
            `show_progress`.
        txn_app_id: The application that merges; with `txn_version` the changes are applied once.
        txn_version: The application's number for this call, greater than those of its earlier writes.
        user_metadata: A string for the commit's ``userMetadata``.

    Returns:
        The report of the merge into the target.

    Raises:
        ValueError: There is no such `scd_type`, it keeps no history to track, or both lists of columns are given.
        DeltaAnalysisException: A column is missing, or the arguments do not fit the table; nothing was written.
        MultipleSourceRowsException: A key has several different changes with one sequence; nothing was written.
        DeltaRuntimeException: The data is at fault; the target is unchanged.
        DeltaConcurrentModificationException: Other writers committed first each time; their changes are in the target.
    """
    if scd_type not in (1, 2):
        raise ValueError(f"`scd_type` must be 1 or 2, it is {scd_type!r}")
    if scd_type == 1 and (track_history_columns is not None or track_history_except_columns):
        raise ValueError(
            "`track_history_columns` and `track_history_except_columns` go with scd_type=2: type 1 keeps no history"
        )
    if track_history_columns is not None and track_history_except_columns:
        raise ValueError("give `track_history_columns` or `track_history_except_columns`, not both")
    feed = Feed(
        key_names(keys),
        sequence_column(sequence_by),
        "sequence_by",
        None if apply_as_deletes is None else F.as_column(apply_as_deletes),
        names_in("except_columns", except_columns),
    )
    place = place_of_target(source.sparkSession, target, options)
    follower = _Follower(
        source=place.rows(source),
        feed=feed,
        place=place,
        history=AUTO_CDC if scd_type == 2 else None,
        tracked=None if track_history_columns is None else names_in("track_history_columns", track_history_columns),
        history_except=names_in("track_history_except_columns", track_history_except_columns),
        sequence_by=sequence_by,
        ignore_nulls=ignore_null_updates,
        delete_argument="apply_as_deletes",
        change_log=change_log,
    )
    return follower.run(progress, option_transaction(txn_app_id, txn_version), user_metadata)


@dataclass(frozen=True)
class _Logged:
    """The events that a log has of some keys.

    Args:
        names: What the log calls the target's columns.
        keys: The keys, each once, as the target has them.
    """

    log: DeltaTable
    names: LoggedNames
    keys: DataFrame
    rules: FoldRules

    def events(self, version: Snapshot) -> DataFrame:
        return self.names.logged(rows_of_keys(self.log.table, version, self.names.keys(self.keys)), self.rules)

    def has_grown_since(self, version: Snapshot) -> bool:
        """Return whether files that a newer version of the log adds may have more events of these keys."""
        now = self.log.table.snapshot()
        if now.version == version.version:
            return False
        files = files_of_keys(self.log.table, now, self.names.keys(self.keys), null_safe=True)
        return not set(files.paths()).issubset(version.files.paths())


@dataclass(frozen=True)
class _Follower:
    """A target that follows a feed.

    Args:
        history: The columns of a history table; None where only the newest rows are kept.
        tracked: The columns whose changes make a new version; None for all but the keys and the next two.
        effective_at: The sequence of a history, whose column is not tracked by default.
        history_except: Columns that are not tracked, either.
        delete_argument: The argument that gave the condition on which events delete, for messages.
        sequence_by: The sequence as it was given, where the target may keep it in columns of its own.
        change_log: Where the log is; None for a folder of the target.
    """

    source: DataFrame
    feed: Feed
    place: TargetPlace
    history: HistoryColumns | None
    tracked: tuple[str, ...] | None
    ignore_nulls: bool
    change_log: str | None
    effective_at: str | Column | None = None
    sequence_by: SequenceBy | None = None
    history_except: tuple[str, ...] = ()
    delete_argument: str = "delete_when"

    def run(
        self, progress: Progress | None, transaction: ApplicationTransaction | None, user_metadata: str | None
    ) -> MergeReport:
        """Log the events, then merge what all events of their keys add up to into the target.

        The log comes first: a call that ends between the two commits is completed by the next one with its keys. Where
        the target has the transaction already, nothing is logged.
        """
        asked = transaction or session_transaction(merge_conf(self.source.sparkSession))
        with translating(self.place.name):
            if self.change_log is not None:
                refuse_in_folder(self.place.beside(CHANGE_LOG, self.change_log), self.place, "change_log")
            table = self.place.existing() or self._created()
            before = table.table.snapshot()
            rules, schema = self._read_into(spark_schema(before))
            log = self._log(schema, before, rules)
            names = logged_names(before, log, rules, schema[SEQUENCE].dataType)
            if self.history is not None or not self.ignore_nulls:
                names.check_gives_all()
            partitions = before.metadata.partition_columns
            events = events_of(self.source, self.feed, schema, spark_schema(before), partitions).persist()
            try:
                keys = events.select(*map(quote, rules.keys)).distinct()
                if asked is None or not asked.is_in(before):
                    named = names.events(self._to_log(events, table, before, keys, rules), rules.keys)
                    widen_log(log, named.schema)
                    record_names(log, before, names)
                    run_without_transaction(record(log, named, [names.of[key] for key in rules.keys]))
                command = partial(MergeIntoCommand, table.table, transaction=transaction, user_metadata=user_metadata)
                known = _Logged(log, names, keys, rules)
                with naming_log(log):
                    last, read = self._merged(command, table, known, progress)
                outcomes = [last]
                # A call that ended after its transaction may have left events of others to merge.
                again = asked is not None and last.version is None
                # A writer whose merge, before this one's commit, had nothing to change has left no commit to see.
                while again or (last.version is not None and known.has_grown_since(read)):
                    command, again = partial(MergeIntoCommand, table.table, transaction=NO_TRANSACTION), False
                    last, read = self._merged(command, table, known, progress)
                    outcomes.append(last)
            finally:
                events.unpersist()
        return MergeReport(outcome_of_call(outcomes, left_out_notes(self.source, self.feed, rules.columns)))

    def _log(self, schema: StructType, target: Snapshot, rules: FoldRules) -> DeltaTable:
        """Open the target's log; one in its folder must not be that of a table which was there before."""
        place = self.place.beside(CHANGE_LOG, self.change_log)
        names = names_of_new_log(target, [field.name for field in rules.columns])
        if self.change_log is not None:
            return place.open_or_create(schema, names)
        log = place.open_or_create(schema, {**names, OF_TABLE: target.metadata.id})
        check_log_of(log, target.metadata.id)
        return log

    def _to_log(
        self, events: DataFrame, table: DeltaTable, target: Snapshot, keys: DataFrame, rules: FoldRules
    ) -> DataFrame:
        """Return the events to log: also those that the target shows by itself, which the log may lack.

        An event may take the place of a version or a row, of which nothing would be known when a late one comes.
        """
        if self.change_log is not None:
            return events
        if self.history is None:
            given = events.schema[SEQUENCE].dataType
            shown = self._with_rows_shown(events, table, target, keys, rules)
            kept = shown.schema[SEQUENCE].dataType
            # The target's type may have more values than the log's.
            fitting = F.col(SEQUENCE).try_cast(given)
            return shown.where(fitting.cast(kept) == F.col(SEQUENCE)).withColumn(SEQUENCE, fitting)
        rows = rows_of_keys(table.table, target, keys)
        return with_events_shown(events, rows, rules, self.history).where(F.col(SEQUENCE).isNotNull())

    def _with_rows_shown(
        self, events: DataFrame, table: DeltaTable, target: Snapshot, keys: DataFrame, rules: FoldRules
    ) -> DataFrame:
        """Return events, and the target's rows where values that these keep may be later than those of the events."""
        kept = self._kept_sequence(rules.columns)
        if kept is None or not rules.ignore_nulls:
            return events
        rows = rows_of_keys(table.table, target, keys)
        return with_rows_shown(events, rows, rules, kept.of_row(events.schema[SEQUENCE].dataType))

    def _created(self) -> DeltaTable:
        """Create the target, once all events were read: arguments and data that are wrong leave no table behind."""
        schema = self._new_schema()
        _, of_log = self._read_into(schema)
        events_of(self.source, self.feed, of_log, schema, ()).count()
        return self.place.open_or_create(schema)

    def _read_into(self, target: StructType) -> tuple[FoldRules, StructType]:
        """Return how events add up in a target, and the schema of their log."""
        rows = self._without_history(target)
        columns = shared_columns(self.source, self.feed, rows)
        rules = self._rules(columns, rows)
        if self.feed.delete_when is not None:
            type_of_value(self.source, self.feed.delete_when, self.delete_argument)
        sequence, kept = self._sequence(target), self._kept_sequence(columns)
        if self.history is None and kept is not None:
            kept.check(sequence.dataType, self.feed.argument)
        return rules, log_schema(columns, rules.keys, sequence)

    def _merged(
        self, command: Callable[..., MergeIntoCommand], table: DeltaTable, known: _Logged, progress: Progress | None
    ) -> tuple[MergeOutcome, Snapshot]:
        """Merge into the version of the target that was read before the log, and again after another writer's commit.

        So of two writers that log events of one key the later one has the events of both.

        Returns:
            What was merged, and the version of the log that it has the events of.
        """
        retries, lost = merge_conf(self.source.sparkSession).conflict_retries, list[LostCommit]()
        snapshot = table.table.snapshot()
        while True:
            read = known.log.table.snapshot()
            builder = self._builder(table, snapshot, known.events(read), known.keys, known.rules)
            try:
                outcome = merge_and_compact(command(builder.statement, snapshot=snapshot), progress)
            except RUN_AGAIN as error:
                lost.append(LostCommit.of(error))
                if len(lost) > retries:
                    raise
            else:
                return replace(outcome, lost_to=(*lost, *outcome.lost_to)), read
            time.sleep(seconds_to_wait(len(lost), random.random()))
            before, snapshot = snapshot, table.table.snapshot()
            check_same_columns(before, snapshot)

    def _builder(
        self, table: DeltaTable, snapshot: Snapshot, events: DataFrame, keys: DataFrame, rules: FoldRules
    ) -> DeltaMergeBuilder:
        if self.history is not None:
            rows = rows_of_keys(table.table, snapshot, keys)
            return merge_of_history(table, rows, events, rules, self.history)
        events = self._with_rows_shown(events, table, snapshot, keys, rules)
        return merge_of_newest(table, events, rules, self._kept_sequence(rules.columns))

    def _kept_sequence(self, columns: Sequence[StructField]) -> KeptSequence | None:
        return None if self.sequence_by is None else KeptSequence.of(self.sequence_by, self.source, columns)

    @cached_property
    def _case_sensitive(self) -> bool:
        return merge_conf(self.source.sparkSession).case_sensitive

    def _new_schema(self) -> StructType:
        columns = written_columns(self.source, self.feed)
        own = [] if self.history is None else self.history.fields(sequence_field(self.source, self.feed))
        return StructType([*columns, *own])

    def _without_history(self, target: StructType) -> StructType:
        """Return the columns of rows; a history table must have its own columns besides."""
        names = () if self.history is None else self.history.names
        missing = [name for name in names if find_field(target, name, self._case_sensitive) is None]
        if missing:
            raise DeltaAnalysisException(
                "DELTA_MERGE_UNRESOLVED_EXPRESSION",
                f"The target is no history table: it lacks the column{'s' if len(missing) > 1 else ''} "
                f"{', '.join(map(quote, missing))} of the versions' validity. Its columns are "
                f"{', '.join(target.names)}. Name the columns that it has, add these, or let a new table be created.",
                parameters={"sqlExpr": missing[0], "clause": "the history's columns", "cols": ", ".join(target.names)},
            )
        own = [column_of(target, name, "the history's columns", "the target", self._case_sensitive) for name in names]
        return StructType([field for field in target.fields if field not in own])

    def _sequence(self, target: StructType) -> StructField:
        """Return the log's column for the sequence, of the type that the history has."""
        if self.history is None:
            return sequence_field(self.source, self.feed)
        begin = column_of(target, self.history.valid_from, "valid_from", "the target", self._case_sensitive)
        check_history(sequence_field(self.source, self.feed).dataType, begin, self.feed.argument)
        return StructField(SEQUENCE, begin.dataType)

    def _rules(self, columns: Sequence[StructField], target: StructType) -> FoldRules:
        """Return how events add up.

        Args:
            columns: The target's that its source gives.
            target: All of the target's.
        """
        rows, sensitive = StructType(list(columns)), self._case_sensitive
        keys = [column_of(rows, name, "keys", "the target", sensitive).name for name in self.feed.keys]

        def shared(name: str, argument: str) -> StructField:
            field = column_of(target, name, argument, "the target", sensitive)
            if field.name not in rows.names:
                given = "the source without except_columns" if self.feed.except_columns else "the source"
                raise unknown_column(StructType(written_columns(self.source, self.feed)), name, argument, given)
            return field

        if self.tracked is None:
            excepted = (shared(name, "track_history_except_columns").name for name in self.history_except)
            effective_at = None if self.effective_at is None else named_column(self.source, self.effective_at)
            others = (*keys, *excepted, *(() if effective_at is None else (effective_at,)))
            tracked = [f for f in columns if not any(same_name(f.name, name, sensitive) for name in others)]
        else:
            tracked = [shared(name, "tracked columns") for name in self.tracked]
        return FoldRules(tuple(keys), tuple(columns), tuple(tracked), self.ignore_nulls)
