"""What a plan is made from: the statement's meaning, the log and the session; no job runs for any of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql.types import DataType

from deltamerge.log.features.column_mapping import ID
from deltamerge.log.file_table import FileTable
from deltamerge.log.properties import is_enabled
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.arrow_clauses import ArrowClauses
from deltamerge.merge.analysis.column_references import MergeReferences
from deltamerge.merge.analysis.join_keys import NoPlainKeys, PlainKeys, plain_keys
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.limits import LIMITS, Limits
from deltamerge.merge.plan import Alternative
from deltamerge.merge.planning.target_files import may_match
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.scan.field_ids import may_be_foreign
from deltamerge.skipping.predicates import ALWAYS
from deltamerge.spark.config import MergeConf
from deltamerge.write.deletion_vectors import writes_deletion_vectors

FOREIGN_NAMES = "files may name columns otherwise than the table does (column mapping by id)"


@dataclass(frozen=True)
class SessionFacts:
    """What a plan needs to know of the session and the store.

    Args:
        compression: ``spark.sql.parquet.compression.codec``.
        rebases_dates: Whether ``spark.sql.parquet.datetimeRebaseModeInRead`` lets Spark read other days than PyArrow.
        records_per_file: ``spark.sql.files.maxRecordsPerFile``; None without a limit.
        not_opened: Why tasks do not open the files of the table's store; None where they do.
    """

    compression: str = "snappy"
    rebases_dates: bool = False
    records_per_file: int | None = None
    not_opened: str | None = None
    runs_in_local_mode: bool = True


@dataclass(frozen=True)
class PlanningContext:
    """What a plan is made from.

    Args:
        summary: What is known of the source once it was read.
        key_types: By its SQL the type of each key in ON that is no column of the source.
    """

    merge: ResolvedMerge
    references: MergeReferences
    snapshot: Snapshot
    conf: MergeConf
    session: SessionFacts = field(default_factory=SessionFacts)
    limits: Limits = LIMITS
    summary: SourceSummary | None = None
    declined: tuple[Alternative, ...] = ()
    returns_changes: bool = False
    key_types: Mapping[str, DataType] = field(default_factory=dict)

    @cached_property
    def arrow(self) -> ArrowClauses:
        return ArrowClauses(self.references, self.conf.session_time_zone)

    @cached_property
    def plain_keys(self) -> PlainKeys | NoPlainKeys:
        """The keys of a key lookup, none without a source; or what in ON is against one."""
        if not self.merge.statement.has_source:
            return PlainKeys()
        on = self.references.on
        found = plain_keys(self.merge, on, self.key_types)
        if isinstance(found, NoPlainKeys) or len(on.equi_keys) == len(on.conjuncts):
            return found
        if self.arrow.on_filters is None:
            return NoPlainKeys(
                "ON has conditions besides equal keys that only Spark evaluates, or that compare both sides"
            )
        return found

    @cached_property
    def files(self) -> FileTable:
        """The files that the merge may have to read, as far as is known of the source."""
        source = ALWAYS if self.summary is None else self.summary.predicate
        predicate = self.references.to_read(source)
        return may_match(self.snapshot, predicate, self.conf.session_time_zone)

    @property
    def computes_in_arrow(self) -> bool:
        """Whether PyArrow computes values: no more where it came upon one that only Spark knows, as of an overflow."""
        return all((one.decision, one.choice) != ("changed_rows", "arrow") for one in self.declined)

    @property
    def mapping_mode(self) -> str:
        return self.snapshot.mapping_mode

    @property
    def may_have_foreign_names(self) -> bool:
        """Whether files may know columns by names that only field ids lead to."""
        return self.mapping_mode == ID and any(map(may_be_foreign, self.merge.target_schema.fields))

    @property
    def has_change_feed(self) -> bool:
        return is_enabled(self.snapshot.metadata.configuration, "delta.enableChangeDataFeed")

    @property
    def writes_change_data(self) -> bool:
        """Whether change files are written; of a DELETE by deletion vectors, these hold the changes."""
        is_wanted = self.has_change_feed or self.returns_changes
        return is_wanted and not (self.merge.statement.operation == "DELETE" and self.writes_deletion_vectors)

    @property
    def writes_deletion_vectors(self) -> bool:
        permitted = {
            "MERGE": self.conf.deletion_vectors_persistent,
            "UPDATE": self.conf.update_deletion_vectors,
            "DELETE": self.conf.delete_deletion_vectors,
        }
        return writes_deletion_vectors(self.snapshot, permitted[self.merge.statement.operation])

    @property
    def has_deletion_vectors(self) -> bool:
        return self.snapshot.files.has_deletion_vectors

    @property
    def changes_target_rows(self) -> bool:
        return any(clause.action in ("update", "delete") for clause in self.merge.clauses)
