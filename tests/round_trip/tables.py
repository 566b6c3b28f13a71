"""A feature's table: its rows, the statements that make and change it, and what it must hold in the end."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from corpus.sql import ColumnDefinition, path_relation, quote, rows_query, split_columns, string_literal

from .features import KEYS, TEXTS, Feature

Row = tuple[str, ...]
"""SQL values, one for each of `written_columns`."""

FIRST_ROWS = range(6)
UPDATED, DELETED = "4", "5"
"""Keys that an engine's own UPDATE and DELETE, beside its MERGE, touch in its own table."""


@dataclass(frozen=True)
class Merge:
    """An upsert with deletes.

    Args:
        columns: What the source and the clauses name, the key first, then the text, whose NULL means a delete.
        rows: The source's rows.
        changes_rows: Whether there are clauses for rows that match.
    """

    columns: tuple[ColumnDefinition, ...]
    rows: tuple[Row, ...]
    changes_rows: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Gives the columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def source(self) -> str:
        """Gives the source as a query."""
        return query_of(self.columns, self.rows)


def all_columns(feature: Feature) -> tuple[ColumnDefinition, ...]:
    """Gives the columns of a feature's table."""
    return tuple(split_columns(ddl(feature)))


def ddl(feature: Feature) -> str:
    """Gives the columns of a feature's table as in CREATE TABLE."""
    own = f"{quote(feature.key)} INT, {quote(feature.text)} STRING {feature.text_options}".strip()
    return f"{own}, {feature.columns}" if feature.columns else own


def written_columns(feature: Feature) -> tuple[ColumnDefinition, ...]:
    """Gives the columns that writers give values for."""
    named = (feature.key, feature.text, *feature.values)
    return tuple(column for column in all_columns(feature) if column.name in named)


def row(feature: Feature, number: int) -> Row:
    """Gives one of the twelve rows."""
    return (KEYS[number], TEXTS[number], *(values[number] for values in feature.values.values()))


def first_rows(feature: Feature) -> str:
    """Gives the rows that a table begins with, as a query."""
    return query_of(written_columns(feature), [row(feature, number) for number in FIRST_ROWS])


def merges(feature: Feature) -> tuple[Merge, Merge, Merge]:
    """Gives three merges into a table: each deletes a row, updates one and inserts one."""
    columns = tuple(
        replace(column, data_type=feature.widened.get(column.name, column.data_type))
        for column in written_columns(feature)
    )

    def merge(deleted: str, updated: int, inserted: int) -> Merge:
        if feature.inserts_only:
            return Merge(columns, (row(feature, inserted),), changes_rows=False)
        return Merge(columns, ((deleted, "NULL", *row(feature, 0)[2:]), row(feature, updated), row(feature, inserted)))

    return merge("3", 6, 7), merge("2", 8, 9), merge(UPDATED, 10, 11)


def violating_merge(feature: Feature) -> Merge:
    """Gives a merge that every engine has to refuse."""
    values = dict(zip((column.name for column in written_columns(feature)), row(feature, 9), strict=True))
    values = {**values, feature.key: "99", **feature.violation}
    columns = tuple(column for column in all_columns(feature) if column.name in values)
    return Merge(columns, (tuple(values[column.name] for column in columns),))


def merge_sql_text(feature: Feature, path: str, merge: Merge) -> str:
    """Writes a merge as a MERGE statement."""
    key, text = quote(feature.key), quote(feature.text)
    names = [quote(name) for name in merge.names]
    values = ", ".join(f"s.{name}" for name in names)
    update = "*" if feature.widened else ", ".join(f"{name} = s.{name}" for name in names if name != key)
    insert = "*" if feature.widened else f"({', '.join(names)}) VALUES ({values})"
    clauses = [
        f"MERGE {'WITH SCHEMA EVOLUTION ' if feature.widened else ''}INTO {path_relation(path)} t",
        f"USING ({merge.source}) s ON t.{key} = s.{key}",
    ]
    if merge.changes_rows:
        clauses.append(f"WHEN MATCHED AND s.{text} IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET {update}")
    return " ".join([*clauses, f"WHEN NOT MATCHED THEN INSERT {insert}"])


def create_table_text(feature: Feature, path: str) -> str:
    """Writes a table's definition as a CREATE TABLE statement."""
    statement = f"CREATE TABLE {path_relation(path)} ({ddl(feature)}) USING delta"
    if feature.partitioned_by:
        statement += f" PARTITIONED BY ({', '.join(map(quote, feature.partitioned_by))})"
    if feature.clustered_by:
        statement += f" CLUSTER BY ({', '.join(map(quote, feature.clustered_by))})"
    if feature.properties:
        pairs = (f"{string_literal(k)} = {string_literal(v)}" for k, v in feature.properties.items())
        statement += f" TBLPROPERTIES ({', '.join(pairs)})"
    return statement


def query_of(columns: Sequence[ColumnDefinition], rows: Sequence[Row]) -> str:
    """Makes a query of rows, each value cast to its column's type."""
    return rows_query(columns, [f"({', '.join(values)})" for values in rows])


def after_merge(rows: Mapping[str, Row], merge: Merge) -> dict[str, Row]:
    """Gives what a merge makes of rows, by key."""
    there = {values[0]: values for values in merge.rows}
    kept = {key: values for key, values in rows.items() if key not in there}
    return {**kept, **{key: values for key, values in there.items() if values[1] != "NULL"}}


def after_changes(feature: Feature, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Gives what an engine's UPDATE and DELETE make of rows, by key."""
    if feature.inserts_only:
        return dict(rows)
    changed = {key: values for key, values in rows.items() if key != DELETED}
    key, _, *others = changed[UPDATED]
    return {**changed, UPDATED: (key, "'updated'", *others)}


def rows_at_first(feature: Feature) -> dict[str, Row]:
    """Gives the rows that a table begins with, by key."""
    return {KEYS[number]: row(feature, number) for number in FIRST_ROWS}


def expected_query(feature: Feature, rows: Mapping[str, Row]) -> str:
    """Makes a query that gives what a reader must find, without the columns that nobody foresees."""
    written = merges(feature)[0].columns
    columns = [
        (column.name, feature.widened.get(column.name, column.data_type))
        for column in all_columns(feature)
        if column.name not in feature.unforeseen
    ]
    values = ", ".join(
        f"CAST({feature.computed.get(name, quote(name))} AS {data_type}) AS {quote(name)}"
        for name, data_type in columns
    )
    return f"SELECT {values} FROM ({query_of(written, list(rows.values()))})"


def foreseen(feature: Feature, lines: Sequence[str]) -> list[str]:
    """Takes the columns that nobody foresees out of canonical rows."""
    if not feature.unforeseen:
        return list(lines)
    kept = ({k: v for k, v in json.loads(line).items() if k not in feature.unforeseen} for line in lines)
    return sorted(json.dumps(values, separators=(",", ":"), ensure_ascii=False) for values in kept)


def lacking_evidence(feature: Feature, path: str) -> list[str]:
    """Lists what is not found of a feature in a table's log and the names of its files."""
    files = sorted(file for file in Path(path).rglob("*") if file.is_file())
    log = [file.read_text() for file in files if file.suffix == ".json" and file.parent.name == "_delta_log"]
    text = "\n".join([*log, *(str(file.relative_to(path)) for file in files)])
    return [pattern for pattern in feature.evidence if not re.search(pattern, text)]
