"""upsert: new rows are inserted, known ones updated, marked ones deleted; the second run changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from deltamerge.api.arguments import names_in
from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import DeltaMergeBuilder
from deltamerge.api.report import MergeReport
from deltamerge.commands.auto_compact import merge_and_compact
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.analysis_errors import no_up_cast
from deltamerge.merge.command import MergeIntoCommand
from deltamerge.merge.outcome import Progress
from deltamerge.recipes.keyed_rows import one_row_per_key, rows_of_keys
from deltamerge.recipes.quarantine import Judged, WrittenColumns, judge, rejecting
from deltamerge.recipes.targets import (
    Target,
    column_of,
    key_names,
    place_of,
    place_of_target,
    refuse_in_folder,
)
from deltamerge.recipes.values import ColumnPair, all_of, kept_sql, kept_value, loses_part
from deltamerge.scan.read_again import read_again
from deltamerge.scan.table_reads import versions_read
from deltamerge.spark import columns as F
from deltamerge.spark.session import merge_conf
from deltamerge.spark.table import spark_schema
from deltamerge.sql.names import parse_name, quote
from deltamerge.storage.credentials import StoreOptions
from deltamerge.txn.application import option_transaction, session_transaction
from deltamerge.write.align import align, find_field, same_name, same_shape
from deltamerge.write.generated_columns import GENERATION_EXPRESSION
from deltamerge.write.identity_columns import IDENTITY
from deltamerge.write.schema_evolution import automatic_widening, evolved_schema
from deltamerge.write.stale_rows import refuse_stale_rows
from deltamerge.write.store_assignment import StoreAssignment, first_lossy

Values: TypeAlias = "Mapping[str, str | Column]"
Written: TypeAlias = "bool | Sequence[str] | Values"
"""What a clause writes: all columns, no clause at all, some columns, or values by column."""


@dataclass(frozen=True)
class UpsertRules:
    """What an upsert does with a pair of rows and with a new one; see `upsert`."""

    keys: tuple[str, ...]
    update: Written = True
    insert: Written = True
    delete_when: str | Column | None = None
    order_by: tuple[str, ...] = ()
    null_safe: bool = True
    ignore_nulls: bool = False
    skip_unchanged: bool = False
    schema_evolution: bool = False
    """Whether the merge gives the target new columns and wider types, by the argument or by the session's setting."""


def upsert(
    target: Target,
    source: DataFrame,
    keys: str | Sequence[str],
    *,
    update: Written = True,
    insert: Written = True,
    delete_when: str | Column | None = None,
    order_by: str | Sequence[str] = (),
    null_safe: bool = True,
    ignore_nulls: bool = False,
    skip_unchanged: bool = False,
    schema_evolution: bool = False,
    quarantine: str | None = None,
    options: StoreOptions | None = None,
    progress: Progress | None = None,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    user_metadata: str | None = None,
) -> MergeReport:
    """Insert rows with new keys and update the rows with known ones, in one merge.

    In SQL and in Columns that are given, ``t`` is the target and ``s`` the source. Run again with the same source, an
    upsert leaves the table as it is, unless values are given that count or depend on the time.

    Args:
        target: The table: a `DeltaTable`, a path (a string with a slash), or a name in the catalog.
        source: The rows.
        keys: The columns, of both sides, that identify a row.
        update: What a known row gets: True all columns of the target, which the source must have unless
            `schema_evolution` is given; False nothing; a list of columns; or values by column as SQL or Columns over
            both sides.
        insert: What a new row gets: as for `update`, with values over the source.
        delete_when: A condition over the source's row: a known row is deleted where it holds, and a new one is left
            out.
        order_by: Source columns such as the time of a change, the greatest value is the latest; NULL is the earliest.
            Of several source rows with one key only the latest is taken; where two different ones are, the merge fails
            and names the key; so it does without `order_by` where rows of a key differ. Equal rows are one. If the
            target has all these columns, too, then a row in it changes only for a later one, and gets them with
            whatever `update` and `insert` name.
        null_safe: Whether NULL keys are equal to each other (``<=>``). Otherwise (``=``) a row with a NULL key
            matches nothing and is inserted each time.
        ignore_nulls: Whether NULL in the source leaves the target's value as it is, also in fields of structs.
        skip_unchanged: Whether a row that would get the values that it has is not written.
        schema_evolution: Whether the target gets the source's columns that it lacks.
        quarantine: A path or a name of a table: rows of the source that the target cannot take are written there with
            the reason, and the others are merged. See docs/recipes.md.
        options: The options of the object store of `target` and `quarantine`, as for `DeltaTable.forPath`.
        progress: An object whose ``step(name, description)`` is called as each step begins, such as
            `show_progress`.
        txn_app_id: The application that merges; with `txn_version` the merge is done once, however often the
            application tries.
        txn_version: The application's number for this merge, greater than those of its earlier writes.
        user_metadata: A string for the commit's ``userMetadata``.

    Returns:
        The report of the merge.

    Raises:
        DeltaAnalysisException: A column is missing, or the arguments do not fit the table; nothing was written.
        MultipleSourceRowsException: Different source rows have one key, and `order_by` does not say which is the
            latest; nothing was written.
        DeltaRuntimeException: The data is at fault; the table is unchanged.
        DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
    """
    place = place_of_target(source.sparkSession, target, options)
    source, table = place.rows(source), place.open()
    spark = source.sparkSession
    rules = UpsertRules(
        keys=key_names(keys),
        update=_written("update", update),
        insert=_written("insert", insert),
        delete_when=delete_when,
        order_by=names_in("order_by", order_by),
        null_safe=null_safe,
        ignore_nulls=ignore_nulls,
        skip_unchanged=skip_unchanged,
        schema_evolution=schema_evolution or merge_conf(spark).schema_auto_merge,
    )
    transaction = {"txn_app_id": txn_app_id, "txn_version": txn_version, "user_metadata": user_metadata}
    if quarantine is None:
        return _merge_of(table, _latest_rows(table, source, source.columns, rules), rules).run(progress, **transaction)  # type: ignore[arg-type]
    # Half a transaction is refused before rows are rejected.
    asked = option_transaction(txn_app_id, txn_version)
    once_only = asked or session_transaction(merge_conf(spark))
    snapshot = table.table.snapshot()
    source = read_again(source, table.table, snapshot)
    refuse_stale_rows(table.table, snapshot, source)
    # What was judged is what is merged: rows of the table itself must not be read anew in between.
    bound = snapshot if versions_read(source, table.table, snapshot) else None
    is_merged = once_only is not None and once_only.is_in(snapshot)
    judged, latest = judged_source(table, source, rules), partial(_latest_rows, table, rules=rules)
    # By their order rows that the merge has written are told from those that it did not.
    is_unknown = is_merged and not judged.written.kept
    known = None if is_unknown else partial(rows_of_keys, table.table, snapshot, null_safe=null_safe)
    other = place_of(spark, quarantine, place.options)
    refuse_in_folder(other, place, "quarantine")
    with rejecting(judged, known, latest, other) as rejected:
        statement = _merge_of(table, rejected.fitting, rules).statement
        command = MergeIntoCommand(
            table.table, statement, transaction=asked, user_metadata=user_metadata, snapshot=bound
        )
        report = MergeReport(merge_and_compact(command, progress))
    return rejected.noted_in(report)


def _written(argument: str, given: Written) -> Written:
    return given if isinstance(given, (bool, Mapping)) else names_in(argument, given)


def _merge_of(table: DeltaTable, rows: DataFrame, rules: UpsertRules) -> DeltaMergeBuilder:
    columns = _UpsertColumns.of(table.table.snapshot(), rows, rules)
    rules = _keeping_order(rules, columns)
    on = " AND ".join(_same_key(pair, rules.null_safe) for pair in columns.pairs("keys", rules.keys))
    builder = table.alias("t").merge(rows.alias("s"), on, skip_unchanged=rules.skip_unchanged)
    newer = _is_newer(columns, rules.order_by)
    if rules.delete_when is not None:
        builder = builder.whenMatchedDelete(all_of(newer, rules.delete_when))
        builder = builder.whenNotMatchedDoNothing(rules.delete_when)
    builder = _with_update(builder, columns, rules, newer)
    builder = _with_insert(builder, columns, rules.insert)
    return builder.withSchemaEvolution() if rules.schema_evolution else builder


def _latest_rows(table: DeltaTable, rows: DataFrame, names: Sequence[str], rules: UpsertRules) -> DataFrame:
    """Return of rows with the source's columns, and others besides, the latest one of each key; no job runs."""
    columns = _UpsertColumns.of(table.table.snapshot(), rows, rules)
    order = {name: columns.order(name) for name in rules.order_by}
    return one_row_per_key(rows, names, columns.pairs("keys", rules.keys), order, rules.null_safe)


def _same_key(pair: ColumnPair, null_safe: bool) -> str:
    stored = pair.stored_sql(f"s.{quote(pair.source.name)}")
    return f"t.{quote(pair.target.name)} {'<=>' if null_safe else '='} {stored}"


@dataclass(frozen=True)
class _UpsertColumns:
    """The columns of both sides, by the session's rule for names.

    Args:
        target: The columns that the target has, with the types that the merge gives them.
        stored: The same with the types that they have before it.
    """

    target: StructType
    stored: StructType
    source: StructType
    spark: SparkSession
    partitions: tuple[str, ...]

    @staticmethod
    def of(snapshot: Snapshot, source: DataFrame, rules: UpsertRules) -> _UpsertColumns:
        stored, partitions = spark_schema(snapshot), snapshot.metadata.partition_columns
        columns = _UpsertColumns(stored, stored, source.schema, source.sparkSession, partitions)
        if not rules.schema_evolution:
            return columns
        used, conf = columns.used(_keeping_order(rules, columns)), merge_conf(columns.spark)
        evolved = evolved_schema(stored, source.schema, used, conf.case_sensitive, automatic_widening(snapshot, conf))
        return replace(columns, target=StructType(evolved.fields[: len(stored)]))

    def used(self, rules: UpsertRules) -> list[tuple[str, ...]]:
        """Return the paths of the columns and fields that the clauses name."""
        used: list[tuple[str, ...]] = []
        for written, is_update in ((rules.update, True), (rules.insert, False)):
            if isinstance(written, Mapping):
                used += map(self._path, written)
            elif not isinstance(written, bool):
                used += ((name,) for name in written)
            elif written:
                left_out = rules.keys if is_update and rules.ignore_nulls else ()
                used += ((name,) for name in self.source.names if not self.has(name, left_out))
        return used

    @cached_property
    def case_sensitive(self) -> bool:
        return merge_conf(self.spark).case_sensitive

    def of_target(self, name: str, argument: str) -> StructField:
        return column_of(self.target, name, argument, "the target", self.case_sensitive)

    def of_source(self, name: str, argument: str) -> StructField:
        return column_of(self.source, name, argument, "the source", self.case_sensitive)

    def order(self, name: str) -> Column:
        """Return the values of a source column that says which row is later, in the order of the target's column."""
        pair = self.parsed(name)
        return F.col(quote(name)) if pair is None else pair.order()

    def parsed(self, name: str) -> ColumnPair | None:
        """Return a column of strings with the target's column, whose type gives them another order; else None."""
        source, index = self.of_source(name, "order_by"), find_field(self.target, name, self.case_sensitive)
        if index is None:
            return None
        target = self.target.fields[index]
        if loses_part(source.dataType, target.dataType):
            raise DeltaAnalysisException(
                "DELTA_ILLEGAL_USAGE",
                f"The target's column {target.name} is {target.dataType.simpleString().upper()}, which cuts values of "
                f"{source.dataType.simpleString().upper()} in order_by, so that an older row could not be told from a "
                "newer one. Cast them, or give the column their type. Nothing was written.",
            )
        is_parsed = isinstance(source.dataType, StringType) and not isinstance(target.dataType, StringType)
        return self._pair(target, source) if is_parsed else None

    def assigned(self, name: str) -> str:
        """Return the target's column that a name of an assignment, perhaps after ``t.``, is; empty for a field."""
        path = self._path(name)
        return path[0] if len(path) == 1 else ""

    def _path(self, name: str) -> tuple[str, ...]:
        parts = parse_name(name)
        is_qualified = len(parts) > 1 and parts[0].lower() == "t"
        if is_qualified and find_field(self.target, parts[0], self.case_sensitive) is None:
            return parts[1:]
        return parts

    def has(self, name: str, names: Iterable[str]) -> bool:
        return any(same_name(name, other, self.case_sensitive) for other in names)

    def kept_order(self, order_by: Sequence[str]) -> tuple[ColumnPair, ...]:
        """Return the columns of an order where the target has all of them, and so shows which row is later."""
        if any(find_field(self.target, name, self.case_sensitive) is None for name in order_by):
            return ()
        return self.pairs("order_by", order_by)

    def new(self) -> list[StructField]:
        return [f for f in self.source.fields if find_field(self.target, f.name, self.case_sensitive) is None]

    def pairs(self, argument: str, names: Sequence[str]) -> tuple[ColumnPair, ...]:
        of_source = [self.of_source(name, argument) for name in names]
        return tuple(self._pair(self.of_target(field.name, argument), field) for field in of_source)

    def _pair(self, target: StructField, source: StructField) -> ColumnPair:
        return ColumnPair(target, source, target.name in self.partitions)

    def written(self, argument: str, which: bool | Sequence[str], rules: UpsertRules) -> tuple[ColumnPair, ...] | None:
        """Return the columns that a clause writes; None where there is no clause."""
        if which is False:
            return None
        if which is not True:
            return self.pairs(argument, names_in(argument, which))

        def may_lack(field: StructField) -> bool:
            is_generated = any(key == GENERATION_EXPRESSION or key.startswith(IDENTITY) for key in field.metadata)
            return rules.schema_evolution or (rules.ignore_nulls and is_generated)

        fields = (f for f in self.target.fields if f.name in self._shared or not may_lack(f))
        return self.pairs(argument, [field.name for field in fields])

    @cached_property
    def _shared(self) -> frozenset[str]:
        """The target's columns that the source has, too."""
        names = (f.name for f in self.target.fields if find_field(self.source, f.name, self.case_sensitive) is not None)
        return frozenset(names)


def judged_source(table: DeltaTable, source: DataFrame, rules: UpsertRules) -> Judged:
    snapshot = table.table.snapshot()
    columns = _UpsertColumns.of(snapshot, source, rules)
    rules = _keeping_order(rules, columns)
    if isinstance(rules.update, Mapping) or isinstance(rules.insert, Mapping) or rules.ignore_nulls:
        raise DeltaAnalysisException(
            "DELTA_ILLEGAL_USAGE",
            "`quarantine` checks the source's values as they are. Leave `ignore_nulls` out, and give `update` and "
            "`insert` columns, not values.",
        )
    written = WrittenColumns(
        keys=columns.pairs("keys", rules.keys),
        update=columns.written("update", rules.update, rules),
        insert=columns.written("insert", rules.insert, rules),
        null_safe=rules.null_safe,
        order=tuple(pair for name in rules.order_by if (pair := columns.parsed(name)) is not None),
        kept=tuple(pair.target.name for pair in columns.kept_order(rules.order_by)),
        is_newer=partial(_is_newer, columns, rules.order_by),
    )
    given, configuration = rules.delete_when, snapshot.metadata.configuration
    is_deleted = None if given is None else F.as_column(given)
    return judge(source.alias("s"), columns.target, configuration, written, is_deleted)


def _is_newer(columns: _UpsertColumns, order_by: Sequence[str], source: str = "s", target: str = "t") -> str | None:
    """Return the condition that a source row is later than the target's; None where the target does not show it.

    Args:
        source: The alias, or the struct, that has the source's columns; so the target's.
    """
    if not columns.kept_order(order_by):
        return None
    pairs = [(f"{source}.{quote(name)}", columns.parsed(name)) for name in order_by]
    given = [value if pair is None else pair.stored_sql(value) for value, pair in pairs]
    kept = [f"{target}.{quote(name)}" for name in order_by]
    if len(given) > 1:
        # Structs are compared field by field, where these have the same names, and NULL comes first.
        sides = (", ".join(f"{value} AS c{i}" for i, value in enumerate(values)) for values in (given, kept))
        return " > ".join(f"struct({side})" for side in sides)
    return f"{given[0]} > {kept[0]} OR ({kept[0]} IS NULL AND {given[0]} IS NOT NULL)"


def _keeping_order(rules: UpsertRules, columns: _UpsertColumns) -> UpsertRules:
    """Let rows that are written get the columns of their order: without them an older row could come after them."""
    pairs = columns.kept_order(rules.order_by)

    def kept(written: Written) -> Written:
        if isinstance(written, bool) or not written:
            return written
        names = [columns.assigned(name) for name in written] if isinstance(written, Mapping) else written
        left = [pair for pair in pairs if not columns.has(pair.target.name, names)]
        if isinstance(written, Mapping):
            return {**written, **{quote(pair.target.name): f"s.{quote(pair.source.name)}" for pair in left}}
        return (*written, *(pair.target.name for pair in left))

    return replace(rules, update=kept(rules.update), insert=kept(rules.insert))


def _with_update(
    builder: DeltaMergeBuilder, columns: _UpsertColumns, rules: UpsertRules, newer: str | None
) -> DeltaMergeBuilder:
    update = rules.update
    new = columns.new() if update is True and rules.schema_evolution else []
    if isinstance(update, Mapping):
        values: dict[str, str | Column] = dict(update)
    else:
        pairs = columns.written("update", update, rules)
        if pairs is None:
            return builder
        keys, order = columns.pairs("keys", rules.keys), columns.kept_order(rules.order_by)
        values = {
            quote(pair.target.name): _given(columns, pair, rules.ignore_nulls and pair not in order)
            for pair in pairs
            if update is not True or pair not in keys
        }
    values |= {quote(field.name): f"s.{quote(field.name)}" for field in new}
    if not values:
        return builder
    if update is True and not rules.ignore_nulls:
        return builder.whenMatchedUpdateAll(newer)
    return builder.whenMatchedUpdate(newer, values)


def _given(columns: _UpsertColumns, pair: ColumnPair, ignore_nulls: bool) -> str | Column:
    source, target = pair.source, pair.target
    given, kept = f"s.{quote(source.name)}", f"t.{quote(target.name)}"
    if not ignore_nulls:
        return given
    stored = columns.stored[target.name].dataType
    if same_shape(source.dataType, target.dataType) and same_shape(stored, target.dataType):
        return kept_sql(given, kept, target.dataType)
    conf = merge_conf(columns.spark)
    assignment = StoreAssignment(
        conf.merge_assignment_policy, conf.ansi_enabled, columns.case_sensitive, column=target.name
    )
    lossy = first_lossy(source.dataType, target.dataType) if assignment.policy == "STRICT" else None
    if lossy is not None:
        raise no_up_cast(target.name, lossy, "ignore_nulls")
    value = align(F.col(kept), stored, target.dataType, assignment)
    return kept_value(F.col(given), value, source.dataType, target.dataType, assignment)


def _with_insert(builder: DeltaMergeBuilder, columns: _UpsertColumns, insert: Written) -> DeltaMergeBuilder:
    if isinstance(insert, bool):
        return builder.whenNotMatchedInsertAll() if insert else builder
    if isinstance(insert, Mapping):
        return builder.whenNotMatchedInsert(None, dict(insert))
    pairs = columns.pairs("insert", names_in("insert", insert))
    return builder.whenNotMatchedInsert(None, {quote(p.target.name): f"s.{quote(p.source.name)}" for p in pairs})
