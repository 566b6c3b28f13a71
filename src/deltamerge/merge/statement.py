"""The parsed statement: a MERGE as frozen data, before any name in it is looked up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark.sql import functions as F

from deltamerge.spark.session import attribute_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ClauseKind: TypeAlias = Literal["matched", "not_matched", "not_matched_by_source"]

KIND_AS_SQL: dict[ClauseKind, str] = {
    "matched": "WHEN MATCHED",
    "not_matched": "WHEN NOT MATCHED",
    "not_matched_by_source": "WHEN NOT MATCHED BY SOURCE",
}


@dataclass(frozen=True)
class Expression:
    """A condition or value, as SQL text or as a Column; Spark alone evaluates it.

    Args:
        text: The SQL as written; of a Column, the form in which it prints.
        column: The Column, where the user gave one.
        start: Where the text begins in `MergeStatement.text`, or None.
        evaluated: The SQL that Spark evaluates, where it is not the text itself.
    """

    text: str
    column: Column | None = None
    start: int | None = None
    evaluated: str | None = None

    @cached_property
    def attribute_names(self) -> list[tuple[str, ...]] | None:
        """The names in a Column of classic Spark; asks the JVM."""
        return None if self.column is None else attribute_names(self.column)

    def to_column(self) -> Column:
        """Return the Column that Spark evaluates."""
        return F.expr(self.evaluated or self.text) if self.column is None else self.column

    @staticmethod
    def of(value: str | Column) -> Expression:
        """Make an expression of what the builder's methods take.

        Args:
            value: SQL text or a Column.

        Returns:
            The expression.

        Raises:
            TypeError: It is neither.
        """
        if isinstance(value, str):
            return Expression(value)
        if type(value).__name__ == "Column":
            return Expression(_printed(value), value)
        raise TypeError(f"expected SQL text or a Column, got {type(value).__name__}")


def _printed(column: Column) -> str:
    printed = str(column)
    if printed.startswith("Column<'") and printed.endswith("'>"):
        return printed[len("Column<'") : -len("'>")]
    return printed


@dataclass(frozen=True)
class Default:
    """The keyword DEFAULT as a value."""


@dataclass(frozen=True)
class Assignment:
    """``target = value``.

    Args:
        target: The name's parts as written: a column, perhaps behind the target's alias, perhaps with fields.
        value: What it is set to.
    """

    target: tuple[str, ...]
    value: Expression | Default


@dataclass(frozen=True)
class Star:
    """``*``: every column by name, except some.

    Args:
        except_columns: Names after EXCEPT, each in parts.
    """

    except_columns: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Update:
    """``UPDATE SET …``."""

    assignments: tuple[Assignment, ...] | Star


@dataclass(frozen=True)
class Insert:
    """``INSERT (…) VALUES (…)``."""

    assignments: tuple[Assignment, ...] | Star


@dataclass(frozen=True)
class Delete:
    """``DELETE``."""


@dataclass(frozen=True)
class DoNothing:
    """``DO NOTHING``: the row stays as it is, and no later clause sees it."""


Action: TypeAlias = Update | Insert | Delete | DoNothing

ACTION_NAMES: dict[type, str] = {
    Update: "update",
    Insert: "insert",
    Delete: "delete",
    DoNothing: "do_nothing",
}


@dataclass(frozen=True)
class MergeClause:
    """One WHEN clause.

    Args:
        kind: Which rows it looks at.
        condition: Its own condition, or None.
        action: What it does with a row.
    """

    kind: ClauseKind
    condition: Expression | None
    action: Action

    @property
    def action_name(self) -> str:
        """The action as one word: ``update``, ``insert``, ``delete`` or ``do_nothing``."""
        return ACTION_NAMES[type(self.action)]

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """What it assigns by name; nothing where it deletes, does nothing or takes a star."""
        if not isinstance(self.action, (Update, Insert)) or isinstance(self.action.assignments, Star):
            return ()
        return self.action.assignments

    @property
    def values(self) -> tuple[Expression, ...]:
        """The values that it assigns by name, but for DEFAULT."""
        return tuple(a.value for a in self.assignments if isinstance(a.value, Expression))

    def to_sql(self) -> str:
        """Return the clause as SQL for a person to read."""
        condition = f" AND {self.condition.text}" if self.condition is not None else ""
        return f"{KIND_AS_SQL[self.kind]}{condition} THEN {_action_sql(self.action)}"


def _action_sql(action: Action) -> str:
    if isinstance(action, Delete):
        return "DELETE"
    if isinstance(action, DoNothing):
        return "DO NOTHING"
    if isinstance(action.assignments, Star):
        excepted = ", ".join(_name_sql(name) for name in action.assignments.except_columns)
        star = f"* EXCEPT ({excepted})" if excepted else "*"
        return f"UPDATE SET {star}" if isinstance(action, Update) else f"INSERT {star}"
    if isinstance(action, Update):
        return "UPDATE SET " + ", ".join(
            f"{_name_sql(a.target)} = {_value_sql(a.value)}" for a in action.assignments
        )
    names = ", ".join(_name_sql(a.target) for a in action.assignments)
    values = ", ".join(_value_sql(a.value) for a in action.assignments)
    return f"INSERT ({names}) VALUES ({values})"


def _name_sql(parts: tuple[str, ...]) -> str:
    return ".".join(
        part if part.isidentifier() and part.isascii() else "`" + part.replace("`", "``") + "`"
        for part in parts
    )


def _value_sql(value: Expression | Default) -> str:
    return "DEFAULT" if isinstance(value, Default) else value.text


@dataclass(frozen=True)
class MergeStatement:
    """A whole MERGE as the user said it.

    Args:
        source: The source's rows.
        source_alias: The name that qualifies the source's columns, or None where the frame has its own or none.
        source_text: The source as SQL for a person to read.
        target_alias: The name that qualifies the target's columns, or None.
        condition: ON.
        clauses: The WHEN clauses, in the order they were said.
        schema_evolution: Whether the target may gain columns.
        text: The statement's SQL where it came as text.
        dedupe_by: The source columns whose greatest values make the one row of a key that is merged; none: all are.
    """

    source: DataFrame
    source_alias: str | None
    source_text: str
    target_alias: str | None
    condition: Expression
    clauses: tuple[MergeClause, ...]
    schema_evolution: bool
    text: str | None = None
    dedupe_by: tuple[str, ...] = ()

    def of_kind(self, kind: ClauseKind) -> tuple[MergeClause, ...]:
        """Return the clauses of one kind in their order."""
        return tuple(clause for clause in self.clauses if clause.kind == kind)

    @property
    def is_insert_only(self) -> bool:
        """Whether there are only NOT MATCHED clauses."""
        return all(clause.kind == "not_matched" for clause in self.clauses)

    @property
    def is_matched_only(self) -> bool:
        """Whether there are only MATCHED clauses."""
        return all(clause.kind == "matched" for clause in self.clauses)

    def to_sql(self, target: str) -> str:
        """Return the statement as SQL for a person to read.

        Args:
            target: The target's name or path, as it is to be shown.
        """
        if self.text is not None:
            return self.text
        evolution = " WITH SCHEMA EVOLUTION" if self.schema_evolution else ""
        lines = [
            f"MERGE{evolution} INTO {target}" + (f" AS {self.target_alias}" if self.target_alias else ""),
            f"USING {self.source_text}" + (f" AS {self.source_alias}" if self.source_alias else ""),
            f"ON {self.condition.text}",
            *(clause.to_sql() for clause in self.clauses),
        ]
        return "\n".join(lines)
