"""What the operators of a plan work on, and what they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import Column

from deltamerge.log.actions import Metadata
from deltamerge.log.features.row_tracking import materialized_columns
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.column_references import MergeReferences
from deltamerge.merge.analysis.join_keys import join_keys
from deltamerge.merge.analysis.resolved_merge import ResolvedClause, ResolvedMerge
from deltamerge.merge.limits import Limits
from deltamerge.merge.output.clause_expressions import generate_action_expr
from deltamerge.merge.output.derived_columns import Derivation
from deltamerge.merge.output.identity_columns import with_identities
from deltamerge.merge.plan import Alternative, Declined, MergePlan
from deltamerge.merge.planning.computed_values import derived_of
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.merge.planning.fit import stored_columns
from deltamerge.merge.planning.planner import make_plan
from deltamerge.merge.planning.target_files import TargetFiles, key_histograms, target_files
from deltamerge.merge.source.kept import KeptSource
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.merge.source.source import Source, materialize_source
from deltamerge.merge.steps import Steps
from deltamerge.scan.paths import located
from deltamerge.skipping.keys import Mask
from deltamerge.skipping.predicates import Predicate
from deltamerge.spark.config import MergeConf
from deltamerge.spark.session import SPARK_ERRORS, is_refusal
from deltamerge.spark.table import Table
from deltamerge.workers.files import Files
from deltamerge.workers.parquet_patch import FileForm
from deltamerge.workers.row_tracking import HiddenColumns
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.char_varchar import fitted
from deltamerge.write.data_files import WriteTarget
from deltamerge.write.defaults import column_defaults
from deltamerge.write.identity_columns import RowNumbers
from deltamerge.write.layout import bin_size, records_per_file


@dataclass(frozen=True)
class Execution:
    """All that the operators of a plan work on.

    Args:
        folder: A folder of the table in which nothing was ever written.
        timestamp: The value of ``current_timestamp()``, microseconds since 1970.
        row_numbers: The numbers of the source's rows, where identity columns need them.
        scratch: The folder for what is written on the way, as tasks open it.
        kept: What was kept of the source, also by an earlier run of the same merge.
        source_read_table: Whether the source was computed from the version of the table that the merge reads.
        opened: How tasks open the table's files, with those that this run has opened; None where they do not.
    """

    table: Table
    context: PlanningContext
    plan: MergePlan
    metadata: Metadata
    steps: Steps
    folder: str
    timestamp: int
    row_numbers: RowNumbers | None = None
    scratch: str = ""
    kept: KeptSource = field(default_factory=KeptSource)
    source_read_table: bool = False
    opened: Files | None = None

    @property
    def merge(self) -> ResolvedMerge:
        return self.context.merge

    @property
    def snapshot(self) -> Snapshot:
        return self.context.snapshot

    @property
    def conf(self) -> MergeConf:
        return self.context.conf

    @property
    def limits(self) -> Limits:
        return self.context.limits

    @property
    def references(self) -> MergeReferences:
        return self.context.references

    @property
    def defaults(self) -> Callable[[int], Column]:
        """Return an output column's default; of an identity column the value for a source row."""
        default = column_defaults(self.merge.output_schema, self.timestamp)
        return with_identities(default, self.merge, self.row_numbers)

    @property
    def writes_change_data(self) -> bool:
        return self.context.writes_change_data

    @property
    def maps_source(self) -> bool:
        """Whether tasks map the files of a staged source into memory, since they run where the driver writes."""
        return self.table.store.is_local or self.context.session.runs_in_local_mode

    def opens_in_parts(self, source_bytes: int) -> bool:
        return source_bytes > self.limits.source_bytes and not self.maps_source

    @property
    def writes_deletion_vectors(self) -> bool:
        return self.plan.unchanged_rows.choice == "deletion_vector"

    def without(self, declined: Alternative) -> Execution:
        context = replace(self.context, declined=(*self.context.declined, declined))
        return replace(self, context=context, plan=make_plan(context))

    def by_any_plan(self) -> Execution:
        return replace(self, context=replace(self.context, conf=replace(self.conf, executor="auto")))

    def knowing(self, summary: SourceSummary) -> Execution:
        """Plan again with what is known of the source once it was read; how it is kept stays as it is."""
        context = replace(self.context, summary=summary)
        return replace(self, context=context, plan=replace(make_plan(context), source=self.plan.source))

    @property
    def source_key(self) -> tuple[object, ...]:
        """All that decides what is kept of the source, besides the statement."""
        plan, snapshot = self.plan, self.snapshot
        choices = plan.source.choice, plan.match.choice, plan.changed_rows.choice
        return (*choices, snapshot.metadata, snapshot.protocol)

    @cached_property
    def write_target(self) -> WriteTarget:
        return WriteTarget(
            store=self.table.store,
            schema=self.merge.output_schema,
            partition_columns=self.metadata.partition_columns,
            configuration=self.metadata.configuration,
            folder=self.folder,
            records_per_file=self._records_per_file(),
            bin_size=bin_size(self.metadata.configuration, self.conf.optimize_write, self.conf.optimize_write_bin_size),
        )

    def _records_per_file(self) -> int | None:
        files = self.snapshot.files
        some = files.take(range(min(files.num_files, self.limits.sampled_files))).add_files()
        return records_per_file(self.snapshot.metadata.configuration, some)

    @property
    def row_tracking(self) -> HiddenColumns | None:
        return materialized_columns(self.snapshot.metadata)

    @property
    def files(self) -> Files:
        """How tasks open the table's files. A plan whose operators need that does not fit where they do not."""
        assert self.opened is not None
        return self.opened

    def located(self, path: str) -> str:
        return located(self.table.store, path)

    def target_files(self, source: Predicate, among: Mask | None = None) -> TargetFiles:
        return target_files(self.snapshot, self.references, source, self.conf.session_time_zone, among)

    def refuse_append_only(self) -> None:
        verb = self.merge.statement.verb
        refuse_append_only(self.snapshot, self.table.name, f"the {verb} updates or deletes rows")

    def fits_driver(self, size: float, files: int) -> bool:
        """Return whether there is so little to do on Arrow rows that a Spark job would cost more than the work.

        Args:
            size: The bytes of source and target that are read.
        """
        most = self.conf.driver_bytes
        if most is None:
            is_local = self.context.session.runs_in_local_mode
            most = self.limits.driver_bytes_in_local_mode if is_local else self.limits.driver_bytes
        return files <= self.limits.driver_files and size <= most


def keep_source(execution: Execution, level: str) -> Source:
    """Compute the source once and keep its rows; else as `materialize_source`."""
    merge, references = execution.merge, execution.references
    with execution.steps.step("materialize_source", "materializing the source"):
        keys = join_keys(merge, references.on)
        zone = execution.conf.session_time_zone
        histograms = key_histograms(execution.snapshot, references.on.target_predicate, keys, zone)
        try:
            return materialize_source(merge, level, keys, histograms, execution.limits)
        except SPARK_ERRORS as error:
            if not is_refusal(error):
                raise
            raise Declined("source", "checkpoint", "the session refuses to keep rows (localCheckpoint)") from error


def stored_value(execution: Execution, clause: ResolvedClause, index: int) -> Column:
    """Return what an output column becomes under an UPDATE or INSERT, as files get it: padded, and not too long."""
    value = generate_action_expr(execution.merge, clause, index, execution.defaults)
    return fitted(value, execution.merge.output_schema.fields[index])


def derivation_of(execution: Execution, clause: ResolvedClause) -> Derivation | None:
    """Return what Spark computes of the columns of a clause's rows; None where there is nothing."""
    merge, kind = execution.merge, clause.kind
    derived = derived_of(execution.context, clause)
    if not derived.is_anything:
        return None
    return Derivation(
        clause=clause,
        inputs={index: generate_action_expr(merge, clause, index, execution.defaults) for index in derived.inputs},
        generated={index: merge.names.stored(kind, clause.number, index) for index in derived.generated},
        checks=derived.checks,
        holds=merge.names.holds(kind, clause.number),
    )


def file_form(execution: Execution) -> FileForm:
    """Return what files have that PyArrow writes again."""
    merge, partitions = execution.merge, execution.snapshot.metadata.partition_columns
    stored = stored_columns(merge.output_schema, execution.context.mapping_mode)
    new = (stored[name].name for name in merge.output_schema.names if name not in merge.target_schema.names)
    columns = pa.schema([field for name, field in stored.items() if name not in partitions])
    return FileForm(columns, tuple(new) if merge.evolves_schema else (), execution.row_tracking)
