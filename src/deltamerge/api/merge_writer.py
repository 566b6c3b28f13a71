"""PySpark's ``df.mergeInto`` for Delta tables. PySpark: pyspark.sql.merge."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame

from deltamerge.api.arguments import Values
from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import DeltaMergeBuilder, merge_builder
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.sql.names import parse_table_name


class MergeIntoWriter:
    """A MERGE under construction; its methods return this writer, or an action that returns it.

    Args:
        source: The rows to merge.
        target: The table that they go into.
        name: The target's name, which qualifies its columns.
        condition: ON.
    """

    def __init__(self, source: DataFrame, target: DeltaTable, name: str, condition: Column) -> None:
        self.builder = merge_builder(target.table, parse_table_name(name), source, condition)

    def whenMatched(self, condition: Column | None = None) -> _WhenMatched:
        """Say what happens to a target row that a source row matches."""
        return _WhenMatched(self, condition)

    def whenNotMatched(self, condition: Column | None = None) -> _WhenNotMatched:
        """Say what happens to a source row that matches nothing."""
        return _WhenNotMatched(self, condition)

    def whenNotMatchedBySource(self, condition: Column | None = None) -> _WhenNotMatchedBySource:
        """Say what happens to a target row that no source row matches."""
        return _WhenNotMatchedBySource(self, condition)

    def withSchemaEvolution(self) -> MergeIntoWriter:
        """Add the source's columns and fields that the clauses use to the target."""
        return self.then(self.builder.withSchemaEvolution())

    def merge(self) -> None:
        """Run the merge."""
        self.builder.run()

    def then(self, builder: DeltaMergeBuilder) -> MergeIntoWriter:
        """Go on with a builder that has one more clause or option."""
        self.builder = builder
        return self


@dataclass(frozen=True)
class _WhenMatched:
    writer: MergeIntoWriter
    condition: Column | None

    def updateAll(self) -> MergeIntoWriter:
        return self.writer.then(self.writer.builder.whenMatchedUpdateAll(self.condition))

    def update(self, assignments: Values) -> MergeIntoWriter:
        return self.writer.then(self.writer.builder.whenMatchedUpdate(self.condition, assignments))

    def delete(self) -> MergeIntoWriter:
        return self.writer.then(self.writer.builder.whenMatchedDelete(self.condition))


@dataclass(frozen=True)
class _WhenNotMatched:
    writer: MergeIntoWriter
    condition: Column | None

    def insertAll(self) -> MergeIntoWriter:
        return self.writer.then(self.writer.builder.whenNotMatchedInsertAll(self.condition))

    def insert(self, assignments: Values) -> MergeIntoWriter:
        return self.writer.then(self.writer.builder.whenNotMatchedInsert(self.condition, assignments))


@dataclass(frozen=True)
class _WhenNotMatchedBySource:
    writer: MergeIntoWriter
    condition: Column | None

    def updateAll(self) -> MergeIntoWriter:
        raise DeltaAnalysisException(
            "DELTA_MERGE_UNRESOLVED_EXPRESSION",
            "updateAll after whenNotMatchedBySource has no source row to take values from. Name the columns: "
            "whenNotMatchedBySource(…).update({…}).",
        )

    def update(self, assignments: Values) -> MergeIntoWriter:
        return self.writer.then(self.writer.builder.whenNotMatchedBySourceUpdate(self.condition, assignments))

    def delete(self) -> MergeIntoWriter:
        return self.writer.then(self.writer.builder.whenNotMatchedBySourceDelete(self.condition))
