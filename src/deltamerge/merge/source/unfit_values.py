"""Which source row has the value that a merge could not cast: Spark's error names neither its column nor its row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql.types import AtomicType, DataType, LongType, StringType

from deltamerge.exceptions import UnfitValueException
from deltamerge.merge.analysis.column_references import MergeReferences
from deltamerge.merge.analysis.join_keys import INTEGERS, join_keys, names_of_keys
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge, TakeSource, TakeValue
from deltamerge.spark import columns as F
from deltamerge.spark.session import SPARK_ERRORS
from deltamerge.sql.names import quote, quote_name
from deltamerge.write.store_assignment import first_lossy, sql_type

_CONDITION = "CAST_INVALID_INPUT"
_VALUE = re.compile(rf"\[{_CONDITION}[^\]]*\] The value '(.*?)' of the type \"STRING\" cannot be cast", re.DOTALL)


@dataclass(frozen=True)
class _Cast:
    """A cast of a source's value that the merge needs.

    Args:
        column: The target's column.
        is_key: Whether it is compared with that column, else assigned to it.
    """

    value: Column
    sql: str
    column: str
    wanted: DataType
    is_key: bool


def unfit_value_in(error: Exception, merge: ResolvedMerge, references: MergeReferences) -> UnfitValueException | None:
    """Look in the source for the row that made a merge fail with CAST_INVALID_INPUT; None where there is none.

    Its rows are read once more, up to the one at fault.
    """
    if _CONDITION not in str(error) or not merge.statement.has_source:
        return None
    casts = list(_casts(merge, references))
    if not casts:
        return None
    told = _VALUE.search(str(error))
    frame = merge.statement.under_source_alias(merge.statement.source)
    unfit = [_is_unfit(cast, None if told is None else told[1]) for cast in casts]
    which = F.coalesce(*(F.when(found, F.lit(index)) for index, found in enumerate(unfit)))
    on = references.on.equi_keys
    keys = [F.expr(k.source_sql).cast("string").alias(name) for k, name in zip(on, names_of_keys(on), strict=True)]
    shown = F.array(*(cast.value.cast("string") for cast in casts))
    try:
        row = frame.where(reduce(or_, unfit)).select(which, F.get(shown, which), F.to_json(F.struct(*keys))).first()
    except SPARK_ERRORS:
        # The source itself cannot be computed, which is what the first error says.
        return None
    return None if row is None else _error(casts[row[0]], row[1], row[2] if keys else None)


def _casts(merge: ResolvedMerge, references: MergeReferences) -> Iterator[_Cast]:
    for key in join_keys(merge, references.on).keys:
        if isinstance(key.given, StringType) and isinstance(key.wanted, AtomicType):
            # Spark compares a string with a whole number as a BIGINT.
            wanted = LongType() if isinstance(key.wanted, INTEGERS) else key.wanted
            if not isinstance(wanted, StringType):
                column = quote_name(key.key.target.path)
                yield _Cast(F.expr(key.key.source_sql), key.key.source_sql, column, wanted, is_key=True)
    for clause in merge.clauses:
        for index, output in enumerate(clause.outputs):
            field = merge.output_schema.fields[index]
            if isinstance(output, TakeSource):
                given = merge.source_schema.fields[output.index]
                value, sql, kind = F.col(quote(given.name)), quote(given.name), given.dataType
            elif isinstance(output, TakeValue) and references.of(clause).from_source[index]:
                value, kind = clause.values[output.index], clause.value_types[output.index]
                sql = clause.clause.values[output.index].text
            else:
                continue
            is_plain = isinstance(kind, StringType) and isinstance(field.dataType, AtomicType)
            if is_plain and first_lossy(kind, field.dataType) is not None:
                yield _Cast(value, sql, quote(field.name), field.dataType, is_key=False)


def _is_unfit(cast: _Cast, told: str | None) -> Column:
    unfit = cast.value.isNotNull() & cast.value.try_cast(cast.wanted).isNull()
    return F.coalesce(unfit if told is None else unfit & (cast.value == F.lit(told)), F.lit(False))


def _error(cast: _Cast, value: str, keys: str | None) -> UnfitValueException:
    wanted = sql_type(cast.wanted)
    row = "" if keys is None or cast.is_key else f" in the source row with the key {keys}"
    use = "it is compared with the target's key" if cast.is_key else "it is assigned to the target's column"
    return UnfitValueException(
        _CONDITION,
        f"The STRING value '{value}' of the source's {cast.sql}{row} cannot be cast to {wanted}: {use} {cast.column}. "
        "Nothing was changed. Correct the value, or leave the row out by a filter such as "
        f"try_cast({cast.sql} AS {wanted}) IS NOT NULL; `upsert` with `quarantine` merges the other rows and writes "
        "such ones to a table of their own.",
        parameters={"expression": f"'{value}'", "sourceType": '"STRING"', "targetType": f'"{wanted}"'},
    )
