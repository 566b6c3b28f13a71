"""The ASTs of statements; all SQL in them is verbatim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from deltamerge.sql.merge_ast import Assignment, Expression, MergeClause, NameParts
from deltamerge.sql.names import names_path


@dataclass(frozen=True)
class TableName:
    """A table as a statement names it.

    Args:
        path: The path where it is one: ``delta.`path` ``, ``'path'``, `` `a/b` ``.
    """

    parts: NameParts
    path: str | None = None

    @staticmethod
    def of(parts: NameParts) -> TableName:
        return TableName(parts, parts[1] if names_path(parts) else None)


class Statement:
    """A statement, as its parser reads it."""


@dataclass(frozen=True)
class OfTable(Statement):
    """A statement about a table, which it names."""

    table: TableName


class Alteration:
    """What ALTER TABLE does."""


@dataclass(frozen=True)
class TimeTravel:
    """VERSION AS OF, or the expression of TIMESTAMP AS OF."""

    version: int | None = None
    timestamp: str | None = None


@dataclass(frozen=True)
class ParsedSource:
    """What is merged.

    Args:
        sql: What FROM takes, verbatim and without the alias: the name with its time travel, the query with its
            parentheses; VALUES or the function's call with an alias that names columns.
        name: The name's parts; none for queries, VALUES and functions.
    """

    sql: str
    alias: str | None
    name: NameParts = ()
    format: str | None = None
    path: str | None = None
    at: TimeTravel | None = None


@dataclass(frozen=True)
class ParsedMerge(Statement):
    """A MERGE, or the EXPLAIN of one.

    Args:
        sql: The statement, verbatim; the spans are places in it.
        explain: ``plan`` for EXPLAIN MERGE, ``analyze`` for EXPLAIN ANALYZE MERGE, None for a merge that is to run.
        ctes: The SQL from WITH to the last CTE's closing parenthesis.
    """

    sql: str
    explain: Literal["plan", "analyze"] | None
    ctes: str | None
    schema_evolution: bool
    target: TableName
    target_alias: str | None
    source: ParsedSource
    condition: Expression
    clauses: tuple[MergeClause, ...]


@dataclass(frozen=True)
class DeleteRows(OfTable):
    """``DELETE FROM table [alias] [WHERE …]``."""

    alias: str | None
    condition: Expression | None


@dataclass(frozen=True)
class UpdateRows(OfTable):
    """``UPDATE table [alias] SET … [WHERE …]``."""

    alias: str | None
    assignments: tuple[Assignment, ...]
    condition: Expression | None


@dataclass(frozen=True)
class InsertRows(OfTable):
    """``INSERT [WITH SCHEMA EVOLUTION] INTO`` or ``OVERWRITE``.

    Args:
        columns: The columns that are named; none where the query's are the table's, in their order.
        partition: Partition columns with their values as SQL, None for a dynamic one.
        if_not_exists: Whether partitions that are there are to stay, which Delta tables do not support.
    """

    overwrites: bool
    query: str
    columns: tuple[NameParts, ...] = ()
    by_name: bool = False
    partition: tuple[tuple[str, str | None], ...] = ()
    replace_where: Expression | None = None
    schema_evolution: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class TruncateTable(OfTable):
    """``TRUNCATE TABLE table [PARTITION (…)]``.

    Args:
        of_partition: Whether a partition is named, which Delta tables do not support.
    """

    of_partition: bool = False


@dataclass(frozen=True)
class Optimize(OfTable):
    """``OPTIMIZE table [FULL] [WHERE …] [ZORDER BY (…)]``."""

    where: str | None
    order_by: tuple[NameParts, ...]
    is_full: bool = False


@dataclass(frozen=True)
class Reorganize(OfTable):
    """``REORG TABLE table [WHERE …] APPLY (PURGE)``."""

    where: str | None


@dataclass(frozen=True)
class Vacuum(OfTable):
    """``VACUUM table [FULL | LITE]``; without a kind the session chooses it."""

    kind: Literal["FULL", "LITE"] | None
    hours: float | None
    dry_run: bool


@dataclass(frozen=True)
class Restore(OfTable):
    """``RESTORE TABLE table TO …``."""

    to: TimeTravel


@dataclass(frozen=True)
class DescribeHistory(OfTable):
    """``DESCRIBE HISTORY table [LIMIT n]``."""

    limit: int | None


class DescribeDetail(OfTable):
    """``DESCRIBE DETAIL table``."""


@dataclass(frozen=True)
class DescribeTable(OfTable):
    """``DESCRIBE [TABLE] [EXTENDED] table``."""

    extended: bool


@dataclass(frozen=True)
class ShowProperties(OfTable):
    """``SHOW TBLPROPERTIES table [(key)]``."""

    key: str | None


class ShowColumns(OfTable):
    """``SHOW COLUMNS IN table``."""


@dataclass(frozen=True)
class ShowPartitions(OfTable):
    """``SHOW PARTITIONS table [PARTITION (…)]``: the values that columns shall have, as SQL."""

    partition: tuple[tuple[str, str], ...] = ()


class RefreshTable(OfTable):
    """``REFRESH TABLE table``."""


@dataclass(frozen=True)
class Convert(Statement):
    """``CONVERT TO DELTA parquet.`path` [PARTITIONED BY (…)]``; the columns are DDL."""

    parts: NameParts
    partition_columns: str | None


@dataclass(frozen=True)
class Generate(Statement):
    """``GENERATE mode FOR TABLE table``."""

    mode: str
    table: TableName


Position: TypeAlias = NameParts | Literal["FIRST"] | None


@dataclass(frozen=True)
class ColumnDefinition:
    """A column of CREATE TABLE or ALTER TABLE.

    Args:
        generated: SQL of a generated column.
        identity: Start, step, and whether an INSERT may set the value.
        position: ``FIRST``, or the column after which it is added.
    """

    name: NameParts
    data_type: str
    nullable: bool = True
    comment: str | None = None
    default: str | None = None
    generated: str | None = None
    identity: tuple[int, int, bool] | None = None
    position: Position = None


CreateMode: TypeAlias = Literal["create", "create_if_not_exists", "replace", "create_or_replace"]


@dataclass(frozen=True)
class CreateTable(OfTable):
    """CREATE TABLE or REPLACE TABLE of a Delta table, with or without AS SELECT."""

    mode: CreateMode
    columns: tuple[ColumnDefinition, ...] = ()
    checks: Mapping[str, str] = field(default_factory=dict)
    partitioned_by: tuple[ColumnDefinition | str, ...] = ()
    clustered_by: tuple[NameParts, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    location: str | None = None
    query: str | None = None


class CreateOfDefaultSource(OfTable):
    """CREATE TABLE or REPLACE TABLE without USING: of a Delta table only where the session's default source is delta.

    Nothing after the name is read yet, since other sources take more than Delta; see `read_as_delta`.
    """


@dataclass(frozen=True)
class CreateTableLike(OfTable):
    """``CREATE TABLE [IF NOT EXISTS] table LIKE source [USING delta]``.

    Args:
        uses_delta: Whether Delta is named; where it is not, the new table has the source's provider.
    """

    mode: CreateMode
    source: TableName
    uses_delta: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None


@dataclass(frozen=True)
class CloneTable(OfTable):
    """``CREATE TABLE target SHALLOW CLONE source``."""

    mode: CreateMode
    source: TableName
    at: TimeTravel | None
    properties: Mapping[str, str]
    location: str | None


@dataclass(frozen=True)
class CreateTempView(Statement):
    """``CREATE [OR REPLACE] [GLOBAL] TEMPORARY VIEW name (columns) AS query``.

    Args:
        columns: The names of the columns, each with its comment; none where they are the query's.
    """

    name: str
    replaces: bool
    query: str
    is_global: bool = False
    columns: tuple[tuple[str, str | None], ...] = ()


class DropTable(OfTable):
    """``DROP TABLE [IF EXISTS] table``."""


@dataclass(frozen=True)
class SetProperties(Alteration):
    """``SET TBLPROPERTIES (…)``; a table's comment is the property ``comment``."""

    properties: Mapping[str, str]


@dataclass(frozen=True)
class UnsetProperties(Alteration):
    """``UNSET TBLPROPERTIES [IF EXISTS] (…)``: also without IF EXISTS a key may be missing, as in delta-spark."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class AddConstraint(Alteration):
    """``ADD CONSTRAINT name CHECK (…)``."""

    name: str
    expression: str


@dataclass(frozen=True)
class DropConstraint(Alteration):
    """``DROP CONSTRAINT [IF EXISTS] name``."""

    name: str
    if_exists: bool


@dataclass(frozen=True)
class AddColumns(Alteration):
    """``ADD COLUMNS (…)``."""

    columns: tuple[ColumnDefinition, ...]


@dataclass(frozen=True)
class DropColumns(Alteration):
    """``DROP COLUMNS [IF EXISTS] (…)``."""

    columns: tuple[NameParts, ...]
    if_exists: bool


@dataclass(frozen=True)
class RenameColumn(Alteration):
    """``RENAME COLUMN a.b TO c``."""

    column: NameParts
    to: str


@dataclass(frozen=True)
class ChangeColumn:
    """What becomes of a column; what is None stays.

    Args:
        default: SQL; the empty string drops the default.
    """

    column: NameParts
    data_type: str | None = None
    nullable: bool | None = None
    comment: str | None = None
    default: str | None = None
    position: Position = None


@dataclass(frozen=True)
class ChangeColumns(Alteration):
    """``ALTER COLUMN a …, b …``."""

    changes: tuple[ChangeColumn, ...]


@dataclass(frozen=True)
class ReplaceColumns(Alteration):
    """``REPLACE COLUMNS (…)``, which Delta tables are not given here."""


@dataclass(frozen=True)
class ClusterBy(Alteration):
    """``CLUSTER BY (…)``; without columns ``CLUSTER BY NONE``."""

    columns: tuple[NameParts, ...]


@dataclass(frozen=True)
class DropFeature(Alteration):
    """``DROP FEATURE name [TRUNCATE HISTORY]``."""

    name: str
    truncates_history: bool


@dataclass(frozen=True)
class AlterTable(OfTable):
    """``ALTER TABLE table …``."""

    change: Alteration
