"""A MERGE, UPDATE or DELETE as it is run: the AST, its source as a DataFrame, its expressions as Columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import Column, DataFrame

from deltamerge.spark import columns as F
from deltamerge.sql.merge_ast import ClauseKind, Expression, MergeClause, NameParts
from deltamerge.sql.qualifiers import aliases_of
from deltamerge.sql.tokens import may_end_in_alias

Operation: TypeAlias = Literal["MERGE", "UPDATE", "DELETE"]
"""The statement's name: in the commit, in Spark's UI and in errors."""

# Of sides that have no alias of the user's.
TARGET_ALIAS = "__dm_target"
SOURCE_ALIAS = "__dm_source"

Frames: TypeAlias = "Callable[[], tuple[DataFrame, ...]]"


def to_column(expression: Expression) -> Column:
    if expression.column is not None:
        return expression.column
    sql = expression.sql
    # In a statement no expression has an alias. Brackets keep Spark from taking one, and move the places in its errors.
    return F.expr(f"({sql}\n)" if expression.span is not None and may_end_in_alias(sql) else sql)


@dataclass(frozen=True)
class MergeStatement:
    """A whole statement, before any name in it is looked up.

    An UPDATE or a DELETE is a merge with a source without rows and one WHEN NOT MATCHED BY SOURCE clause.

    Args:
        source_name: The name that may qualify the source's columns, an alias or a table's with its database; no parts
            where the frame has names of its own or none.
        source_sql: The source as SQL for a person to read.
        target_name: The name that may qualify the target's columns; no parts for none.
        skip_unchanged: Whether a row that an UPDATE would leave as it is is not written.
        target_frames: Returns the frames of the target whose columns the expressions may refer to.
        dedupe_by: The source columns whose greatest values make the one row of a key that is merged; none: all are.
    """

    source: DataFrame
    source_name: NameParts
    source_sql: str
    target_name: NameParts
    condition: Expression
    clauses: tuple[MergeClause, ...]
    schema_evolution: bool
    sql: str | None = None
    target_frames: Frames = tuple
    dedupe_by: tuple[str, ...] = ()
    operation: Operation = "MERGE"
    skip_unchanged: bool = False

    @property
    def target_alias(self) -> str | None:
        return aliases_of((self.target_name, self.source_name))[0]

    @property
    def source_alias(self) -> str | None:
        """The alias of the source's frames; None where they have their own or none."""
        return aliases_of((self.target_name, self.source_name))[1]

    def under_source_alias(self, frame: DataFrame) -> DataFrame:
        return frame if self.source_alias is None else frame.alias(self.source_alias)

    @property
    def has_source(self) -> bool:
        return self.operation == "MERGE"

    @property
    def verb(self) -> str:
        return self.operation.lower()

    def of_kind(self, kind: ClauseKind) -> tuple[MergeClause, ...]:
        return tuple(clause for clause in self.clauses if clause.kind == kind)

    @property
    def is_insert_only(self) -> bool:
        return all(clause.kind == "not_matched" for clause in self.clauses)

    @property
    def is_matched_only(self) -> bool:
        return all(clause.kind == "matched" for clause in self.clauses)

    def to_sql(self, target: str) -> str:
        """Return the statement as SQL for a person to read; `target` names the table where there is no SQL yet."""
        if self.sql is not None:
            return self.sql.strip()
        if not self.has_source:
            return self.clauses[0].to_sql()
        evolution = " WITH SCHEMA EVOLUTION" if self.schema_evolution else ""
        lines = [
            f"MERGE{evolution} INTO {target}" + (f" AS {self.target_alias}" if self.target_alias else ""),
            f"USING {self.source_sql}" + (f" AS {self.source_alias}" if self.source_alias else ""),
            f"ON {self.condition.text}",
            *(clause.to_sql() for clause in self.clauses),
        ]
        return "\n".join(lines)
