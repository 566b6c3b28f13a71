"""Whether a merge can run by key lookup, and how."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import DecimalType, StructField, StructType

from deltamerge.merge.analysis.arrow_conditions import ClauseChoice
from deltamerge.merge.analysis.column_references import (
    by_source_choice,
    decides_from_source,
    pair_choice,
    sets_from_source,
    taken_column,
    takes_as_it_is,
)
from deltamerge.merge.analysis.determinism import is_repeatable
from deltamerge.merge.analysis.resolved_merge import (
    ResolvedClause,
    ResolvedMerge,
    TakeGenerated,
    TakeTarget,
    TakeValue,
)
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.planning.executor_choice import why_rows_are_not_plain
from deltamerge.merge.planning.lookup import PLAIN_TYPES, Lookup, lookup_of
from deltamerge.spark.session import conf_value, runs_arrow
from deltamerge.workers.key_lookup import Leaving, PairChoice
from deltamerge.write.char_varchar import METADATA_KEY
from deltamerge.write.constraints import NotNull, constraints_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")

_CODECS = {
    "snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "none": "none", "uncompressed": "none",
    "lz4raw": "lz4", "lz4_raw": "lz4", "brotli": "brotli",
}  # fmt: skip
_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
# Days in files may be of Spark 2's calendar: who looks keys up in them must ask, and the session must not say so.
_KEY_TYPES = PLAIN_TYPES | {"date"}
# Of these Spark and Python spell a partition's value alike.
_PARTITION_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "string", "date"})


@dataclass(frozen=True)
class KeyLookup:
    """How a merge runs by key lookup.

    Args:
        lookup: The keys.
        matched: The MATCHED clauses that update or delete.
        of_pairs: Which of them takes a pair of rows, where they look at the target's row; else None.
        asked_of_source: The source's columns that this depends on, by position.
        by_source: The NOT MATCHED BY SOURCE clauses that delete.
        leaving: Which of them takes a row of the target that nothing matches; None where there is none.
        takes_all: Whether the first of all MATCHED clauses has no condition, so that no other takes a row.
        computes: Whether a clause sets a value, or has a condition, that may be another one for each pair of rows.
        types: The types of the table's columns in Arrow.
        not_null: The table's columns that are never NULL.
        codec: How new files are compressed.
        records_per_file: How many rows a new file has at most; None for any number.
    """

    lookup: Lookup
    matched: tuple[ResolvedClause, ...]
    of_pairs: PairChoice | None
    asked_of_source: tuple[int, ...]
    by_source: tuple[ResolvedClause, ...]
    leaving: Leaving | None
    takes_all: bool
    computes: bool
    types: Mapping[str, pa.DataType]
    not_null: frozenset[str]
    codec: str
    records_per_file: int | None

    @property
    def asks_target(self) -> bool:
        """Whether a clause looks at rows of the target."""
        return self.of_pairs is not None or self.leaving is not None

    @property
    def updates(self) -> tuple[ResolvedClause, ...]:
        """The UPDATE clauses."""
        return tuple(clause for clause in self.matched if clause.action == "update")


def key_lookup_of(execution: Execution) -> KeyLookup | None:
    """Tells whether a merge can run by key lookup; logs what is against it.

    Args:
        execution: What to work on.

    Returns:
        How, or None where a clause, a column or the table needs more.
    """
    found = _fitted(execution)
    if isinstance(found, str):
        logger.debug("key lookup does not run the merge: %s", found)
        return None
    return found


def _fitted(execution: Execution) -> KeyLookup | str:
    """Gives how a merge runs by key lookup, or what is against it."""
    merge, spark = execution.merge, execution.table.spark
    against = _against_session(execution) or _against_table(execution)
    if against is not None:
        return against
    codec = _CODECS.get((conf_value(spark, "spark.sql.parquet.compression.codec") or "snappy").lower())
    if codec is None:
        return "the session's compression is not one of PyArrow's"
    lookup = lookup_of(merge, execution.table.store, _KEY_TYPES)
    if lookup is None:
        return "ON does more than to equate integers, texts or dates by =, or the table is on an object store"
    clauses = _fitted_clauses(merge)
    if isinstance(clauses, str):
        return clauses
    partition_columns = execution.snapshot.metadata.partition_columns
    if not _knows_partitions(merge, lookup, clauses.matched, partition_columns):
        return "an UPDATE may move rows to another partition, or a partition column is computed or not of a plain type"
    types = _arrow_types(merge.output_schema)
    if types is None:
        return "a column is of a type that is not plain"
    if _moves_days(spark, types):
        return "the session moves old dates"
    constraints = constraints_of(merge.output_schema, execution.snapshot.metadata.configuration)
    if any(not isinstance(c, NotNull) or len(c.path) > 1 for c in constraints):
        return "the table has constraints"
    pairs, leaving = clauses.pairs, clauses.leaving
    return KeyLookup(
        lookup=lookup,
        matched=clauses.matched,
        of_pairs=None if pairs is None else _of_pairs(execution, pairs, types),
        asked_of_source=() if pairs is None else tuple(_source_places(merge, pairs)),
        by_source=clauses.by_source,
        leaving=None if leaving is None else Leaving(_of_target(merge, leaving, types), leaving.of),
        takes_all=clauses.takes_all,
        computes=_computes(merge, clauses.reached),
        types=types,
        not_null=frozenset(c.path[0] for c in constraints if isinstance(c, NotNull)),
        codec=codec,
        records_per_file=_records_per_file(execution),
    )


def _against_session(execution: Execution) -> str | None:
    """Says what a session asks that key lookup does not do."""
    conf, spark = execution.conf, execution.table.spark
    if conf.materialize_source == "none":
        return "the source is not to be kept"
    if not runs_arrow(spark):
        return "the session does not run Arrow"
    if execution.merge.statement.is_insert_only and not conf.optimize_insert_only_merge:
        return "spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled is false"
    return None


def _against_table(execution: Execution) -> str | None:
    """Says what a table has that key lookup does not write."""
    if execution.writes_change_data:
        return "the table has a change data feed"
    if execution.snapshot.files.has_deletion_vectors and not execution.writes_deletion_vectors:
        return "the table has deletion vectors and is to get no more of them"
    return why_rows_are_not_plain(execution.snapshot, execution.merge)


@dataclass(frozen=True)
class _Clauses:
    """The clauses of a merge as key lookup takes them.

    Args:
        reached: The MATCHED clauses up to the first without a condition, where that is the first of all; else all.
        matched: Those of them that update or delete.
        takes_all: Whether the first of all MATCHED clauses has no condition.
        pairs: What tells which of them takes a pair of rows, where they look at the target's row.
        by_source: The NOT MATCHED BY SOURCE clauses that delete.
        leaving: What tells which of them takes a row; None where there is none.
    """

    reached: tuple[ResolvedClause, ...]
    matched: tuple[ResolvedClause, ...]
    takes_all: bool
    pairs: ClauseChoice | None
    by_source: tuple[ResolvedClause, ...]
    leaving: ClauseChoice | None


def _fitted_clauses(merge: ResolvedMerge) -> _Clauses | str:
    """Gives the clauses, or what is against them."""
    if any(isinstance(output, TakeGenerated) for clause in merge.clauses for output in clause.outputs):
        return "a column is generated"
    takes_all = not merge.matched or merge.matched[0].condition is None
    reached = merge.matched[:1] if takes_all else merge.matched
    matched = tuple(clause for clause in reached if clause.action in ("update", "delete"))
    updates = [clause for clause in matched if clause.action == "update"]
    if not all(sets_from_source(merge, clause) for clause in updates):
        return "an UPDATE sets what depends on the target's row"
    pairs = None
    if not all(decides_from_source(merge, clause) for clause in reached):
        pairs = pair_choice(merge, [clause.number for clause in matched])
        if pairs is None:
            return "a MATCHED condition asks more of the target's row than plain comparisons"
        # What is computed of a source row is computed for the clause that takes it, which only pairs tell.
        if not all(takes_as_it_is(merge, clause) for clause in updates):
            return "MATCHED conditions ask of the target's row, and an UPDATE computes values"
    by_source = tuple(c for c in merge.not_matched_by_source if c.action != "do_nothing")
    if any(clause.action != "delete" for clause in by_source):
        return "a NOT MATCHED BY SOURCE clause updates"
    leaving = by_source_choice(merge, [clause.number for clause in by_source]) if by_source else None
    if by_source and leaving is None:
        return "a NOT MATCHED BY SOURCE condition asks more than plain comparisons"
    return _Clauses(reached, matched, takes_all, pairs, by_source, leaving)


def _of_target(
    merge: ResolvedMerge, choice: ClauseChoice, types: Mapping[str, pa.DataType]
) -> dict[str, tuple[str, pa.DataType]]:
    """Gives the target's columns that a choice depends on, by the names that it has for them."""
    names = merge.target_schema.names
    found = {str(place): names[place] for place in sorted(choice.columns) if place < len(names)}
    return {place: (name, types[name]) for place, name in found.items()}


def _source_places(merge: ResolvedMerge, choice: ClauseChoice) -> list[int]:
    before = len(merge.target_schema)
    return [place - before for place in sorted(choice.columns) if place >= before]


def _of_pairs(execution: Execution, choice: ClauseChoice, types: Mapping[str, pa.DataType]) -> PairChoice:
    merge, names = execution.merge, execution.names
    places = _source_places(merge, choice)
    source = {str(len(merge.target_schema) + place): names.source(place) for place in places}
    return PairChoice(_of_target(merge, choice, types), source, choice.of)


def _moves_days(spark: SparkSession, types: Mapping[str, pa.DataType]) -> bool:
    """Tells whether the session has Spark take old dates of files that do not say their calendar for other days."""
    if not any(map(pa.types.is_temporal, types.values())):
        return False
    mode = conf_value(spark, "spark.sql.parquet.datetimeRebaseModeInRead") or "CORRECTED"
    return mode.upper() != "CORRECTED"


def _knows_partitions(
    merge: ResolvedMerge, lookup: Lookup, matched: Sequence[ResolvedClause], partition_columns: Sequence[str]
) -> bool:
    """Tells whether updated rows stay in their partitions, and one kept column says where new ones belong."""
    inserting = [clause for clause in merge.not_matched if clause.action == "insert"]
    of_key = dict(zip(lookup.target, lookup.source, strict=True))
    for index, field in enumerate(merge.output_schema.fields):
        if field.name not in partition_columns:
            continue
        if field.dataType.simpleString() not in _PARTITION_TYPES:
            return False
        for clause in matched:
            output = clause.outputs[index] if clause.outputs else TakeTarget()
            is_key = field.name in of_key and taken_column(merge, clause, output) == of_key[field.name]
            if not (is_key or isinstance(output, TakeTarget)):
                return False
        if len(inserting) > 1 and not _is_one_column(merge, inserting, index):
            return False
    return True


def _is_one_column(merge: ResolvedMerge, clauses: Sequence[ResolvedClause], index: int) -> bool:
    """Tells whether clauses take an output column from one source column as it is: what is computed is each's own."""
    given = {taken_column(merge, clause, clause.outputs[index]) for clause in clauses}
    if len(given) > 1 or None in given:
        return False
    (taken,) = given
    assert taken is not None
    return merge.source_schema.fields[taken].dataType == merge.output_schema.fields[index].dataType


def _computes(merge: ResolvedMerge, matched: Sequence[ResolvedClause]) -> bool:
    if any(clause.condition is not None for clause in matched) and not is_repeatable(merge):
        return True
    return any(
        isinstance(output, TakeValue) and taken_column(merge, clause, output) is None
        for clause in matched
        for output in clause.outputs
    )


def _records_per_file(execution: Execution) -> int | None:
    """Gives the number that the table's files have at most by its property, or that Spark gives any file."""
    of_table = execution.write_target.records_per_file
    of_session = int(conf_value(execution.table.spark, "spark.sql.files.maxRecordsPerFile") or 0)
    return of_table if of_table is not None or of_session <= 0 else of_session


def _arrow_types(schema: StructType) -> dict[str, pa.DataType] | None:
    found = {}
    for field in schema.fields:
        kind = arrow_type(field)
        if kind is None:
            return None
        found[field.name] = kind
    return found


def arrow_type(field: StructField) -> pa.DataType | None:
    """Gives a column's type in Arrow; None for nested, rarer and CHAR or VARCHAR ones."""
    if METADATA_KEY in (field.metadata or {}):
        return None
    if isinstance(field.dataType, DecimalType):
        return pa.decimal128(field.dataType.precision, field.dataType.scale)
    return _TYPES.get(field.dataType.simpleString())
