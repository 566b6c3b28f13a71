"""skip_unchanged: before each UPDATE a clause that takes the rows which it would leave as they are.

The clause is like DO NOTHING, so that no later clause sees these rows. What cannot be compared for certain counts as
changed: maps and VARIANT, values that are not deterministic, subqueries, defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TypeAlias

from pyspark.sql import Column, SparkSession
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    VariantType,
)

from deltamerge.merge.analysis.resolved_merge import (
    Output,
    ResolvedClause,
    ResolvedMerge,
    SetFields,
    SideColumns,
    TakeGenerated,
    TakeSource,
    TakeTarget,
    TakeValue,
    assigned,
    target_value,
    values_of,
)
from deltamerge.merge.analysis.spark_analysis import Sides, is_deterministic, sides_of
from deltamerge.merge.statement import to_column
from deltamerge.spark import columns as F
from deltamerge.spark.nested_types import all_types, contains, exact_json
from deltamerge.sql.conditions import contains_subquery
from deltamerge.sql.merge_ast import Expression, MergeClause, SkipUnchanged
from deltamerge.sql.names import quote
from deltamerge.workers.row_pairs import SKIPPED

_Same: TypeAlias = "str | Column"


def skipping_unchanged(spark: SparkSession, merge: ResolvedMerge) -> ResolvedMerge:
    sides = sides_of(spark, merge.statement, merge.target_schema, merge.target_alias)
    clauses: list[ResolvedClause] = []
    for clause in merge.clauses:
        skipped = _Unchanged(merge, clause, sides).clause() if clause.action == "update" else None
        clauses += [clause] if skipped is None else [skipped, clause]
    return replace(merge, clauses=tuple(clauses))


@dataclass(frozen=True)
class _Unchanged:
    merge: ResolvedMerge
    update: ResolvedClause
    sides: Sides

    def clause(self) -> ResolvedClause | None:
        """Return the clause that takes rows without a change; None where every row counts as changed."""
        own = [
            (index, o) for index, o in enumerate(self.update.outputs) if not isinstance(o, (TakeTarget, TakeGenerated))
        ]
        same: list[_Same] = []
        for index, output in own:
            found = self._same(index, output)
            if found is None:
                return None
            same.append(found)
        condition = self._with_its_condition(same)
        frames = {"matched": self.sides.source, "not_matched_by_source": self.sides.other}
        if not is_deterministic(frames[self.update.kind], self.sides.target, to_column(condition)):
            return None
        clause = MergeClause(self.update.kind, condition, SkipUnchanged())
        return ResolvedClause(clause, SKIPPED + self.update.number)

    def _with_its_condition(self, same: list[_Same]) -> Expression:
        own = self.update.clause.condition
        if all(isinstance(each, str) for each in same) and (own is None or own.column is None):
            parts = [] if own is None else [f"({own.sql}\n)"]
            return Expression(" AND ".join([*parts, *map(str, same)]) or "true")
        columns = list(map(F.as_column, same))
        both = reduce(and_, columns if own is None else [to_column(own), *columns])
        return Expression(str(both), column=both)

    def _same(self, index: int, output: Output) -> _Same | None:
        """Return what holds where an output column keeps its value; None where that is not to be known."""
        field = self.merge.output_schema.fields[index]
        if not _is_comparable(field.dataType):
            return None
        values = [self.update.clause.values[value] for value in values_of(output)]
        if any(contains_subquery(value.text) for value in values):
            return None
        is_new = index >= len(self.merge.target_schema.fields)
        plain = None if is_new else self._plain_value(index, output)
        if plain is not None and _is_compared_as_is(field.dataType):
            return f"({plain}\n) <=> {self._target_sql(index)}"
        value = self._value(index, output)
        if value is None:
            return None
        return value.isNull() if is_new else _equal(value, self._own(index), field.dataType)

    def _plain_value(self, index: int, output: Output) -> str | None:
        """Return SQL of a value that already has the column's type; None for any other."""
        wanted = self.merge.output_schema.fields[index].dataType
        if wanted != self.merge.target_schema.fields[index].dataType:
            return None
        if isinstance(output, TakeSource) and self.merge.source_schema.fields[output.index].dataType == wanted:
            return self._source_sql(output.index)
        if isinstance(output, TakeValue) and self.update.value_types[output.index] == wanted:
            value = self.update.clause.values[output.index]
            return None if value.column is not None else value.sql
        return None

    def _value(self, index: int, output: Output) -> Column | None:
        """Return what an output column gets, in its type, over the users' names."""
        if not isinstance(output, (TakeSource, TakeValue, SetFields)):
            return None
        source = self._source_column(output.index) if isinstance(output, TakeSource) else F.lit(None)
        if source is None:
            return None
        columns = SideColumns(self._own, lambda _: source, self.update.values.__getitem__)
        return assigned(self.merge, self.update, index, columns)

    def _own(self, index: int) -> Column:
        return target_value(self.merge, index, lambda: F.expr(self._target_sql(index)))

    def _target_sql(self, index: int) -> str:
        return f"{quote(self.merge.target_alias)}.{quote(self.merge.target_schema.names[index])}"

    def _source_sql(self, index: int) -> str | None:
        """Return a source column's name as both sides' rows know it; None where only the user's frame does."""
        merge, name = self.merge, self.merge.source_schema.names[index]
        if merge.source_alias is not None:
            return f"{quote(merge.source_alias)}.{quote(name)}"
        is_of_target = name.lower() in (other.lower() for other in merge.target_schema.names)
        return None if is_of_target else quote(name)

    def _source_column(self, index: int) -> Column | None:
        sql, name = self._source_sql(index), self.merge.source_schema.names[index]
        if sql is not None:
            return F.expr(sql)
        names = [other.lower() for other in self.merge.source_schema.names]
        return self.merge.statement.source[quote(name)] if names.count(name.lower()) == 1 else None


def _is_comparable(data_type: DataType) -> bool:
    """Return whether equal values of a type are certainly the same value."""
    if contains(data_type, (MapType, VariantType)):
        return False
    # An equal string of a collation may be another one.
    inner = [each for each in all_types(data_type) if each is not data_type]
    return all(each == StringType() for each in inner if isinstance(each, StringType))


def _is_compared_as_is(data_type: DataType) -> bool:
    is_binary = not isinstance(data_type, StringType) or data_type == StringType()
    return is_binary and not contains(data_type, (DoubleType, FloatType))


def _equal(value: Column, own: Column, data_type: DataType) -> Column:
    """Return whether two values are the same, also where a comparison takes no notice of what differs."""
    if isinstance(data_type, StringType) and data_type != StringType():
        value, own = F.encode(value, "UTF-8"), F.encode(own, "UTF-8")
    elif isinstance(data_type, (DoubleType, FloatType)):
        # 0.0 equals -0.0.
        value, own = value.cast("string"), own.cast("string")
    elif contains(data_type, (DoubleType, FloatType)):
        same = value.eqNullSafe(own)
        value, own = (exact_json(each, data_type) for each in (value, own))
        return same & value.eqNullSafe(own)
    return value.eqNullSafe(own)
