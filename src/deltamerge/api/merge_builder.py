"""The MERGE builder, as delta-spark's Python API has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame

from deltamerge.api.arguments import Condition, Values, assignments_of, condition_of, names_in
from deltamerge.api.report import MergePlanReport, MergeReport
from deltamerge.commands.auto_compact import merge_and_compact
from deltamerge.log.change_feed import ChangedFile
from deltamerge.merge.analysis.checks import check_clause_order
from deltamerge.merge.command import MergeIntoCommand
from deltamerge.merge.explain import explain_merge
from deltamerge.merge.outcome import Progress
from deltamerge.merge.result.after_commit import after_commit
from deltamerge.merge.result.commit import rows_changed
from deltamerge.merge.statement import Frames, MergeStatement
from deltamerge.scan.changes import changed_rows_frame
from deltamerge.spark.frame_columns import name_of
from deltamerge.spark.session import in_session
from deltamerge.spark.table import Table
from deltamerge.sql.merge_ast import (
    Action,
    Assignment,
    ClauseKind,
    Delete,
    DoNothing,
    Insert,
    MergeClause,
    NameParts,
    Star,
    Update,
)
from deltamerge.sql.names import parse_name
from deltamerge.txn.application import option_transaction


@dataclass(frozen=True)
class DeltaMergeBuilder:
    """A MERGE under construction; every method returns a new builder.

    Args:
        table: The target.
        statement: The MERGE so far.
    """

    table: Table
    statement: MergeStatement

    def whenMatchedUpdate(self, condition: Condition = None, set: Values | None = None) -> DeltaMergeBuilder:
        """Update a matched target row.

        Args:
            condition: When to do so, over both sides; None means always.
            set: Values by target column, or by a field such as ``a.b``; SQL or Columns over both sides. Without any
                and without a condition there is no clause.
        """
        return self._with_update("matched", condition, assignments_of(set, "'set' in whenMatchedUpdate"))

    def whenMatchedUpdateAll(
        self, condition: Condition = None, *, except_cols: Sequence[str] = ()
    ) -> DeltaMergeBuilder:
        """Update every column of a matched target row with the source's column of that name.

        Args:
            condition: When to do so, over both sides; None means always.
            except_cols: Columns of the target that keep their values: SQL's ``UPDATE SET * EXCEPT``.
        """
        return self._with("matched", condition, Update(_star(except_cols)))

    def whenMatchedDelete(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Delete a matched target row.

        Args:
            condition: When to do so, over both sides; None means always.
        """
        return self._with("matched", condition, Delete())

    def whenMatchedDoNothing(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Leave a matched target row unchanged; later clauses do not see it.

        Args:
            condition: When to do so, over both sides; None means always.
        """
        return self._with("matched", condition, DoNothing())

    def whenNotMatchedInsert(self, condition: Condition = None, values: Values | None = None) -> DeltaMergeBuilder:
        """Insert a source row that matched nothing.

        Args:
            condition: When to do so, over the source; None means always.
            values: Values by target column; SQL or Columns over the source.
        """
        return self._with("not_matched", condition, Insert(assignments_of(values, "'values' in whenNotMatchedInsert")))

    def whenNotMatchedInsertAll(
        self, condition: Condition = None, *, except_cols: Sequence[str] = ()
    ) -> DeltaMergeBuilder:
        """Insert every column of a source row that matched nothing, by name.

        Args:
            condition: When to do so, over the source; None means always.
            except_cols: Columns of the target that get their default or NULL: SQL's ``INSERT * EXCEPT``.
        """
        return self._with("not_matched", condition, Insert(_star(except_cols)))

    def whenNotMatchedDoNothing(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Ignore a source row that matched nothing; later clauses do not see it.

        Args:
            condition: When to do so, over the source; None means always.
        """
        return self._with("not_matched", condition, DoNothing())

    def whenNotMatchedBySourceUpdate(self, condition: Condition = None, set: Values | None = None) -> DeltaMergeBuilder:
        """Update a target row that no source row matched.

        Args:
            condition: When to do so, over the target; None means always.
            set: Values by target column or field; SQL or Columns over the target. Without any and without a condition
                there is no clause.
        """
        assignments = assignments_of(set, "'set' in whenNotMatchedBySourceUpdate")
        return self._with_update("not_matched_by_source", condition, assignments)

    def whenNotMatchedBySourceDelete(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Delete a target row that no source row matched.

        Args:
            condition: When to do so, over the target; None means always.
        """
        return self._with("not_matched_by_source", condition, Delete())

    def whenNotMatchedBySourceDoNothing(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Leave a target row that no source row matched unchanged; later clauses do not see it.

        Args:
            condition: When to do so, over the target; None means always.
        """
        return self._with("not_matched_by_source", condition, DoNothing())

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add the source's columns and fields that the clauses use to the target."""
        return replace(self, statement=replace(self.statement, schema_evolution=True))

    def execute(
        self, *, txn_app_id: str | None = None, txn_version: int | None = None, user_metadata: str | None = None
    ) -> DataFrame:
        """Run the merge.

        Args:
            txn_app_id: The application that merges; with `txn_version` the merge is done only once, however
                often the application retries. By default the session's ``spark.databricks.delta.write.txnAppId``.
            txn_version: The application's number for this merge, greater than those of its earlier writes. By default
                the session's ``spark.databricks.delta.write.txnVersion``.
            user_metadata: A string for the commit's ``userMetadata``. By default the session's
                ``spark.databricks.delta.commitInfo.userMetadata``.

        Returns:
            One row: num_affected_rows, num_updated_rows, num_deleted_rows, num_inserted_rows (BIGINT).

        Raises:
            DeltaIllegalArgumentException: Only one of `txn_app_id` and `txn_version` is given, or a setting is wrong.
            DeltaAnalysisException: The statement is wrong; nothing was read or written.
            DeltaRuntimeException: The data is at fault; the table is as it was.
            DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
        """
        report = self.run(txn_app_id=txn_app_id, txn_version=txn_version, user_metadata=user_metadata)
        return report.counts(self.table.spark)

    def run(
        self,
        progress: Progress | None = None,
        *,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        user_metadata: str | None = None,
    ) -> MergeReport:
        """Run the merge and report what it did.

        Args:
            progress: Is called with each step as it begins.
            txn_app_id: The application that merges; with `txn_version` the merge is done only once, however
                often the application retries. By default the session's ``spark.databricks.delta.write.txnAppId``.
            txn_version: The application's number for this merge, greater than those of its earlier writes. By default
                the session's ``spark.databricks.delta.write.txnVersion``.
            user_metadata: A string for the commit's ``userMetadata``. By default the session's
                ``spark.databricks.delta.commitInfo.userMetadata``.

        Raises:
            DeltaIllegalArgumentException: Only one of `txn_app_id` and `txn_version` is given, or a setting is wrong.
            DeltaAnalysisException: The statement is wrong; nothing was read or written.
            DeltaRuntimeException: The data is at fault; the table is as it was.
            DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
        """
        check_clause_order(self.statement)
        transaction = option_transaction(txn_app_id, txn_version)
        command = MergeIntoCommand(self.table, self.statement, transaction=transaction, user_metadata=user_metadata)
        return MergeReport(merge_and_compact(command, progress))

    def returning(
        self,
        progress: Progress | None = None,
        *,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        user_metadata: str | None = None,
    ) -> DataFrame:
        """Run the merge and return the rows that it changed, as ``RETURNING merge_action(), *`` does elsewhere.

        The rows are in files that the merge writes anyway where the table has a change data feed. Where it has none,
        the merge writes each changed row once more, to files that no version of the table refers to: the frame can be
        read, also several times, until VACUUM removes them after the table's retention. Nothing of the table is read
        a second time.

        Args:
            progress: Is called with each step as it begins.
            txn_app_id: The application that merges, as for `run`.
            txn_version: The application's number for this merge, as for `run`.
            user_metadata: A string for the commit's ``userMetadata``.

        Returns:
            One row for each row that changed: ``merge_action`` (INSERT, UPDATE or DELETE), then the table's columns:
            the new values, of a deleted row those that it had. No rows where the table has this transaction already.

        Raises:
            DeltaAnalysisException: The statement is wrong, or the table has, or would get, a column with a name that
                change data needs; nothing was read or written.
            DeltaRuntimeException: The data is at fault; the table is as it was.
            DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
        """
        check_clause_order(self.statement)
        command = MergeIntoCommand(
            self.table,
            self.statement,
            transaction=option_transaction(txn_app_id, txn_version),
            user_metadata=user_metadata,
            returns_changes=True,
        )
        files: list[ChangedFile] = []
        outcome = merge_and_compact(command, progress, on_commit=lambda *found: files.extend(rows_changed(*found)))
        if outcome.version is None:
            return changed_rows_frame(self.table, self.table.snapshot(), files)
        with after_commit(outcome.version, self.table.name):
            snapshot = self.table.snapshot()
            if outcome.version != snapshot.version:
                # Another writer was next; it may have changed the schema.
                snapshot = self.table.snapshot(outcome.version)
            return changed_rows_frame(self.table, snapshot, files)

    def plan(self, analyze: bool = False, *, progress: Progress | None = None) -> MergePlanReport:
        """Return what the merge would do, without writing anything.

        Args:
            analyze: Whether to read the source and match its rows too, for the rows that each clause would change;
                otherwise only the log and the footers of a source's Parquet files are read.
            progress: Is called with each step as it begins.

        Returns:
            The plan; with ``analyze`` its `forecast` also holds the error that the merge would end with.

        Raises:
            DeltaAnalysisException: The statement is wrong, or the plan that the session asks for does not fit.
        """
        check_clause_order(self.statement)
        command = MergeIntoCommand(self.table, self.statement)
        return MergePlanReport(explain_merge(command, analyze=analyze, progress=progress))

    def _with_update(
        self, kind: ClauseKind, condition: Condition, assignments: tuple[Assignment, ...]
    ) -> DeltaMergeBuilder:
        # Delta: DeltaMergeMatchedActionBuilder.addUpdateClause.
        if condition is None and not assignments:
            return self
        return self._with(kind, condition, Update(assignments))

    def _with(self, kind: ClauseKind, condition: Condition, action: Action) -> DeltaMergeBuilder:
        clause = MergeClause(kind, condition_of(condition), action)
        return replace(self, statement=replace(self.statement, clauses=(*self.statement.clauses, clause)))


def merge_builder(
    table: Table,
    target_name: NameParts,
    source: DataFrame,
    condition: str | Column,
    dedupe_by: str | Sequence[str] | None = None,
    *,
    skip_unchanged: bool = False,
    target_frames: Frames = tuple,
) -> DeltaMergeBuilder:
    """Begin a MERGE; see `DeltaTable.merge`.

    Raises:
        ValueError: The source or the condition is None.
        TypeError: The source is no DataFrame, or the condition is neither a string nor a Column.
    """
    if source is None:
        raise ValueError("'source' in merge cannot be None")
    if not (hasattr(source, "schema") and hasattr(source, "join")):
        raise TypeError(f"Type of 'source' in merge must be DataFrame, but it is {type(source)}.")
    on = condition_of(condition)
    if on is None:
        raise ValueError("'condition' in merge cannot be None")
    statement = MergeStatement(
        source=in_session(source, table.spark),
        source_name=name_of(source),
        source_sql="<DataFrame>",
        target_name=target_name,
        condition=on,
        clauses=(),
        schema_evolution=False,
        target_frames=target_frames,
        dedupe_by=columns_to_dedupe_by(dedupe_by),
        skip_unchanged=skip_unchanged,
    )
    return DeltaMergeBuilder(table, statement)


def _star(except_cols: Sequence[str]) -> Star:
    if isinstance(except_cols, str):
        raise TypeError(f"`except_cols` must be a list of column names, got the string {except_cols!r}")
    for name in except_cols:
        if not isinstance(name, str):
            raise TypeError(f"`except_cols` must hold column names, got {type(name).__name__}")
    return Star(tuple(parse_name(name) for name in except_cols))


def columns_to_dedupe_by(dedupe_by: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns of a ``dedupe_by``: one, several or none."""
    return () if dedupe_by is None else names_in("dedupe_by", dedupe_by)
