"""Rows of a user's frame in the columns and types of a table, written into its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructField, StructType

from deltamerge.exceptions import DeltaAnalysisException, DeltaRuntimeException
from deltamerge.spark import columns as F
from deltamerge.spark.config import MergeConf
from deltamerge.spark.field_metadata import frame_metadata
from deltamerge.spark.held_settings import for_reading, session_settings
from deltamerge.spark.nested_types import nullable_field
from deltamerge.spark.session import SPARK_ERRORS, errors_not_logged, merge_conf
from deltamerge.spark.table import Table
from deltamerge.sql.merge_ast import Expression
from deltamerge.sql.names import free_prefix, quote
from deltamerge.txn.transaction import now_ms
from deltamerge.write.align import align
from deltamerge.write.assignment_errors import Overflow, overflow_in
from deltamerge.write.char_varchar import as_strings, excess_in
from deltamerge.write.constraints import REPLACE_WHERE, Check, checked, violation_in
from deltamerge.write.data_files import (
    WriteTarget,
    WrittenFiles,
    remove_leftovers,
    stored_column,
    write_files,
)
from deltamerge.write.defaults import CURRENT_DEFAULT, column_defaults
from deltamerge.write.definition import TableDefinition, check_duplicates
from deltamerge.write.generated_columns import with_generated
from deltamerge.write.identity_columns import identities_given, with_high_water_marks
from deltamerge.write.layout import bin_size
from deltamerge.write.schema_evolution import check_known
from deltamerge.write.store_assignment import StoreAssignment, first_lossy


def new_schema(schema: StructType) -> StructType:
    """Return the schema of a new table: nullable and never generated, as delta-spark makes it of a frame's."""
    return as_strings(StructType([_new_field(field) for field in schema.fields]))


def _new_field(field: StructField) -> StructField:
    # Spark's own tables have defaults, too.
    default = {key: value for key, value in field.metadata.items() if key == CURRENT_DEFAULT}
    new = nullable_field(field, frame_metadata)
    return StructField(new.name, new.dataType, True, {**new.metadata, **default})


def write_fitted(
    table: Table,
    frame: DataFrame,
    definition: TableDefinition,
    folder: str,
    options: Mapping[str, str],
    *,
    all_match: Expression | None = None,
    with_changes: bool = False,
) -> tuple[WrittenFiles, StructType]:
    """Write rows of an existing table; return also its schema with the high water marks after them."""
    schema = definition.schema
    fitted, given = _fitted(frame, definition, merge_conf(table.spark), table.name)
    with _storing(), identities_given(fitted, schema, given) as (numbered, identities):
        rows = with_generated(numbered, schema, given)
        further = () if all_match is None else (_replaced_rows_check(all_match),)
        written = write_checked(table, rows, definition, folder, options, further, with_changes=with_changes)
    return written, with_high_water_marks(schema, identities, table.store, written.files)


def _replaced_rows_check(condition: Expression) -> Check:
    # The user's own text, which unlike a table's may call the session's functions.
    column = F.expr(condition.text) if condition.column is None else condition.column
    return Check(REPLACE_WHERE, condition.text, column=column)


def _fitted(
    frame: DataFrame, definition: TableDefinition, conf: MergeConf, table: str
) -> tuple[DataFrame, frozenset[str]]:
    """Return a frame in the table's columns and types, with defaults for missing ones, and the names of the others."""
    # Names are a table's whatever their case, also where the session tells them apart. Delta: normalizeColumnNames.
    policy = conf.store_assignment_policy
    assignment = StoreAssignment(policy, conf.ansi_enabled, case_sensitive=False, names_columns=policy == "ANSI")
    check_duplicates(frame.schema)
    given = {f.name.lower(): f for f in frame.schema.fields}
    known = {f.name.lower(): f for f in definition.schema.fields}
    check_known(frame.schema, definition.schema, table)
    columns, default = [], column_defaults(definition.schema, now_ms() * 1000)
    for index, (key, f) in enumerate(known.items()):
        value = _stored(given[key], f, assignment) if key in given else default(index)
        columns.append(stored_column(value, f, definition.partition_columns))
    return frame.select(*columns), frozenset(f.name for key, f in known.items() if key in given)


def _stored(given: StructField, wanted: StructField, assignment: StoreAssignment) -> Column:
    """Return a column with its type in the table: structs by name, values as an assignment of MERGE stores them."""
    lossy = first_lossy(given.dataType, wanted.dataType) if assignment.policy == "STRICT" else None
    if lossy is not None:
        source, target = lossy.types
        raise DeltaAnalysisException(
            "CANNOT_UP_CAST_DATATYPE",
            f"Cannot up cast {'.'.join((wanted.name, *lossy.path))} from {source} to {target}: "
            "spark.sql.storeAssignmentPolicy is STRICT. Cast the column, or set the policy to ANSI.",
        )
    return align(F.col(quote(given.name)), given.dataType, wanted.dataType, assignment.into(wanted.name))


def write_checked(
    table: Table,
    frame: DataFrame,
    definition: TableDefinition,
    folder: str,
    options: Mapping[str, str],
    further: Sequence[Check] = (),
    *,
    with_changes: bool = False,
) -> WrittenFiles:
    """Write rows that have the table's columns, and check its constraints."""
    conf = merge_conf(table.spark)
    target = WriteTarget(
        store=table.store,
        schema=definition.schema,
        partition_columns=definition.partition_columns,
        configuration=definition.properties,
        folder=folder,
        options=options,
        bin_size=bin_size(definition.properties, conf.optimize_write, conf.optimize_write_bin_size),
    )
    with session_settings(table.spark, for_reading(table.spark)), errors_not_logged():
        try:
            columns = definition.partition_columns
            rows = checked(frame, definition.schema, definition.properties, columns, further=further)
            if not with_changes:
                return write_files(rows, target)
            change_type = f"{free_prefix(rows.columns)}change"
            both = F.explode(F.array(F.lit(None).cast("string"), F.lit("insert")))
            return write_files(rows.withColumn(change_type, both), target, change_type)
        except AnalysisException:
            # It shows the whole query, in which the message of a violation stands, too.
            raise
        except KeyboardInterrupt:
            remove_leftovers(table.store, folder)
            raise
        except SPARK_ERRORS as error:
            found = violation_in(str(error), table.name) or excess_in(str(error))
            if found is None:
                raise
            # The cause is only the signal that our own expressions raise.
            raise found from None


@contextmanager
def _storing() -> Iterator[None]:
    """Raise the user's error of a value that does not fit its column."""
    try:
        yield
    except SPARK_ERRORS as error:
        overflow = overflow_in(str(error))
        found = excess_in(str(error)) if overflow is None else _overflow(overflow)
        if found is None:
            raise
        # The cause is only the signal that our own expressions raise.
        raise found from None


def _overflow(overflow: Overflow) -> DeltaRuntimeException:
    return overflow.error(
        "CAST_OVERFLOW_IN_TABLE_INSERT",
        f"A value cannot be stored in its column: {overflow.words}. Nothing was written. Correct the value, or "
        "use try_cast for NULL in its place.",
    )
