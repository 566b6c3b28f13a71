"""The three engines: each makes a feature's table, merges into it, changes and reads it."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable as DeltaRs
from deltalake import Schema, write_deltalake

from corpus.canonical import canonical_lines
from corpus.delta_rs import frame_read_by_delta_rs
from corpus.deltamerge_engine import add_column
from corpus.sql import path_relation, quote
from deltamerge import DeltaTable, merge_sql, write_delta
from oracle.client import LineProcess

from .features import DELTA_RS, DELTA_SPARK, DELTAMERGE, Feature
from .tables import (
    DELETED,
    UPDATED,
    Merge,
    all_columns,
    create_table_text,
    first_rows,
    merge_sql_text,
    written_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Protocol):
    """What makes, changes and reads Delta tables."""

    @property
    def name(self) -> str:
        """The engine's name in the matrix."""

    def make(self, feature: Feature, path: str) -> None:
        """Makes a table with its first rows in one file."""

    def merge(self, feature: Feature, path: str, merge: Merge) -> None:
        """Merges into a table."""

    def change(self, feature: Feature, path: str) -> None:
        """Updates and deletes a row without a merge, where rows may be changed."""

    def lines(self, path: str) -> list[str]:
        """Reads a table's rows as canonical JSON, sorted."""


@dataclass(frozen=True)
class Deltamerge:
    """deltamerge.

    Args:
        spark: The session.
    """

    spark: SparkSession
    name: str = DELTAMERGE

    def make(self, feature: Feature, path: str) -> None:
        """Makes a table with its first rows in one file."""
        self.builder(feature).location(path).execute()
        write_delta(self.spark.sql(first_rows(feature)).coalesce(1), path, mode="append")

    def merge(self, feature: Feature, path: str, merge: Merge) -> None:
        """Merges into a table."""
        merge_sql(self.spark, merge_sql_text(feature, path, merge))

    def change(self, feature: Feature, path: str) -> None:
        """Does nothing: MERGE is all that deltamerge changes rows by."""

    def lines(self, path: str) -> list[str]:
        """Reads a table's rows as canonical JSON, sorted."""
        return canonical_lines(DeltaTable.forPath(self.spark, path).toDF())

    def builder(self, feature: Feature) -> Any:
        """Gives the builder of a feature's table, without its place."""
        builder = DeltaTable.create(self.spark)
        for column in all_columns(feature):
            builder = add_column(builder, column)
        if feature.partitioned_by:
            builder = builder.partitionedBy(*feature.partitioned_by)
        if feature.clustered_by:
            builder = builder.clusterBy(*feature.clustered_by)
        constraints = {f"delta.constraints.{name}": text for name, text in feature.constraints.items()}
        for name, value in {**feature.properties, **constraints}.items():
            builder = builder.property(name, value)
        return builder


@dataclass(frozen=True)
class DeltaSpark:
    """delta-spark in its own process.

    Args:
        oracle: The process.
    """

    oracle: LineProcess
    name: str = DELTA_SPARK
    _turn: Lock = field(default_factory=Lock)

    def make(self, feature: Feature, path: str) -> None:
        """Makes a table with its first rows in one file."""
        table = path_relation(path)
        names = ", ".join(quote(column.name) for column in written_columns(feature))
        self._run(
            create_table_text(feature, path),
            f"INSERT INTO {table} ({names}) SELECT /*+ COALESCE(1) */ * FROM ({first_rows(feature)})",
            *(
                f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({condition})"
                for name, condition in feature.constraints.items()
            ),
        )

    def merge(self, feature: Feature, path: str, merge: Merge) -> None:
        """Merges into a table."""
        self._run(merge_sql_text(feature, path, merge))

    def change(self, feature: Feature, path: str) -> None:
        """Updates and deletes a row without a merge, where rows may be changed."""
        if feature.inserts_only:
            return
        table, key = path_relation(path), quote(feature.key)
        self._run(
            f"UPDATE {table} SET {quote(feature.text)} = 'updated' WHERE {key} = {UPDATED}",
            f"DELETE FROM {table} WHERE {key} = {DELETED}",
        )

    def lines(self, path: str) -> list[str]:
        """Reads a table's rows as canonical JSON, sorted."""
        with self._turn:
            return list(self.oracle.ask("lines", path=path))

    def _run(self, *statements: str) -> None:
        with self._turn:
            self.oracle.ask("sql", statements=list(statements))


@dataclass(frozen=True)
class DeltaRsEngine:
    """delta-rs.

    Args:
        spark: Makes the rows, and the canonical JSON of what delta-rs reads.
        folder: For files on the way from delta-rs to Spark.
    """

    spark: SparkSession
    folder: Path
    name: str = DELTA_RS

    def make(self, feature: Feature, path: str) -> None:
        """Makes a table with its first rows in one file."""
        schema = Deltamerge(self.spark).builder(feature).definition.schema
        table = DeltaRs.create(
            path,
            Schema.from_json(json.dumps(schema.jsonValue())),
            partition_by=list(feature.partitioned_by),
            configuration=dict(feature.properties),
        )
        for name, condition in feature.constraints.items():
            table.alter.add_constraint({name: condition})
        write_deltalake(path, self._rows(first_rows(feature)), mode="append")

    def merge(self, feature: Feature, path: str, merge: Merge) -> None:
        """Merges into a table."""
        key, text = f's."{feature.key}"', f's."{feature.text}"'
        names = [f'"{name}"' for name in merge.names]
        merger = DeltaRs(path).merge(
            self._rows(merge.source), f't."{feature.key}" = {key}', source_alias="s", target_alias="t"
        )
        if merge.changes_rows:
            merger = merger.when_matched_delete(f"{text} IS NULL").when_matched_update(
                {name: f"s.{name}" for name in names[1:]}
            )
        merger.when_not_matched_insert({name: f"s.{name}" for name in names}).execute()

    def change(self, feature: Feature, path: str) -> None:
        """Updates and deletes a row without a merge, where rows may be changed."""
        table = DeltaRs(path)
        if not feature.inserts_only:
            table.update({f'"{feature.text}"': "'updated'"}, predicate=f'"{feature.key}" = {UPDATED}')
            table.delete(f'"{feature.key}" = {DELETED}')
        if feature.compacts_log:
            table.compact_logs(0, table.version())

    def lines(self, path: str) -> list[str]:
        """Reads a table's rows as canonical JSON, sorted."""
        file = self.folder / f"{uuid.uuid4()}.parquet"
        return canonical_lines(frame_read_by_delta_rs(self.spark, path, file))

    def _rows(self, query: str) -> pa.Table:
        return self.spark.sql(query).toArrow()
