"""What a plan reports besides its operators: what features cost, what conflicts, what makes the merge slow."""

from __future__ import annotations

from collections.abc import Sequence

from deltamerge.log.features.type_widening import TYPE_CHANGES
from deltamerge.log.properties import is_enabled
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.join_keys import NoPlainKeys
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.skipping.indexed import NUM_INDEXED_COLS, IndexedColumns, leaves_of
from deltamerge.skipping.predicates import (
    ALWAYS,
    And,
    ColumnRef,
    Comparison,
    In,
    InRanges,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from deltamerge.txn.application import ApplicationTransaction
from deltamerge.txn.prepared import isolation_level
from deltamerge.write.constraints import constraints_of
from deltamerge.write.generated_columns import generation_expression
from deltamerge.write.identity_columns import identity_column


def feature_costs(context: PlanningContext) -> tuple[str, ...]:
    merge, configuration = context.merge, context.snapshot.metadata.configuration
    found = []
    if context.writes_deletion_vectors and context.changes_target_rows:
        found.append("Deletion vectors: changed rows are marked as deleted; touched files are not written again.")
    elif context.has_deletion_vectors:
        found.append("Deletion vectors: some files have them, and readers must leave out the rows they delete.")
    if context.has_change_feed and context.writes_change_data:
        found.append("Change data feed: each changed row is also written to the feed, each update twice.")
    elif context.writes_change_data:
        found.append("Returned rows: each changed row is written once more, to be read from there.")
    if is_enabled(configuration, "delta.enableRowTracking"):
        found.append("Row tracking: rows keep their ids, so rewritten rows are written with them.")
    has_type_changes = any(TYPE_CHANGES in field.metadata for _, field in context.snapshot.schema.walk())
    if has_type_changes or is_enabled(configuration, "delta.enableTypeWidening"):
        found.append("Type widening: older files may have narrower types; files written again have the wider ones.")
    constraints = len(constraints_of(merge.output_schema, configuration))
    if constraints:
        checked = "1 constraint is" if constraints == 1 else f"{constraints} constraints are"
        found.append(f"Constraints: {checked} checked for every row that is written.")
    if any(generation_expression(field) is not None for field in merge.output_schema.fields):
        found.append("Generated columns: they are computed for every row that is written.")
    if any(identity_column(field) is not None for field in merge.output_schema.fields):
        found.append("Identity columns: new rows get values by the numbers of the source's rows.")
    if merge.evolves_schema:
        found.append("Schema evolution: the merge adds or widens columns, and changes the table's metadata.")
    return tuple(found)


def conflicts(context: PlanningContext, source: str, retries: int) -> tuple[str, ...]:
    again = f"the merge then runs again, up to {retries} times" if retries > 0 else "the merge then fails"
    files, level = context.files.num_files, isolation_level(context.snapshot.metadata.configuration)
    writers = "Commits other than plain appends" if level == "WriteSerializable" else "Commits"
    # A source that is not kept cannot be looked up in the rows of others.
    rows = "" if source in ("read_once", "recomputed") else ", unless they changed other rows"
    found = [
        f"Commits that delete or replace one of the {files:,} files that may be read{rows}; {again}.",
        f"{writers} that add files which may hold {rows_to_read(context, source)}{rows}; {again}.",
        f"Commits that change the properties or the protocol of the table; {again}.",
        "Commits that change or drop its columns, or replace it; these end the merge.",
    ]
    if context.conf.txn_app_id is not None:
        found.append(f"Commits of the application {context.conf.txn_app_id} with the same or a later version.")
    return tuple(found)


def rows_to_read(context: PlanningContext, source: str) -> str:
    """Return which rows of the target the merge reads; a source that is not kept has no known key ranges."""
    references = context.references
    by_source = [describe(predicate) for predicate in references.by_source_predicates]
    if "all rows" in by_source:
        return "any row"
    on = describe(references.on.target_predicate)
    matched = (
        "rows in the ranges of the source's keys"
        if references.on.equi_keys and source not in ("read_once", "recomputed")
        else "rows that ON may match"
    )
    if on != "all rows":
        matched += f" with {on}"
    return " or ".join([matched, *(f"rows with {words}" for words in by_source)])


def about_transaction(transaction: ApplicationTransaction | None, snapshot: Snapshot) -> list[str]:
    if transaction is None or not transaction.is_in(snapshot):
        return []
    named = f"{transaction.app_id} {transaction.version}"
    return [f"The table already holds the application transaction {named}: the merge would do nothing."]


def warnings(context: PlanningContext) -> tuple[str, ...]:
    return (
        *_about_on(context),
        *_about_statistics(context),
        *_about_clauses(context),
        *_about_files(context),
    )


def _about_on(context: PlanningContext) -> list[str]:
    on, keys = context.references.on, context.plain_keys
    found = [
        f"The condition {part.text} could not be parsed here, so it excludes no files. Spark evaluates it all the same."
        for part in on.conjuncts
        if part.side == "unreadable"
    ]
    if not on.equi_keys:
        compared = [part.text for part in on.conjuncts if part.side == "both"]
        by = f" (it has {'; '.join(compared)})" if compared else ""
        found.append(
            f"ON equates no plain column of the target with the source{by}, so the source's keys exclude no file. "
            "Write it as t.key = s.key, with casts on the source's side."
        )
    elif isinstance(keys, NoPlainKeys) and keys.is_cast:
        found.append(
            f"{keys.reason[0].upper()}{keys.reason[1:]}: Spark casts one side for every row, and fewer files may be "
            "excluded. Cast the source's column to the target's type; use try_cast where some values cannot be cast, "
            "since CAST fails the merge at the first one."
        )
    return found


def _about_statistics(context: PlanningContext) -> list[str]:
    snapshot = context.snapshot
    metadata, schema = snapshot.metadata, snapshot.schema
    if snapshot.files.num_files < 2:
        return []
    indexed = IndexedColumns.of(schema, metadata.partition_columns, metadata.configuration)
    with_statistics = {leaf.names for leaf in leaves_of(schema) if leaf.path in indexed.paths}
    found = []
    keys = [key.target.path for key in context.references.on.equi_keys]
    for path in dict.fromkeys(keys):
        if path[0] in metadata.partition_columns or path in with_statistics:
            continue
        found.append(
            f"The key column {'.'.join(path)} has no statistics, so the source's keys exclude no file: by "
            f"{NUM_INDEXED_COLS} or delta.dataSkippingStatsColumns only {len(indexed.paths)} columns have them. Name "
            "it in delta.dataSkippingStatsColumns, and write the table again."
        )
    sampled = min(context.limits.sampled_files, snapshot.files.num_files)
    sample = snapshot.files.take(range(sampled)).add_files()
    without = sum(1 for file in sample if not file.stats)
    if keys and without:
        found.append(
            f"{without} of the first {sampled} files have no statistics in the log, "
            "so they are always read. Write them again, as OPTIMIZE does."
        )
    return found


def _about_clauses(context: PlanningContext) -> list[str]:
    clauses = context.merge.changing_by_source
    if ALWAYS not in context.references.by_source_predicates or not clauses:
        return []
    return [
        (
            "A NOT MATCHED BY SOURCE clause excludes no file by its condition, so the whole table is read. Give it a "
            "condition on a partition or on another column with statistics, if it is about a part of the table."
        )
    ]


def _about_files(context: PlanningContext) -> list[str]:
    files, limits = context.snapshot.files, context.limits
    small = files.size_in_bytes < files.num_files * limits.small_file_bytes
    if files.num_files < limits.many_files or not small:
        return []
    average = files.size_in_bytes // files.num_files // 1024
    return [
        (
            f"The table has {files.num_files:,} files of {average:,} KiB on average: reading many small files takes "
            "longer than reading few. OPTIMIZE puts them together."
        )
    ]


def describe(predicate: Predicate) -> str:
    if isinstance(predicate, And):
        return _joined(predicate.parts, " and ", neutral="all rows", absorbing="no rows")
    if isinstance(predicate, Or):
        return _joined(predicate.parts, " or ", neutral="no rows", absorbing="all rows")
    if isinstance(predicate, Not):
        return f"not ({describe(predicate.part)})"
    if isinstance(predicate, Comparison):
        return f"{_name(predicate.column)} {predicate.op} {_value(predicate.value)}"
    if isinstance(predicate, In):
        return f"{_name(predicate.column)} in ({', '.join(map(_value, predicate.values))})"
    if isinstance(predicate, IsNull):
        return f"{_name(predicate.column)} is null"
    if isinstance(predicate, IsNotNull):
        return f"{_name(predicate.column)} is not null"
    if isinstance(predicate, StartsWith):
        return f"{_name(predicate.column)} like '{predicate.prefix}%'"
    if isinstance(predicate, InRanges):
        return _in_ranges(predicate)
    return "a condition that excludes no files"


def _joined(parts: Sequence[Predicate], word: str, *, neutral: str, absorbing: str) -> str:
    described = [(part, words) for part in parts if (words := describe(part)) != neutral]
    if any(words == absorbing for _, words in described):
        return absorbing
    several = len(described) > 1
    nested = [f"({words})" if several and isinstance(part, (And, Or)) else words for part, words in described]
    return word.join(nested) if nested else neutral


def _in_ranges(predicate: InRanges) -> str:
    if not predicate.ranges:
        return f"{_name(predicate.column)} is null" if predicate.or_null else "no rows"
    low, high = predicate.ranges[0][0], predicate.ranges[-1][1]
    name = _name(predicate.column)
    among = f" in {len(predicate.ranges):,} ranges" if len(predicate.ranges) > 1 else ""
    return f"{name} between {_value(low)} and {_value(high)}{among}"


def _name(column: ColumnRef) -> str:
    return ".".join(column.path)


def _value(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
