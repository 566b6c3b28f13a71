"""The sequence that orders events, and the columns of the log, of a history and of a target that keep it.

A column of another type orders events as the sequence does, or is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, StringType, StructField, StructType

from deltamerge.api.arguments import names_in
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.recipes.targets import named_column
from deltamerge.recipes.values import loses_part, widened
from deltamerge.spark import columns as F
from deltamerge.spark.session import merge_conf
from deltamerge.sql.names import quote
from deltamerge.sql.relations import folded
from deltamerge.write.align import find_field
from deltamerge.write.store_assignment import casts_in

SequenceBy: TypeAlias = "str | Column | Sequence[str]"


def sequence_column(sequence_by: SequenceBy) -> Column:
    """Return the sequence of a source's row; of several columns a struct, which Spark compares field by field."""
    if isinstance(sequence_by, str):
        return F.expr(sequence_by)
    if isinstance(sequence_by, Sequence):
        return F.struct(*map(quote, names_in("sequence_by", sequence_by)))
    return sequence_by


@dataclass(frozen=True)
class KeptSequence:
    """The columns of a target that keep the sequence of its rows.

    Args:
        is_list: Whether the sequence is a struct of several columns.
    """

    columns: tuple[StructField, ...]
    is_list: bool

    @staticmethod
    def of(sequence_by: SequenceBy, source: DataFrame, columns: Sequence[StructField]) -> KeptSequence | None:
        """Return the columns of a target that keep a sequence; None where it lacks one, or a value is computed."""
        if isinstance(sequence_by, (str, Column)):
            named = named_column(source, sequence_by)
            names = [] if named is None else [named]
        else:
            names = list(sequence_by)
        rows, case_sensitive = StructType(list(columns)), merge_conf(source.sparkSession).case_sensitive
        places = [find_field(rows, name, case_sensitive) for name in names]
        found = tuple(columns[place] for place in places if place is not None)
        is_list = not isinstance(sequence_by, (str, Column))
        return KeptSequence(found, is_list) if found and len(found) == len(names) else None

    def check(self, sequence: DataType, argument: str) -> None:
        """Refuse columns that have another order than the sequence.

        Raises:
            DeltaAnalysisException: One of both is a STRING, the other is none, or the column would cut values.
        """
        for given, column in zip(self._parts(sequence), self.columns, strict=True):
            # What loses a part both ways a log that has the one type would not take as the other either.
            if any(
                loses_part(part.source, part.target) and not loses_part(part.target, part.source)
                for part in casts_in(given, column.dataType)
            ):
                raise _refused(
                    f"The target's column {quote(column.name)} is {_sql(column.dataType)}, which would cut values of "
                    f"{_sql(given)} in {argument}, so that an older change could not be told from a newer one. Cast "
                    "the source's column to its type, or give the column the source's."
                )
            if _is_string_on_one_side(given, column.dataType):
                raise _refused(
                    f"The target's column {quote(column.name)} is {_sql(column.dataType)}, which orders values "
                    f"otherwise than {_sql(given)} in {argument} does, so that an older change could count as the "
                    "newer one. Cast the source's column to its type, or give the column the source's."
                )

    def of_row(self, sequence: DataType) -> Column:
        """Return the sequence that a row of the target has, with the fields of the one that is given."""
        columns = [F.col(quote(column.name)) for column in self.columns]
        if not self.is_list:
            return columns[0]
        assert isinstance(sequence, StructType)
        return F.struct(*(column.alias(name) for column, name in zip(columns, sequence.names, strict=True)))

    def is_not_older(self, given: str, sequence: DataType) -> str:
        """Return the condition that events of a sequence are not older than a row of the target, which is ``t``.

        Sequences are compared as the target stores them.
        """
        if not self.is_list:
            column = self.columns[0]
            stored = f"t.{quote(column.name)}"
            return f"({stored} IS NULL OR {_cast(given, sequence, column)} >= {stored})"
        assert isinstance(sequence, StructType)
        # Structs are compared field by field, and NULL comes first.
        values = (
            f"{_cast(f'{given}.{quote(field.name)}', field.dataType, column)} AS c{i}"
            for i, (field, column) in enumerate(zip(sequence.fields, self.columns, strict=True))
        )
        stored = ", ".join(f"t.{quote(column.name)} AS c{i}" for i, column in enumerate(self.columns))
        return f"struct({', '.join(values)}) >= struct({stored})"

    def _parts(self, sequence: DataType) -> list[DataType]:
        if not self.is_list:
            return [sequence]
        assert isinstance(sequence, StructType)
        return [field.dataType for field in sequence.fields]


def _cast(value: str, data_type: DataType, column: StructField) -> str:
    return value if data_type == column.dataType else f"CAST({value} AS {column.dataType.simpleString()})"


def check_history(given: DataType, begin: StructField, argument: str) -> None:
    """Refuse a sequence of another order than that of the column in which a history keeps it.

    Raises:
        DeltaAnalysisException: The column would cut values, keep others than strings as strings, or has other fields.
    """
    what = f"The target's column {quote(begin.name)} is {_sql(begin.dataType)}, which would"
    otherwise = "Cast them, or give the column their type."
    if _other_fields(given, begin.dataType):
        raise _refused(f"{what} take values of {_sql(given)} in {argument} by position. {otherwise}")
    for part in casts_in(given, begin.dataType, structs_by_name=False):
        if loses_part(part.source, part.target):
            why = f"cut values of {_sql(part.source)} in {argument}, so that different changes had one time"
            raise _refused(f"{what} {why}. {otherwise}")
        if isinstance(part.target, StringType):
            why = f"order values of {_sql(part.source)} in {argument} as strings"
            raise _refused(f"{what} {why}. {otherwise}")


def check_log(given: DataType, logged: DataType, log: str) -> None:
    """Refuse a sequence of another order than that of the events which a log has.

    Raises:
        DeltaAnalysisException: The log would cut values, has strings or would get some, or has other fields.
    """
    if _other_fields(given, logged):
        before, now = (kind.names if isinstance(kind, StructType) else [_sql(kind)] for kind in (logged, given))
        raise _refused(
            f"The change log {log} has events in the order of {', '.join(before)}, not of {', '.join(now)}. Give the "
            "same columns in this order, or another change_log.",
        )
    has, otherwise = f"The change log {log} has the sequence as {_sql(logged)}", "Cast it as before, or give another"
    for part in casts_in(given, logged, structs_by_name=False):
        if _is_string_on_one_side(part.source, part.target):
            raise _refused(f"{has}, which orders values otherwise than {_sql(given)} does. {otherwise} change_log.")
        if loses_part(part.source, part.target) and widened(part.target, part.source) != part.source:
            why = f"which would cut values of {_sql(given)}, so that different changes had one sequence"
            raise _refused(f"{has}, {why}. {otherwise} change_log.")


def _other_fields(given: DataType, kept: DataType) -> bool:
    one, other = (folded(kind.names) if isinstance(kind, StructType) else None for kind in (given, kept))
    return one != other


def _is_string_on_one_side(one: DataType, other: DataType) -> bool:
    return isinstance(one, StringType) != isinstance(other, StringType)


def _sql(data_type: DataType) -> str:
    return data_type.simpleString().upper()


def _refused(why: str) -> DeltaAnalysisException:
    return DeltaAnalysisException("DELTA_ILLEGAL_USAGE", f"{why} Nothing was written.")
