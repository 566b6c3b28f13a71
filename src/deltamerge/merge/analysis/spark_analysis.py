"""Spark resolves the expressions of a merge, each clause family on what it may see; no job runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_
from typing import Any, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.analysis.analysis_errors import analysis_error, is_of_types, own_error
from deltamerge.merge.analysis.column_references import expression_tree
from deltamerge.merge.statement import MergeStatement, to_column
from deltamerge.spark import columns as F
from deltamerge.spark.column_nodes import is_built_on_subquery
from deltamerge.spark.column_trees import proto_contains_star
from deltamerge.spark.session import empty_frame
from deltamerge.sql.conditions import contains_star, contains_subquery, tree_contains_subquery
from deltamerge.sql.merge_ast import ClauseKind, Expression, MergeClause

# Makes a frame that Spark can only make where conditions are sound.
_Attempt: TypeAlias = "Callable[[list[Column]], Callable[[], DataFrame]]"


@dataclass(frozen=True)
class Sides:
    """Frames with both sides' columns, for Spark to resolve names on; each is made once it is needed."""

    spark: SparkSession
    statement: MergeStatement
    target: DataFrame
    target_schema: StructType
    source_schema: StructType

    @cached_property
    def source(self) -> DataFrame:
        """The source as ON sees it."""
        return self.statement.under_source_alias(self.statement.source)

    @cached_property
    def source_only(self) -> DataFrame:
        """The source as INSERT clauses see it: by name or by the alias, by no other qualifier."""
        return self.statement.under_source_alias(self.statement.source.toDF(*self.source_schema.names))

    @cached_property
    def other(self) -> DataFrame:
        """A side without columns, for a condition that sees one side alone."""
        return empty_frame(self.spark, StructType())


def sides_of(spark: SparkSession, statement: MergeStatement, target_schema: StructType, target_alias: str) -> Sides:
    target = empty_frame(spark, target_schema).alias(target_alias)
    return Sides(spark, statement, target, target_schema, statement.source.schema)


@dataclass(frozen=True)
class Analysis:
    statement: MergeStatement
    sides: Sides
    double_quoted_identifiers: bool

    def check_conditions(self) -> DeltaAnalysisException | None:
        """Have Spark resolve ON and the conditions of all clauses.

        Returns:
            What is wrong with the types of the first condition whose names are all known. Delta finds it only after
            the schema has evolved (CheckAnalysis comes after ResolveDeltaMergeInto).
        """
        mistyped = []
        if self.statement.has_source:
            on = self._check_condition(
                self.statement.condition, "ON", self._on_join, "search condition of MERGE operation"
            )
            mistyped.append(on)
        attempts: list[tuple[ClauseKind, _Attempt]] = [
            ("matched", self._on_join),
            ("not_matched", self._on_source),
            ("not_matched_by_source", self._on_target),
        ]
        for kind, attempt in attempts:
            conditions = [(c.condition, c) for c in self.statement.of_kind(kind) if c.condition is not None]
            if not conditions:
                continue
            try:
                analyse(attempt([to_column(condition) for condition, _ in conditions]))
            except PySparkException:
                mistyped += [
                    self._check_condition(condition, clause.to_sql(), attempt, self._condition_of(clause))
                    for condition, clause in conditions
                ]
                if not any(mistyped):
                    raise
            for condition, clause in conditions:
                self._refuse_subquery(condition, clause.to_sql(), self._condition_of(clause))
        return next((error for error in mistyped if error is not None), None)

    def _check_condition(
        self, condition: Expression, where: str, attempt: _Attempt, operation: str
    ) -> DeltaAnalysisException | None:
        self._refuse_subquery(condition, where, operation)
        try:
            analyse(attempt([to_column(condition)]))
        except PySparkException as error:
            worded = self._worded(error, condition, where, operation)
            if not is_of_types(worded):
                raise worded from None
            return worded
        return None

    def _refuse_star(self, expression: Expression, where: str) -> None:
        if _contains_star(expression):
            raise DeltaAnalysisException(
                "DELTA_MERGE_UNRESOLVED_EXPRESSION",
                f"Cannot resolve the star in {expression.text}: inside an expression columns must be named. "
                f"Compute the value in the source instead. In: {where}",
                parameters={"sqlExpr": expression.text, "clause": where},
            )

    def _refuse_subquery(self, condition: Expression, where: str, operation: str) -> None:
        self._refuse_star(condition, where)
        if holds_subquery(condition, double_quoted_identifiers=self.double_quoted_identifiers):
            raise DeltaAnalysisException(
                "DELTA_UNSUPPORTED_SUBQUERY",
                f"Subqueries are not supported in the condition of {self._statement}: {condition.text}. "
                f"{'Join' if self.statement.has_source else 'Merge, and join'} what it looks up to the source instead. "
                f"In: {where}",
                parameters={"operation": operation, "cond": condition.text},
            )

    def _condition_of(self, clause: MergeClause) -> str:
        """Return Delta's words for a clause's condition, which errors have as the parameter ``operation``."""
        if not self.statement.has_source:
            return self.statement.operation
        return f"{clause.action_name.replace('_', ' ').upper()} condition of MERGE operation"

    @property
    def _statement(self) -> str:
        return "an UPDATE" if self.statement.operation == "UPDATE" else f"a {self.statement.operation}"

    def _on_join(self, conditions: list[Column]) -> Callable[[], DataFrame]:
        # A join condition must be deterministic and boolean, so Spark refuses what MERGE refuses.
        return lambda: self.sides.source.join(self.sides.target, reduce(and_, conditions), "inner")

    def _on_source(self, conditions: list[Column]) -> Callable[[], DataFrame]:
        return lambda: self.sides.source_only.join(self.sides.other, reduce(and_, conditions), "inner")

    def _on_target(self, conditions: list[Column]) -> Callable[[], DataFrame]:
        both = reduce(and_, conditions)
        if self.statement.has_source:
            return lambda: self.sides.target.join(self.sides.other, both, "inner")
        return lambda: self.sides.target.where(both).join(self.sides.other, both, "inner")

    def typed_values(self, kind: ClauseKind) -> list[list[DataType]]:
        """Return, for each clause of a kind, the types of the values that it assigns, but for DEFAULT."""
        clauses = self.statement.of_kind(kind)
        expressions = [(clause, value) for clause in clauses for value in clause.values]
        for clause, value in expressions:
            self._refuse_star(value, clause.to_sql())
        columns = [to_column(value).alias(f"v{i}") for i, (_, value) in enumerate(expressions)]
        if not columns:
            return [[] for _ in clauses]
        frame = {
            "matched": lambda: self.sides.source.join(self.sides.target, F.lit(True), "inner"),
            "not_matched": lambda: self.sides.source_only,
            "not_matched_by_source": lambda: self.sides.target,
        }[kind]()
        try:
            schema = _in_filter(frame, columns).schema
        except PySparkException:
            for (clause, value), column in zip(expressions, columns, strict=True):
                self._check_value(clause, value, frame, column)
            raise
        types = iter(field.dataType for field in schema.fields)
        return [[next(types) for _ in clause.values] for clause in clauses]

    def _check_value(self, clause: MergeClause, value: Expression, frame: DataFrame, column: Column) -> None:
        try:
            analyse(lambda: _in_filter(frame, [column]))
        except PySparkException as error:
            raise self._worded(error, value, clause.to_sql(), None) from None

    def _worded(
        self, error: PySparkException, expression: Expression, where: str, operation: str | None
    ) -> DeltaAnalysisException:
        if not self.statement.has_source:
            return own_error(error, where)
        return analysis_error(error, expression, where, self.statement.sql, operation)


def _in_filter(frame: DataFrame, values: list[Column]) -> DataFrame:
    """Return a frame of values which Spark only makes where they are of one row each.

    A projection takes aggregates, window functions and generators, a filter does not; conditions of joins take no
    non-deterministic values, which MERGE does.
    """
    return frame.where(reduce(and_, (value.isNull() for value in values))).select(*values)


def analyse(frame: Callable[[], DataFrame]) -> None:
    """Have Spark resolve a frame, which raises a PySparkException where it cannot."""
    # Classic Spark resolves as the frame is made, Connect when its schema is asked for.
    _ = frame().schema


def is_deterministic(left: DataFrame, right: DataFrame, condition: Column) -> bool:
    """Return whether Spark takes a condition as that of a join, which must be deterministic."""
    try:
        analyse(lambda: left.join(right, condition, "inner"))
    except PySparkException:
        return False
    return True


def _contains_star(expression: Expression) -> bool:
    column: Any = expression.column
    if type(column).__module__.startswith("pyspark.sql.connect"):
        return proto_contains_star(column.to_plan(None))
    return contains_star(expression.text)


def holds_subqueries(statement: MergeStatement, double_quoted_identifiers: bool) -> bool:
    """Return whether values have subqueries; conditions must not."""
    values = (value for clause in statement.clauses for value in clause.expressions)
    return any(holds_subquery(value, double_quoted_identifiers=double_quoted_identifiers) for value in values)


def holds_subquery(expression: Expression, *, double_quoted_identifiers: bool) -> bool:
    if expression.column is None:
        return contains_subquery(expression.text)
    if is_built_on_subquery(expression.column):
        return True
    return tree_contains_subquery(expression_tree(expression, double_quoted_identifiers))
