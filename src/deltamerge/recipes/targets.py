"""The target of a recipe, given in any of the ways that name a table, and the tables beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from deltamerge.api.arguments import names_in
from deltamerge.api.delta_table import DeltaTable, open_by_name
from deltamerge.api.merge_builder import DeltaMergeBuilder
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.features.column_mapping import MODE, NAME, invalid_names
from deltamerge.log.schema import parse_schema
from deltamerge.log.snapshot import table_exists
from deltamerge.merge.analysis.analysis_errors import own_error
from deltamerge.merge.analysis.column_references import column_at, expression_tree, relation_of
from deltamerge.merge.command import MergeIntoCommand
from deltamerge.merge.outcome import MergeOutcome
from deltamerge.spark.catalog import delta_location
from deltamerge.spark.session import empty_frame, in_session, merge_conf
from deltamerge.spark.table import open_table
from deltamerge.sql.expression import Name
from deltamerge.sql.merge_ast import Expression
from deltamerge.sql.names import did_you_mean, is_path, parse_table_name
from deltamerge.sql.resolution import Relation, Scope
from deltamerge.storage.credentials import StoreOptions
from deltamerge.txn.application import NO_TRANSACTION
from deltamerge.write.align import find_field
from deltamerge.write.table_writer import FrameWrite, write_table

Target: TypeAlias = "DeltaTable | str"


@dataclass(frozen=True)
class TargetPlace:
    """Where a table is, whether or not there is one yet: a path, or else a name of the catalog.

    Args:
        opened: The table, where it was given.
    """

    spark: SparkSession
    name: str
    path: str | None
    options: StoreOptions = field(default_factory=dict, repr=False)
    opened: DeltaTable | None = None

    def open(self) -> DeltaTable:
        if self.opened is not None:
            return self.opened
        if self.path is None:
            return DeltaTable(open_by_name(self.spark, self.name, self.options))
        return DeltaTable.forPath(self.spark, self.path, self.options)

    def rows(self, source: DataFrame) -> DataFrame:
        return in_session(source, self.spark)

    def existing(self) -> DeltaTable | None:
        if self.path is None or self.opened is not None:
            return self.open()
        return self.open() if table_exists(open_table(self.spark, self.path, self.options).store) else None

    def open_or_create(self, schema: StructType, properties: Mapping[str, str] | None = None) -> DeltaTable:
        """Open the table; a path without one gets a new table, whose columns may have any name.

        Args:
            properties: Those of a new table.
        """
        if self.path is not None and self.opened is None:
            table = open_table(self.spark, self.path, self.options)
            if not table_exists(table.store):
                mapped = {MODE: NAME} if invalid_names(parse_schema(schema.json())) else {}
                write = FrameWrite("error", properties={**mapped, **(properties or {})})
                try:
                    write_table(table, empty_frame(self.spark, schema), write)
                except DeltaAnalysisException:
                    # Another writer may have created it meanwhile.
                    if not table_exists(table.store):
                        raise
        return self.open()

    def folder(self) -> str | None:
        """Return where the table is, or at a path would be; None for a name without a table."""
        if self.opened is not None:
            return self.opened.table.store.absolute("").rstrip("/")
        location = self.path or delta_location(self.spark, parse_table_name(self.name), self.options)
        if location is None:
            return None
        return open_table(self.spark, location, self.options).store.absolute("").rstrip("/")

    def beside(self, folder: str, other: str | None) -> TargetPlace:
        """Return the place of a table that belongs to this one: `other`, or a folder inside of this table's."""
        if other is not None:
            return place_of(self.spark, other, self.options)
        root = self.open().table.location
        return TargetPlace(self.spark, f"{self.name}/{folder}", f"{root.rstrip('/')}/{folder}", self.options)


def refuse_in_folder(place: TargetPlace, target: TargetPlace, argument: str) -> None:
    """Refuse the target itself as the table beside it, and a table among its files, which its VACUUM would delete.

    Raises:
        DeltaAnalysisException: It is the target, or it is in its folder and no part of its path begins with an
            underscore.
    """
    root, path = target.folder(), place.folder()
    if root is None or path is None:
        return
    if path == root:
        raise DeltaAnalysisException(
            "DELTA_ILLEGAL_USAGE",
            f"{argument}={place.name!r} is the target itself, {target.name}. Give a table of its own. Nothing was "
            "written.",
        )
    is_inside = path.startswith(f"{root}/")
    if is_inside and not any(part.startswith("_") for part in path.removeprefix(f"{root}/").split("/")):
        raise DeltaAnalysisException(
            "DELTA_ILLEGAL_USAGE",
            f"{argument}={place.name!r} is among the files of the table {target.name}, whose VACUUM would delete it. "
            "Give a place outside of the table's folder, or a folder whose name begins with an underscore. Nothing was "
            "written.",
        )


def place_of(spark: SparkSession, target: str, options: StoreOptions | None = None) -> TargetPlace:
    """Return the place that a string names.

    A string with a slash, a backslash or a colon is a path, also after ``delta.``; every other one is a name.
    """
    parts = parse_table_name(target) if target.lower().startswith("delta.`") else ()
    if len(parts) == 2:
        return TargetPlace(spark, target, parts[1], options or {})
    return TargetPlace(spark, target, target if is_path(target) else None, options or {})


def place_of_target(spark: SparkSession, target: Target, options: StoreOptions | None = None) -> TargetPlace:
    """Return the place of a target; session and options of a table that was opened are those of its place, too."""
    if isinstance(target, DeltaTable):
        table = target.table
        return TargetPlace(table.spark, table.name, table.location, {**table.options, **(options or {})}, target)
    if isinstance(target, str):
        return place_of(spark, target, options)
    raise TypeError(f"`target` must be a DeltaTable, a path or a table's name, got {type(target).__name__}")


def key_names(keys: str | Sequence[str]) -> tuple[str, ...]:
    found = names_in("keys", keys)
    if not found:
        raise ValueError("`keys` must name one column or more")
    return found


def type_of_value(source: DataFrame, value: Column, argument: str) -> DataType:
    """Return the type of an argument that is SQL or a Column over the source, which is ``s`` there.

    Raises:
        DeltaAnalysisException: Spark does not resolve it.
    """
    try:
        return source.alias("s").select(value.alias("value")).schema.fields[0].dataType
    except AnalysisException as error:
        name = str((error.getMessageParameters() or {}).get("objectName", "")).replace("`", "")
        if not name:
            raise own_error(error, f"the argument {argument}") from None
        raise unknown_column(source.schema, name, argument, "the source") from None


def named_column(source: DataFrame, value: str | Column) -> str | None:
    """Return the source's column that an argument names, which may be qualified by ``s``; None for any other value."""
    conf = merge_conf(source.sparkSession)
    expression = Expression(value) if isinstance(value, str) else Expression(str(value), value)
    tree = expression_tree(expression, conf.double_quoted_identifiers)
    if not isinstance(tree, Name):
        return None
    scope = Scope(Relation((), {}), relation_of("s", source.schema), conf.case_sensitive)
    place = column_at(scope, "source", source.schema, tree)
    return None if place is None else source.schema.names[place]


def column_of(schema: StructType, name: str, argument: str, table: str, case_sensitive: bool) -> StructField:
    index = find_field(schema, name, case_sensitive)
    if index is not None:
        return schema.fields[index]
    raise unknown_column(schema, name, argument, table)


def unknown_column(schema: StructType, name: str, argument: str, table: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        f"Cannot resolve `{name}` in {argument}: {table} has the columns {', '.join(schema.names)}."
        f"{did_you_mean(name, schema.names)}",
        parameters={"sqlExpr": name, "clause": argument, "cols": ", ".join(schema.names)},
    )


def run_without_transaction(builder: DeltaMergeBuilder) -> MergeOutcome:
    """Run a merge that changes nothing the second time, so that it needs no transaction.

    The session's transaction is for the user's own table: here it would be used up, or rows would be left out because
    the session has written others under the same number.
    """
    return MergeIntoCommand(builder.table, builder.statement, transaction=NO_TRANSACTION).run()
