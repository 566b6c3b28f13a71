"""A random merge as frozen data: what the shrinker takes apart and what becomes a case of the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from corpus.cases import Case
from corpus.sql import quote

from .kinds import Kind, Scalar
from .plans import AUTO

Side: TypeAlias = Literal["t", "s"]
Pairs: TypeAlias = "tuple[tuple[str, str], ...]"
Row: TypeAlias = "tuple[str, ...]"

WHEN = {
    "matched": "WHEN MATCHED",
    "not_matched": "WHEN NOT MATCHED",
    "not_matched_by_source": "WHEN NOT MATCHED BY SOURCE",
}


@dataclass(frozen=True)
class Expr:
    """An SQL expression.

    Args:
        text: Its text.
        columns: The columns that it names, each with its side.
    """

    text: str
    columns: frozenset[tuple[Side, str]] = frozenset()


@dataclass(frozen=True)
class Column:
    """A column of the table or the source.

    Args:
        name: Its name.
        kind: Its type.
        options: What follows the type in CREATE TABLE.
    """

    name: str
    kind: Kind
    options: str = ""

    @property
    def ddl(self) -> str:
        """Gives the column as DDL."""
        return f"{quote(self.name)} {self.kind.sql}{' ' if self.options else ''}{self.options}"

    @property
    def is_scalar(self) -> bool:
        """Whether its type has no parts."""
        return isinstance(self.kind, Scalar)

    @property
    def is_generated(self) -> bool:
        """Whether the table computes or numbers it."""
        return "GENERATED" in self.options

    @property
    def is_identity(self) -> bool:
        """Whether the table numbers it."""
        return "AS IDENTITY" in self.options


@dataclass(frozen=True)
class RandomTable:
    """The target.

    Args:
        columns: Its columns.
        writes: Rows by write; each write is a file a partition. Values stand for the columns that are written.
        partition_by: Names of its partition columns.
        properties: Its properties.
        constraints: Its CHECK constraints: name and condition.
        constraint_columns: The column that each constraint is about.
        clustered_by: Names of the columns by which it is clustered.
        deleted: The condition of the rows that are deleted before the merge; None for no such deletion.
        made_by: ``deltamerge`` or ``delta-spark``.
    """

    columns: tuple[Column, ...]
    writes: tuple[tuple[Row, ...], ...]
    partition_by: tuple[str, ...] = ()
    properties: Pairs = ()
    constraints: Pairs = ()
    constraint_columns: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    deleted: str | None = None
    made_by: str = "deltamerge"

    @property
    def deleted_by(self) -> tuple[str, ...]:
        """Gives the columns that the condition of the deleted rows names."""
        return () if self.deleted is None else ("id",)

    @property
    def written(self) -> tuple[Column, ...]:
        """Gives the columns that INSERTs name."""
        return tuple(c for c in self.columns if not c.is_generated)


@dataclass(frozen=True)
class RandomSource:
    """The source.

    Args:
        columns: Its columns.
        rows: Its rows.
        format: None for a view, else how its files are written.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    format: str | None = None


@dataclass(frozen=True)
class Clause:
    """A WHEN clause.

    Args:
        kind: As in WHEN.
        action: ``update``, ``update_all``, ``delete``, ``insert`` or ``insert_all``.
        condition: Its condition.
        assignments: Paths of columns and fields with their values.
    """

    kind: str
    action: str
    condition: Expr | None = None
    assignments: tuple[tuple[tuple[str, ...], Expr], ...] = ()

    def sql(self) -> str:
        """Gives the clause as SQL."""
        condition = f" AND {self.condition.text}" if self.condition else ""
        return f"{WHEN[self.kind]}{condition} THEN {self._action()}"

    def _action(self) -> str:
        if self.action == "delete":
            return "DELETE"
        if self.action.endswith("_all"):
            return "UPDATE SET *" if self.action == "update_all" else "INSERT *"
        names = [".".join(quote(part) for part in path) for path, _ in self.assignments]
        values = [value.text for _, value in self.assignments]
        if self.action == "update":
            return "UPDATE SET " + ", ".join(f"{n} = {v}" for n, v in zip(names, values, strict=True))
        return f"INSERT ({', '.join(names)}) VALUES ({', '.join(values)})"

    def uses(self, side: Side, column: str) -> bool:
        """Tells whether the clause names a column."""
        named = [value.columns for _, value in self.assignments]
        named += [self.condition.columns] if self.condition else []
        return any((side, column) in columns for columns in named)


@dataclass(frozen=True)
class RandomMerge:
    """A merge with its table and source.

    Args:
        seed: What it was made from.
        table: The target.
        source: The source.
        on: ON's conjuncts.
        clauses: The clauses.
        evolution: Whether it says WITH SCHEMA EVOLUTION.
        conf: Session settings.
        plan: One of `PLANS`.
    """

    seed: int
    table: RandomTable
    source: RandomSource
    on: tuple[Expr, ...]
    clauses: tuple[Clause, ...]
    evolution: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    plan: str = AUTO

    def statement(self) -> str:
        """Gives the statement with places for target and source."""
        evolution = " WITH SCHEMA EVOLUTION" if self.evolution else ""
        return "\n".join(
            [
                f"MERGE{evolution} INTO {{target}} AS t",
                "USING {source} AS s",
                f"ON {' AND '.join(part.text for part in self.on)}",
                *(clause.sql() for clause in self.clauses),
            ]
        )

    def target(self) -> dict[str, Any]:
        """Gives what makes the table, in the words of the cases."""
        table = self.table
        values: dict[str, Any] = {
            "ddl": ", ".join(c.ddl for c in table.columns),
            "writes": [[f"({', '.join(row)})" for row in rows] for rows in table.writes],
        }
        if table.partition_by:
            values["partition_by"] = list(table.partition_by)
        if table.clustered_by:
            values["cluster_by"] = list(table.clustered_by)
        if table.deleted is not None:
            values["setup_sql"] = [f"DELETE FROM {{target}} WHERE {table.deleted}"]
        if table.properties:
            values["properties"] = dict(table.properties)
        if table.constraints:
            values["constraints"] = dict(table.constraints)
        if len(table.written) < len(table.columns):
            values["columns"] = ", ".join(quote(c.name) for c in table.written)
        return values

    def case(self) -> Case:
        """Gives the merge as a case of the corpus."""
        source: dict[str, Any] = {
            "ddl": ", ".join(c.ddl for c in self.source.columns),
            "rows": [f"({', '.join(row)})" for row in self.source.rows],
        }
        if self.source.format:
            source["format"] = self.source.format
        values = {
            "id": str(self.seed),
            "target": self.target(),
            "source": source,
            "conf": dict(self.conf),
            "merge": self.statement(),
        }
        return Case("random", str(self.seed), values)

    def show(self) -> str:
        """Gives everything for a person to read."""
        table, case = self.table, self.case()
        lines = [f"-- seed {self.seed}; table made by {table.made_by}, merged by {self.plan}"]
        lines.append(f"CREATE TABLE target ({case.target['ddl']})")
        lines += [f"  PARTITIONED BY ({', '.join(table.partition_by)})"] if table.partition_by else []
        lines += [f"  CLUSTER BY ({', '.join(table.clustered_by)})"] if table.clustered_by else []
        lines += [f"  '{key}' = '{value}'" for key, value in table.properties]
        lines += [f"  CONSTRAINT {name} CHECK ({condition})" for name, condition in table.constraints]
        lines += [f"INSERT: {', '.join(rows)}" for rows in case.target["writes"]]
        lines += [] if table.deleted is None else [f"DELETE FROM target WHERE {table.deleted}"]
        kind = self.source.format or "view"
        lines.append(f"source, a {kind}: ({', '.join(c.ddl for c in self.source.columns)})")
        lines.append(f"  {', '.join(case.values['source']['rows'])}")
        lines += [f"SET {key} = {value}" for key, value in self.conf.items()]
        lines.append(self.statement())
        return "\n".join(lines)
