"""Rows of a source that fail the job which reads them, and what the user is told of them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql.types import AtomicType, DataType

from deltamerge.exceptions import DeltaRuntimeException, MultipleSourceRowsException
from deltamerge.spark import columns as F
from deltamerge.spark.row_errors import row_error, row_error_in
from deltamerge.sql.names import quote
from deltamerge.write.store_assignment import first_lossy, sql_type

KEYS = "keys"
"""As the argument of `tie_error`: nothing says which row is the latest, and the rows differ."""

_TIE, _NULL, _CAST = "tie", "null", "cast"


def tie_error(argument: str, key: Column, order: Column) -> Column:
    """Return what fails the job that computes it, as several source rows of one key are equally late.

    Args:
        argument: The argument that does not determine the latest, for the message.
        key: A struct of the key's values.
        order: A struct of the values that rows were compared by; for `KEYS` one of the rows.
    """
    return row_error(_TIE, {"argument": argument}, {"key": F.to_json(key), "order": F.to_json(order)}).cast("boolean")


def null_error(argument: str, key: Column) -> Column:
    return row_error(_NULL, {"argument": argument}, {"key": F.to_json(key)})


def may_not_fit(source: DataType, target: DataType) -> bool:
    """Return whether a type has values that a cast to another one loses or changes."""
    return isinstance(source, AtomicType) and first_lossy(source, target) is not None


def unfit_key(value: Column, name: str, target: DataType) -> Column:
    """Return what fails the job that computes it, as the target cannot store a key of a source's row."""
    known = {"column": quote(name), "type": sql_type(target)}
    return row_error(_CAST, known, {"value": value.cast("string")}).cast(target)


def row_at_fault_in(message: str) -> DeltaRuntimeException | None:
    """Read out of a failed job's message which row of the source is at fault; None where it failed otherwise."""
    readers = ((_TIE, _tied), (_NULL, _is_null), (_CAST, _not_cast))
    return next((read(found) for kind, read in readers if (found := row_error_in(message, kind)) is not None), None)


def _is_null(found: Mapping[str, str]) -> DeltaRuntimeException:
    argument = found["argument"]
    return DeltaRuntimeException(
        "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
        f"{argument} is NULL in the source row with the key {found['key']}, so that its place in the order is unknown. "
        f"Nothing was changed. Leave such rows out, or give {argument} an expression that is never NULL, as coalesce.",
        parameters={"columnName": argument},
    )


def _not_cast(found: Mapping[str, str]) -> DeltaRuntimeException:
    return DeltaRuntimeException(
        "CAST_INVALID_INPUT",
        f"The value '{found['value']}' of {found['column']} in the source cannot be cast to {found['type']}, the type "
        "of the target's column. Nothing was changed. Correct the value or leave the row out; `upsert` with "
        "`quarantine` writes such rows to a table of their own, where the target follows no change feed.",
        parameters={"expression": f"'{found['value']}'", "targetType": f'"{found["type"]}"'},
    )


def _tied(found: Mapping[str, str]) -> MultipleSourceRowsException:
    argument, key, order = found["argument"], found["key"], found["order"]
    if argument == KEYS:
        message = (
            f"Several different source rows have the key {key}, and either would be a guess; one of them is {order}. "
            "Nothing was changed. Name columns in order_by that tell which row of a key is the latest, or leave one "
            "row of each key in the source."
        )
    else:
        message = (
            f"{argument} does not determine the latest source row: several rows of the key {key} have {order}. Nothing "
            f"was changed. Add a column to {argument} that distinguishes them."
        )
    return MultipleSourceRowsException("DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE", message)
