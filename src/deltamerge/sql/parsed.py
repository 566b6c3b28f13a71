"""A MERGE statement as it was written: its parts, verbatim, each with its place in the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from deltamerge.sql.caret import Span

ClauseKind: TypeAlias = Literal["MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"]


@dataclass(frozen=True)
class Fragment:
    """A piece of SQL, verbatim.

    Args:
        text: The piece, without blanks and comments at its ends.
        span: Its place in the statement.
    """

    text: str
    span: Span


@dataclass(frozen=True)
class WrittenName:
    """A name of one or more parts.

    Args:
        parts: The parts as written, without backticks.
        span: Its place in the statement.
    """

    parts: tuple[str, ...]
    span: Span


@dataclass(frozen=True)
class Value:
    """What is assigned to a column.

    Args:
        text: The expression, verbatim.
        span: Its place in the statement.
        is_default: Whether it is the word DEFAULT alone.
    """

    text: str
    span: Span
    is_default: bool


@dataclass(frozen=True)
class Assignment:
    """``column = value``; an alias before the column's name is still there."""

    column: WrittenName
    value: Value


@dataclass(frozen=True)
class Update:
    """``UPDATE SET a = …, b.c = …``."""

    assignments: tuple[Assignment, ...]


@dataclass(frozen=True)
class UpdateStar:
    """``UPDATE SET * [EXCEPT (…)]``."""

    except_columns: tuple[WrittenName, ...] = ()


@dataclass(frozen=True)
class Delete:
    """``DELETE``."""


@dataclass(frozen=True)
class Insert:
    """``INSERT (…) VALUES (…)``; as many values as columns."""

    columns: tuple[WrittenName, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True)
class InsertStar:
    """``INSERT * [EXCEPT (…)]``."""

    except_columns: tuple[WrittenName, ...] = ()


@dataclass(frozen=True)
class DoNothing:
    """``DO NOTHING``."""


Action: TypeAlias = Update | UpdateStar | Delete | Insert | InsertStar | DoNothing


@dataclass(frozen=True)
class ParsedClause:
    """One WHEN clause.

    Args:
        kind: Which rows it is for.
        condition: What stands between AND and THEN, if anything.
        action: What it does.
        span: Its place in the statement.
        position: Its number among all clauses of the statement, from 1.
    """

    kind: ClauseKind
    condition: Fragment | None
    action: Action
    span: Span
    position: int


@dataclass(frozen=True)
class ParsedTarget:
    """The table to merge into.

    Args:
        name: The name's parts, such as ``("db", "tbl")`` or ``("delta", "/a/b")``; of a bare path the path.
        path: The path where the target is one (``delta.`path` ``, ``'path'``, `` `a/b` ``).
        alias: Its alias.
        span: Its place in the statement, without the alias.
    """

    name: tuple[str, ...]
    path: str | None
    alias: str | None
    span: Span


@dataclass(frozen=True)
class ParsedSource:
    """What is merged.

    Args:
        kind: ``name`` (a table, view or CTE), ``path`` (``format.`path` ``), ``query`` (in parentheses) or
            ``relation`` (VALUES or a table-valued function).
        text: What FROM takes, verbatim and without the alias: the name with its time travel, the query with its
            parentheses, the function's call; with ``relation`` also an alias that names columns.
        query: What stands between the parentheses of a query.
        name: The name's parts; empty for queries and relations.
        format: The format before a path, in lower case.
        path: The path.
        version: The version of VERSION AS OF, a number or what the string holds.
        timestamp: The expression of TIMESTAMP AS OF.
        alias: Its alias.
        span: Its place in the statement, without the alias.
    """

    kind: Literal["name", "path", "query", "relation"]
    text: str
    query: Fragment | None
    name: tuple[str, ...]
    format: str | None
    path: str | None
    version: str | None
    timestamp: Fragment | None
    alias: str | None
    span: Span


@dataclass(frozen=True)
class ParsedMerge:
    """A whole statement.

    Args:
        text: The statement, verbatim.
        ctes: The text from WITH to the last CTE's closing parenthesis.
        cte_names: The names of the CTEs.
        with_schema_evolution: Whether it says WITH SCHEMA EVOLUTION.
        target: The target.
        source: The source.
        condition: The ON condition.
        matched: The WHEN MATCHED clauses in their order.
        not_matched: The WHEN NOT MATCHED [BY TARGET] clauses in their order.
        not_matched_by_source: The WHEN NOT MATCHED BY SOURCE clauses in their order.
    """

    text: str
    ctes: Fragment | None
    cte_names: tuple[str, ...]
    with_schema_evolution: bool
    target: ParsedTarget
    source: ParsedSource
    condition: Fragment
    matched: tuple[ParsedClause, ...]
    not_matched: tuple[ParsedClause, ...]
    not_matched_by_source: tuple[ParsedClause, ...]
