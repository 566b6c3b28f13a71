"""The clauses and expressions of a MERGE, an UPDATE or a DELETE, which parser and builder make alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from deltamerge.sql.caret import Span
from deltamerge.sql.names import shown_name

if TYPE_CHECKING:
    from pyspark.sql import Column

ClauseKind: TypeAlias = Literal["matched", "not_matched", "not_matched_by_source"]

KIND_AS_SQL: dict[ClauseKind, str] = {
    "matched": "WHEN MATCHED",
    "not_matched": "WHEN NOT MATCHED",
    "not_matched_by_source": "WHEN NOT MATCHED BY SOURCE",
}

NameParts: TypeAlias = tuple[str, ...]
"""A name's parts as written, without backticks: a column, perhaps after an alias, perhaps with fields."""


@dataclass(frozen=True)
class Expression:
    """A condition or value; only Spark evaluates it.

    Args:
        text: The SQL as written; of a Column, the form in which it prints.
        span: Its place in the statement's SQL, if it was parsed from one.
    """

    text: str
    column: Column | None = None
    span: Span | None = None
    evaluated: str | None = None

    @property
    def sql(self) -> str:
        """The SQL as it is evaluated."""
        return self.evaluated or self.text


@dataclass(frozen=True)
class Default:
    """The keyword DEFAULT as a value."""


@dataclass(frozen=True)
class Assignment:
    """``target = value``."""

    target: NameParts
    value: Expression | Default


@dataclass(frozen=True)
class Star:
    """``*``: every column by name, except some."""

    except_columns: tuple[NameParts, ...] = ()


@dataclass(frozen=True)
class Update:
    """``UPDATE SET …``."""

    assignments: tuple[Assignment, ...] | Star


@dataclass(frozen=True)
class Insert:
    """``INSERT (…) VALUES (…)`` or ``INSERT *``."""

    assignments: tuple[Assignment, ...] | Star


@dataclass(frozen=True)
class Delete:
    """``DELETE``."""


@dataclass(frozen=True)
class DoNothing:
    """``DO NOTHING``: the row stays as it is, and no later clause sees it."""


@dataclass(frozen=True)
class SkipUnchanged:
    """The rows that the UPDATE after it would leave as they are stay; they are counted."""


Action: TypeAlias = Update | Insert | Delete | DoNothing | SkipUnchanged

_ACTION_NAMES: dict[type, str] = {
    Update: "update",
    Insert: "insert",
    Delete: "delete",
    DoNothing: "do_nothing",
    SkipUnchanged: "skip_unchanged",
}


@dataclass(frozen=True)
class MergeClause:
    """One WHEN clause, or a whole UPDATE or DELETE.

    Args:
        span: Its place in the statement's SQL, if it was parsed from one.
        statement_on: The table of an UPDATE or DELETE, for a person to read; None in a MERGE.
    """

    kind: ClauseKind
    condition: Expression | None
    action: Action
    span: Span | None = None
    statement_on: str | None = None

    @property
    def action_name(self) -> str:
        """The action as one word: ``update``, ``insert``, ``delete``, ``do_nothing`` or ``skip_unchanged``."""
        return _ACTION_NAMES[type(self.action)]

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """The assignments by name; none for a star, DELETE and DO NOTHING."""
        if not isinstance(self.action, (Update, Insert)) or isinstance(self.action.assignments, Star):
            return ()
        return self.action.assignments

    @property
    def values(self) -> tuple[Expression, ...]:
        """The assigned values, but for DEFAULT."""
        return tuple(a.value for a in self.assignments if isinstance(a.value, Expression))

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The condition and the assigned values, but for DEFAULT."""
        return (() if self.condition is None else (self.condition,)) + self.values

    def rewritten(
        self,
        expression: Callable[[Expression], Expression],
        target: Callable[[NameParts], NameParts] = tuple,
    ) -> MergeClause:
        """Return the clause with each expression and each name of a target column replaced by a function of it."""
        action = self.action
        if isinstance(action, (Update, Insert)):
            assignments: tuple[Assignment, ...] | Star
            if isinstance(action.assignments, Star):
                assignments = Star(tuple(map(target, action.assignments.except_columns)))
            else:
                assignments = tuple(
                    Assignment(target(a.target), a.value if isinstance(a.value, Default) else expression(a.value))
                    for a in action.assignments
                )
            action = replace(action, assignments=assignments)
        condition = None if self.condition is None else expression(self.condition)
        return replace(self, condition=condition, action=action)

    def to_sql(self) -> str:
        """Return the clause as SQL for a person to read."""
        if self.statement_on is not None:
            return self._statement_sql(self.statement_on)
        condition = f" AND {self.condition.text}" if self.condition is not None else ""
        return f"{KIND_AS_SQL[self.kind]}{condition} THEN {_action_sql(self.action)}"

    def _statement_sql(self, table: str) -> str:
        where = f" WHERE {self.condition.text}" if self.condition is not None else ""
        if isinstance(self.action, Delete):
            return f"DELETE FROM {table}{where}"
        return f"UPDATE {table}{_action_sql(self.action).removeprefix('UPDATE')}{where}"


def _action_sql(action: Action) -> str:
    if isinstance(action, Delete):
        return "DELETE"
    if isinstance(action, (DoNothing, SkipUnchanged)):
        return "DO NOTHING"
    if isinstance(action.assignments, Star):
        excepted = ", ".join(shown_name(name) for name in action.assignments.except_columns)
        star = f"* EXCEPT ({excepted})" if excepted else "*"
        return f"UPDATE SET {star}" if isinstance(action, Update) else f"INSERT {star}"
    names = [shown_name(a.target) for a in action.assignments]
    values = ["DEFAULT" if isinstance(a.value, Default) else a.value.text for a in action.assignments]
    if isinstance(action, Update):
        pairs = zip(names, values, strict=True)
        return "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in pairs)
    return f"INSERT ({', '.join(names)}) VALUES ({', '.join(values)})"
