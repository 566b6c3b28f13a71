"""Values that do not fit the columns that they are stored in: the errors, and which column is at fault."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import types as T

from deltamerge.exceptions import DeltaRuntimeException, OverflowException, UnfitValueException
from deltamerge.spark.row_errors import row_error_in
from deltamerge.write.store_assignment import OVERFLOW, CastPart, casts_in, sql_type

_CAST = re.compile(r'of the type "([^"]+)" cannot be cast to "([^"]+)"')
_DECIMAL = re.compile(r"cannot be represented as Decimal\((\d+), ?(\d+)\)")


@dataclass(frozen=True)
class Overflow:
    """A value that does not fit its column, as far as it is known, with types as SQL; `target` may be a field's."""

    source: str | None = None
    target: str | None = None
    column: str | None = None
    value: str | None = None
    is_string: bool = False

    @property
    def words(self) -> str:
        value = "a value" if self.value is None else f"the value '{self.value}'"
        problem = f"{value} of type {self.source or ''} does not fit {self.target or ''}"
        return problem if self.column is None else f"{problem} in column `{self.column}`"

    def error(self, condition: str, message: str) -> DeltaRuntimeException:
        """Return the error of an overflow, or of a malformed string, which is none."""
        known = {
            "sourceType": None if self.source is None else f'"{self.source}"',
            "targetType": None if self.target is None else f'"{self.target}"',
            "columnName": None if self.column is None else f"`{self.column}`",
            "storeAssignmentPolicyFlag": "spark.sql.storeAssignmentPolicy",
            "ansiEnabledFlag": "spark.sql.ansi.enabled",
        }
        parameters = {name: value for name, value in known.items() if value is not None}
        if self.is_string:
            return UnfitValueException("CAST_INVALID_INPUT", message, parameters=parameters)
        return OverflowException(condition, message, parameters=parameters)


@dataclass(frozen=True)
class Narrowing:
    """A cast to a column's type, or in one, that may fail."""

    column: str
    cast: CastPart

    @property
    def words(self) -> str:
        return f"`{'.'.join((self.column, *self.cast.path))}` from {' to '.join(self.cast.types)}"


def narrowing_casts(
    column: str, given: T.DataType, wanted: T.DataType, *, structs_by_name: bool = True
) -> Iterator[Narrowing]:
    for part in casts_in(given, wanted, structs_by_name=structs_by_name):
        if not part.is_up_cast:
            yield Narrowing(column, part)


def overflow_in(message: str) -> Overflow | None:
    """Read the value that does not fit its column from a failed job's message; None for other failures."""
    found = row_error_in(message, OVERFLOW)
    if found is None:
        return None
    column, is_string = found["column"] or None, bool(found["is_string"])
    return Overflow(found["source"], found["target"], column, found["value"], is_string)


def casts_at_fault(message: str, narrowing: Sequence[Narrowing]) -> list[Narrowing]:
    """Return the casts that Spark's message about an overflow may be about."""
    types, decimal = _CAST.search(message), _DECIMAL.search(message)
    if types is not None:
        return [one for one in narrowing if (sql_type(one.cast.source), sql_type(one.cast.target)) == types.groups()]
    if decimal is not None:
        return [one for one in narrowing if one.cast.target == T.DecimalType(*map(int, decimal.groups()))]
    return list(narrowing)


def overflow_of(message: str, narrowing: Sequence[Narrowing]) -> Overflow:
    """Return the types in Spark's message about an overflow, and the column where only one can have it.

    Spark names the types of the value; of one in an array or map Delta names those of the array or map.
    """
    fitting = {Overflow(one.cast.types[0], one.cast.types[1], one.column) for one in casts_at_fault(message, narrowing)}
    if len(fitting) == 1:
        return fitting.pop()
    types = _CAST.search(message)
    return Overflow() if types is None else Overflow(types[1], types[2])
