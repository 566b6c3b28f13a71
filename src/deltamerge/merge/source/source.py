"""The source of a merge: the columns in use, read once, and numbered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, Observation
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.analysis.join_keys import JoinKeys
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge, TakeSource
from deltamerge.merge.limits import Limits
from deltamerge.merge.output.frames import Rows, source_rows
from deltamerge.merge.source.key_summary import SourceSummary, key_aggregates, summary_of_aggregates
from deltamerge.skipping.histogram import KeyHistogram
from deltamerge.spark import columns as F
from deltamerge.spark.config import MergeConf
from deltamerge.spark.observations import observed
from deltamerge.spark.session import release_checkpoint
from deltamerge.sql.names import quote
from deltamerge.sql.operands import VARIABLE


@dataclass(frozen=True)
class Source:
    """The source as the executors read it.

    Args:
        frame: The user's columns, then the row number; the user's qualifiers hold.
        summary: What is known of it, where Spark keeps its rows; else None.
    """

    frame: DataFrame
    summary: SourceSummary | None = None

    def release(self) -> None:
        """Drop what Spark keeps of the source, which cannot be read afterwards."""
        if self.summary is not None:
            release_checkpoint(self.frame)


def columns_in_use(merge: ResolvedMerge) -> tuple[int, ...]:
    """Return the positions of the source columns that a merge may refer to; all where two have one name.

    A column is left out only where its name is in no expression's SQL, nor can come from a variable or IDENTIFIER(…).
    """
    everything = tuple(range(len(merge.source_schema.fields)))
    # A Greek sigma's lower case depends on the letters around it.
    names = [name.casefold() for name in merge.source_schema.names]
    if len(set(names)) < len(names):
        return everything
    statement = merge.statement
    written = (statement.condition.text, *statement.dedupe_by, *(c.to_sql() for c in statement.clauses))
    expressions = [sql.casefold() for sql in written]
    if any(VARIABLE in sql or "identifier" in sql for sql in expressions):
        return everything
    taken = {o.index for c in merge.clauses for o in c.outputs if isinstance(o, TakeSource)}
    used = [
        i
        for i, name in enumerate(names)
        if i in taken or any(spelled in sql for sql in expressions for spelled in _spellings(name))
    ]
    return tuple(used) if used else everything[:1]


def _spellings(name: str) -> tuple[str, ...]:
    return (name, name.replace("`", "``"), name.replace('"', '""'))


def narrowed(merge: ResolvedMerge) -> ResolvedMerge:
    """Leave the source's columns out that a merge does not refer to."""
    used = columns_in_use(merge)
    if len(used) == len(merge.source_schema.fields):
        return merge
    position = {old: new for new, old in enumerate(used)}
    source = merge.statement.source.select(*(quote(merge.source_schema.names[i]) for i in used))
    clauses = tuple(
        replace(
            clause,
            outputs=tuple(
                replace(o, index=position[o.index]) if isinstance(o, TakeSource) else o for o in clause.outputs
            ),
        )
        for clause in merge.clauses
    )
    return replace(
        merge,
        statement=replace(merge.statement, source=source),
        clauses=clauses,
        source_schema=StructType([merge.source_schema.fields[i] for i in used]),
    )


def read_source(merge: ResolvedMerge) -> Source:
    """Return the source as it is, to be computed each time it is read."""
    return numbered_source(merge.statement.source, merge.names)


def numbered_source(frame: DataFrame, names: InternalColumns) -> Source:
    return Source(_numbered(frame, names))


def materialize_source(
    merge: ResolvedMerge,
    level: str,
    keys: JoinKeys,
    histograms: Mapping[tuple[str, ...], KeyHistogram],
    limits: Limits,
) -> Source:
    """Compute the source once, keep its rows for all later reads and find the ranges of its keys on the way.

    Delta: MergeIntoMaterializeSource.

    Args:
        level: Where Spark keeps the rows, such as ``DISK_ONLY``.
        histograms: Of the target's columns, by which gaps between keys are found.
    """
    names = merge.names
    frame = merge.statement.under_source_alias(_numbered(merge.statement.source, names))
    found = Observation()
    counted = frame.observe(found, *key_aggregates(keys, names, histograms, limits, merge.source_schema))
    kept = counted.localCheckpoint(eager=True, storageLevel=getattr(StorageLevel, level))
    seen = observed(found)
    if not seen:
        # Spark Connect does not hand out what a checkpoint observes.
        return Source(kept, summarize_source(Source(kept), None, keys, names, histograms, limits, merge.source_schema))
    return Source(kept, summary_of_aggregates(seen, keys.keys, histograms, limits))


def _numbered(frame: DataFrame, names: InternalColumns) -> DataFrame:
    return frame.select("*", F.monotonically_increasing_id().alias(names.source_row_index))


def summarize_source(
    source: Source,
    alias: str | None,
    keys: JoinKeys,
    names: InternalColumns,
    histograms: Mapping[tuple[str, ...], KeyHistogram] | None,
    limits: Limits,
    measured: StructType | None = None,
) -> SourceSummary:
    """Count the source's rows and find the range of each of its keys, in one job; see `key_aggregates`."""
    frame = source.frame if alias is None else source.frame.alias(alias)
    found = frame.agg(*key_aggregates(keys, names, histograms, limits, measured)).collect()[0]
    return summary_of_aggregates(found.asDict(), keys.keys, histograms, limits)


@dataclass(frozen=True)
class SecondScan:
    """The source's rows as they are read again, and what counts them where they may have changed."""

    rows: Rows
    counted: Observation | None


def counted_again(source: Source, rows: Rows, merge: ResolvedMerge, conf: MergeConf) -> SecondScan:
    """Let the second scan count the source's rows (``merge.failIfSourceChanged``), unless Spark keeps them."""
    if source.summary is not None or not conf.fail_if_source_changed:
        return SecondScan(rows, None)
    counted = Observation()
    frame = source.frame.observe(counted, F.count(F.lit(1)).alias("rows"))
    return SecondScan(source_rows(frame, merge), counted)


def check_source_unchanged(second: SecondScan, first_count: int) -> None:
    """Refuse a source that has another number of rows when it was read again."""
    if second.counted is None:
        return
    count = int(observed(second.counted).get("rows", first_count))
    if count != first_count:
        raise DeltaRuntimeException(
            "DELTA_MERGE_SOURCE_CHANGED",
            f"The source had {first_count} rows when it was read first and {count} when it was read again, and "
            "spark.databricks.delta.merge.failIfSourceChanged is true; the table is as it was. Set "
            "spark.databricks.delta.merge.materializeSource to auto, or make the source deterministic.",
        )
