"""Change events: a source's rows as events, and the log of all events that a target has ever been given.

A target that follows a change feed is a function of the set of events, whatever their order and however often each
arrives. The log keeps that set, each event once: so a late event meets deletes and earlier values that the target no
longer shows. It is a Delta table in a folder of the target's that begins with an underscore, which VACUUM passes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import BooleanType, DataType, StructField, StructType

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import DeltaMergeBuilder
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.analysis.analysis_errors import no_up_cast
from deltamerge.merge.source.rows_at_fault import null_error, tie_error, unfit_key
from deltamerge.recipes.keyed_rows import same_keys
from deltamerge.recipes.targets import column_of, type_of_value
from deltamerge.recipes.values import ColumnPair, is_cut
from deltamerge.scan.char_padding import padded
from deltamerge.spark import columns as F
from deltamerge.spark.config import MergeConf
from deltamerge.spark.nested_types import exact_json
from deltamerge.spark.session import merge_conf
from deltamerge.sql.names import quote
from deltamerge.write.align import align, check_same_fields, find_field
from deltamerge.write.data_files import as_stored
from deltamerge.write.store_assignment import StoreAssignment, first_lossy

CHANGE_LOG = "_deltamerge_changes"
SEQUENCE, DELETED, ROW = "__sequence", "__deleted", "__row"
_REPEATED, _LEAST, _GREATEST = "__event", "__least", "__greatest"
AFTER_DELETE, END, RANK, ERA, STATE, RUN = "__after_delete", "__end", "__rank", "__era", "__state", "__run"
_BESIDE_KEYS = frozenset(
    {SEQUENCE, DELETED, ROW, _REPEATED, _LEAST, _GREATEST, AFTER_DELETE, END, RANK, ERA, STATE, RUN}
)


@dataclass(frozen=True)
class Feed:
    """How to read a source's rows as change events.

    Args:
        argument: The argument that gave it, for messages.
        delete_when: Which events delete their row; None: none.
        except_columns: Source columns that the target does not get.
    """

    keys: tuple[str, ...]
    sequence: Column
    argument: str
    delete_when: Column | None = None
    except_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoldRules:
    """How events add up.

    Args:
        tracked: The columns whose changes begin a new version.
    """

    keys: tuple[str, ...]
    columns: tuple[StructField, ...]
    tracked: tuple[StructField, ...] = ()
    ignore_nulls: bool = False


def written_columns(source: DataFrame, feed: Feed) -> list[StructField]:
    case_sensitive = merge_conf(source.sparkSession).case_sensitive
    schema = source.schema
    keys = [column_of(schema, name, "keys", "the source", case_sensitive) for name in feed.keys]
    left_out = [column_of(schema, n, "except_columns", "the source", case_sensitive) for n in feed.except_columns]
    both = [field.name for field in keys if field in left_out]
    if both:
        raise DeltaAnalysisException(
            "DELTA_ILLEGAL_USAGE",
            f"The keys {', '.join(both)} cannot be in except_columns: the target's rows are found by them.",
        )
    own = [field.name for field in keys if field.name.lower() in _BESIDE_KEYS]
    if own:
        raise DeltaAnalysisException(
            "DELTA_ILLEGAL_USAGE",
            f"A key cannot be called {own[0]}: the change log, or what is made of it, has a column of that name beside "
            "the keys. Give the source's and the target's column another name. Nothing was written.",
        )
    return [StructField(field.name, field.dataType) for field in schema.fields if field not in left_out]


def sequence_field(source: DataFrame, feed: Feed, name: str = SEQUENCE) -> StructField:
    return StructField(name, type_of_value(source, feed.sequence, feed.argument))


def shared_columns(source: DataFrame, feed: Feed, target: StructType) -> list[StructField]:
    """Return the target's columns that its source gives, as the target has them."""
    case_sensitive = merge_conf(source.sparkSession).case_sensitive
    for name in feed.keys:
        column_of(target, name, "keys", "the target", case_sensitive)
    given = StructType(written_columns(source, feed))
    found = [field for field in target.fields if find_field(given, field.name, case_sensitive) is not None]
    return [StructField(field.name, field.dataType) for field in found]


def left_out_notes(source: DataFrame, feed: Feed, columns: Sequence[StructField]) -> tuple[str, ...]:
    case_sensitive = merge_conf(source.sparkSession).case_sensitive
    known = StructType(list(columns))
    missing = [f.name for f in written_columns(source, feed) if find_field(known, f.name, case_sensitive) is None]
    if not missing:
        return ()
    names = ", ".join(map(quote, missing))
    return (f"The target has no column for these of the source: {names}. Their values were left out.",)


def log_schema(columns: Sequence[StructField], keys: Sequence[str], sequence: StructField) -> StructType:
    of_key = [field for field in columns if field.name in keys]
    row = StructField(ROW, StructType(list(columns)))
    return StructType([*of_key, sequence, StructField(DELETED, BooleanType()), row])


def events_of(
    source: DataFrame, feed: Feed, schema: StructType, target: StructType, partitions: Sequence[str]
) -> DataFrame:
    """Return a source's rows as events in the form of the change log, each once; no job runs.

    Two different events of a key with the same sequence, and a sequence that is NULL, fail the job that reads them.

    Args:
        schema: The log's, as `log_schema` makes it; columns are cast to the types there.
        target: The target's, which says how values are stored.
        partitions: The target's partition columns.
    """
    keys, sequence, row_type = schema.fields[:-3], schema[SEQUENCE].dataType, schema[ROW].dataType
    assert isinstance(row_type, StructType)
    is_deleted = F.lit(False) if feed.delete_when is None else F.coalesce(feed.delete_when, F.lit(False))
    case_sensitive = merge_conf(source.sparkSession).case_sensitive
    given = [column_of(source.schema, f.name, "keys", "the source", case_sensitive) for f in keys]
    pairs = [ColumnPair(target[k.name], g, k.name in partitions) for k, g in zip(keys, given, strict=True)]
    of_keys = [pair.key("s.").alias(pair.target.name) for pair in pairs]
    missing = null_error(feed.argument, F.struct(*of_keys))
    place = _in_order(feed.sequence, sequence_field(source, feed).dataType, sequence, feed.argument)
    rows = source.alias("s").select(
        *of_keys,
        F.coalesce(place, missing.cast(sequence)).alias(SEQUENCE),
        is_deleted.alias(DELETED),
        F.struct(
            *(
                _stored(_value(source, field, case_sensitive), target[field.name], partitions).alias(field.name)
                for field in row_type.fields
            )
        ).alias(ROW),
    )
    by = [quote(field.name) for field in keys]
    # A delete's other columns say nothing.
    payload = F.struct(DELETED, F.when(~F.col(DELETED), F.col(ROW)).alias(ROW))
    payload = exact_json(payload, StructType([schema[DELETED], schema[ROW]]))
    events = rows.groupBy(*by, SEQUENCE).agg(
        F.first(F.struct(DELETED, ROW)).alias(_REPEATED),
        F.min(payload).alias(_LEAST),
        F.max(payload).alias(_GREATEST),
    )
    tied = tie_error(feed.argument, F.struct(*by), F.struct(F.col(SEQUENCE).alias(feed.argument)))
    return events.where(F.when(F.col(_LEAST) != F.col(_GREATEST), tied).otherwise(F.lit(True))).select(
        *by, SEQUENCE, F.col(f"{_REPEATED}.{DELETED}").alias(DELETED), F.col(f"{_REPEATED}.{ROW}").alias(ROW)
    )


def _in_order(value: Column, given: DataType, wanted: DataType, argument: str) -> Column:
    """Return a sequence in the type that orders events; what that does not take as it is fails the job."""
    if given == wanted:
        return value
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        fields = (
            _in_order(value.getField(g.name), g.dataType, w.dataType, f"{argument}.{g.name}").alias(w.name)
            for g, w in zip(given.fields, wanted.fields, strict=True)
        )
        return F.when(value.isNotNull(), F.struct(*fields))
    kept = value.try_cast(wanted)
    is_unfit = (value.isNotNull() & kept.isNull()) | is_cut(value, given, wanted)
    return F.when(is_unfit, unfit_key(value, argument, wanted)).otherwise(kept)


def _value(source: DataFrame, wanted: StructField, case_sensitive: bool) -> Column:
    """Return a source's column in the type of the log's, whose structs have their fields by name."""
    place = find_field(source.schema, wanted.name, case_sensitive)
    assert place is not None
    given = source.schema.fields[place]
    check_same_fields(
        given.dataType,
        wanted.dataType,
        wanted.name,
        "a change feed",
        case_sensitive,
        allow_missing_struct_field=True,
    )
    value, conf = F.col(f"s.{quote(given.name)}"), merge_conf(source.sparkSession)
    lossy = first_lossy(given.dataType, wanted.dataType) if conf.merge_assignment_policy == "STRICT" else None
    if lossy is not None:
        raise no_up_cast(wanted.name, lossy, "a change feed")
    return in_type(value, given.dataType, wanted, conf)


def _stored(value: Column, field: StructField, partitions: Sequence[str]) -> Column:
    """Return a value of a column's type as a scan of the target returns it once it is written."""
    return as_stored(padded(value, field), field, partitions)


def in_type(value: Column, given: DataType, wanted: StructField, conf: MergeConf) -> Column:
    """Return a value as a merge stores it in a column, structs field by field by name; fields it lacks are NULL."""
    # What STRICT takes, ANSI stores.
    policy = "LEGACY" if conf.merge_assignment_policy == "LEGACY" else "ANSI"
    assignment = StoreAssignment(policy, conf.ansi_enabled, conf.case_sensitive, column=wanted.name)
    return align(value, given, wanted.dataType, assignment)


def record(log: DeltaTable, events: DataFrame, keys: Sequence[str]) -> DeltaMergeBuilder:
    """Return the merge that adds those events to a change log that it does not have."""
    on = same_keys(keys, "t", "s")
    merge = log.alias("t").merge(events.alias("s"), f"{on} AND t.{SEQUENCE} <=> s.{SEQUENCE}")
    return merge.whenNotMatchedInsertAll().withSchemaEvolution()
