"""Which executor runs a merge, and why."""

from __future__ import annotations

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.protocol import TableFacts
from deltamerge.log.schema import contains_type
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.column_references import condition_shape
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.planning.target_files import may_match, read_predicate
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.spark.config import MergeConf
from deltamerge.workers.row_blocks import MOST_ROWS

# So few bytes cost less to write again than the jobs that would spare them.
_SMALL_BYTES = 4 << 20


def choose_executor(merge: ResolvedMerge, conf: MergeConf) -> tuple[str, str]:
    """Chooses how the merge runs.

    Args:
        merge: The merge.
        conf: The session's settings.

    Returns:
        The executor's name and the reason.

    Raises:
        DeltaAnalysisException: The session asks for an executor that this merge cannot use.
    """
    insert_only = merge.statement.is_insert_only
    if conf.executor == "insert_only" and not insert_only:
        raise DeltaAnalysisException(
            "DELTAMERGE_EXECUTOR_NOT_AVAILABLE",
            "spark.deltamerge.merge.executor is insert_only, but the merge has clauses that update or delete. Set it "
            "to auto or classic.",
            sqlstate="0A000",
        )
    # A merge that key lookup cannot run comes here, too.
    if conf.executor not in ("auto", "key_lookup"):
        return conf.executor, "spark.deltamerge.merge.executor asks for it"
    if insert_only and conf.optimize_insert_only_merge:
        return "insert_only", "there are only NOT MATCHED clauses"
    if insert_only:
        return "classic", "spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled is false"
    return "low_shuffle", "rows that stay need not be shuffled: only the rows that change are computed"


def why_classic(
    snapshot: Snapshot, merge: ResolvedMerge, conf: MergeConf, source: SourceSummary
) -> str | None:
    """Says why a merge by low_shuffle is left to classic.

    Args:
        snapshot: The table.
        merge: The merge.
        conf: The session's settings.
        source: What is known of the source.

    Returns:
        The reason, or None where low_shuffle runs it.
    """
    facts = TableFacts(snapshot.metadata, snapshot.schema)
    if facts.property_is("delta.enableDeletionVectors", "true") or snapshot.files.has_deletion_vectors:
        return "the table has deletion vectors"
    against = why_rows_are_not_plain(snapshot, merge)
    if against is not None:
        return against
    predicate = read_predicate(merge, condition_shape(merge), source.predicate)
    files = may_match(snapshot, predicate, conf.session_time_zone)
    if files.rows_about() + source.row_count > MOST_ROWS:
        return "source and files that may match have more rows than the driver takes positions of"
    if conf.executor == "auto" and files.size_in_bytes <= _SMALL_BYTES:
        return "the files that may match are small"
    return None


def why_rows_are_not_plain(snapshot: Snapshot, merge: ResolvedMerge) -> str | None:
    """Says what a table has for which a row in a file is more than the values of the table's columns by their names.

    Args:
        snapshot: The table.
        merge: The merge.

    Returns:
        The feature in words, or None.
    """
    facts = TableFacts(snapshot.metadata, snapshot.schema)
    if facts.metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        return "the table has column mapping"
    if facts.property_is("delta.enableRowTracking", "true"):
        return "the table has row tracking"
    if facts.property_is("delta.enableTypeWidening", "true") or facts.any_field_has("delta.typeChanges"):
        return "the table has type widening"
    if merge.evolves_schema:
        return "the table gets new columns or fields, which some readers want in every file of a map"
    if contains_type(snapshot.schema, "variant"):
        return "the table has VARIANT columns"
    if facts.any_field_has("delta.identity"):
        return "the table has identity columns"
    return None
