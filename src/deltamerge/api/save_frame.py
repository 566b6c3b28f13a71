"""What a writer of ``format("delta")``, by path, by name or V2, asks for, done by this library's writer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltamerge.api.arguments import asked_options, column_name
from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.new_tables import check_location, create, find_place, new_place, recorded
from deltamerge.api.statements.changes import placed, with_fields_by_position
from deltamerge.api.statements.creation import create_from_rows
from deltamerge.api.statements.tables import Tables
from deltamerge.api.write_delta import write_frame
from deltamerge.data_source.request import Request
from deltamerge.data_source.write_options import asked_write, option_partition_columns
from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaParseException,
    DeltaUnsupportedOperationException,
)
from deltamerge.log.snapshot import table_exists
from deltamerge.spark.catalog import names_another_catalog, qualified
from deltamerge.spark.session import conf_value, merge_conf
from deltamerge.spark.table import Table, open_table, spark_schema
from deltamerge.sql.merge_ast import Expression
from deltamerge.sql.names import parse_name, parse_table_name
from deltamerge.sql.statements.ast import CreateMode, CreateTable, TableName
from deltamerge.txn.application import ApplicationTransaction, option_transaction
from deltamerge.write.definition import TableDefinition, as_spelled
from deltamerge.write.frame_rows import new_schema
from deltamerge.write.overwrite_kind import PARTITION_OVERWRITE_MODE, refuse_unsupported
from deltamerge.write.table_commits import HistoryEntry, create_parameters
from deltamerge.write.table_writer import CommitNotes, FrameWrite, refuse_new_definition

_OF_ALL_ROWS = ("overwrite", "overwrite_schema")
_ERRORS = ("error", "errorifexists", "default")
# Delta: TransactionalWrite.writeFiles.
_FILE_OPTIONS = ("compression", "maxrecordsperfile")


_TRANSFORM = re.compile(r"(bucket|days|hours|months|years)\(")

# Table properties that Spark takes for parts of the table's definition.
_LOCATION, _COMMENT = "location", "comment"


@dataclass(frozen=True)
class Save:
    """The calls on a writer.

    Args:
        source: The data source, in lower case; empty for the session's default.
        mode: ``append``, ``overwrite``, ``ignore`` or ``error``.
        options: By their names in lower case.
        properties: Those of the table, which a writer takes as options, too.
        condition: Of which rows the new ones take the place; an option that says so, too, is refused.
        transform: An expression among the partition columns, which Delta tables do not have; empty for none.
        is_bucketed: Whether the rows are to be in buckets, which Delta tables do not have.
        is_sorted: Whether the rows are to be sorted within buckets.
    """

    source: str = ""
    mode: str = "error"
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[tuple[str, ...], ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    condition: Expression | None = None
    transform: str = ""
    is_bucketed: bool = False
    is_sorted: bool = False

    def with_call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Save:
        if name in ("options", "option"):
            return self._with_options(asked_options(name, args, kwargs))
        values = [*args, *kwargs.values()]
        if name == "tableProperty":
            return replace(self, properties={**self.properties, str(values[0]): str(values[1])})
        if name in ("partitionBy", "partitionedBy", "clusterBy"):
            names = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values
            if name == "clusterBy":
                return replace(self, cluster_by=tuple(map(parse_name, names)))
            # As delta-spark: no columns are as none named.
            found = tuple(map(column_name, names))
            transform = next((n for n, of in zip(found, names, strict=True) if _is_transform(of, n)), "")
            return replace(self, partition_by=found or None, transform=transform)
        if not values or values[0] is None:
            return self
        if name == "bucketBy":
            return replace(self, is_bucketed=True)
        if name == "sortBy":
            return replace(self, is_sorted=True)
        if name in ("format", "using"):
            return replace(self, source=str(values[0]).lower())
        mode = str(values[0]).lower()
        return replace(self, mode="error" if mode in _ERRORS else mode)

    def _with_options(self, given: Mapping[str, str]) -> Save:
        return replace(
            self,
            options={**self.options, **{key.lower(): value for key, value in given.items()}},
            properties={**self.properties, **{k: v for k, v in given.items() if k.lower().startswith("delta.")}},
        )

    @property
    def is_of_source(self) -> bool:
        """Whether only the data source in Python writes this: to a store with options of its own."""
        return any(name.startswith("fs.") for name in self.options)

    @property
    def partitions(self) -> tuple[str, ...] | None:
        return option_partition_columns(self.request) if self.partition_by is None else self.partition_by

    @property
    def request(self) -> Request:
        return Request(self.options, {})

    @property
    def file_options(self) -> dict[str, str]:
        """The options of Spark's Parquet writer."""
        return {key: self.options[key] for key in _FILE_OPTIONS if key in self.options}

    @property
    def changes_data(self) -> bool:
        """Whether the rows are other ones than those that they replace."""
        return self.request.flag("dataChange", True)

    @property
    def notes(self) -> CommitNotes:
        transaction = option_transaction(self.options.get("txnappid"), self.request.number("txnVersion"))
        return CommitNotes(transaction, self.options.get("usermetadata"))


def _is_transform(column: object, shown: str) -> bool:
    return not isinstance(column, str) and _TRANSFORM.match(shown) is not None


def save_to_path(frame: DataFrame, path: str, asked: Save) -> None:
    """Write a frame to a path, whose table keeps its types: drift is an error, as in delta-spark."""
    save_to_table(frame, open_table(frame.sparkSession, path), asked, converts=False)


def save_to_table(
    frame: DataFrame, table: Table, asked: Save, entry: HistoryEntry | None = None, *, converts: bool = True
) -> None:
    """Write a frame to a table, which need not exist.

    Args:
        entry: As `FrameWrite` has it, `converts` too.
    """
    mode = _mode(asked)
    _refuse_unsupported(asked)
    if asked.mode == "ignore" and table_exists(table.store):
        return
    try:
        write = _frame_write(frame.sparkSession, asked)
        kind = "error" if mode == "error" else write.kind
        write_frame(table, frame, replace(write, kind=kind, converts=converts, entry=entry))
    except DeltaParseException as error:
        where = asked.options.get("replacewhere") if asked.condition is None else asked.condition.text
        if where is None or mode != "overwrite":
            raise
        # In a statement of SQL such a condition is a syntax error, as an option it is not.
        raise DeltaAnalysisException(
            "DELTA_FAILED_RECOGNIZE_PREDICATE",
            f"Cannot recognize the predicate '{where}'. {error.message}",
            parameters={"predicate": where},
        ) from None


def save_batch(frame: DataFrame, table: Table, asked: Save, query: str, batch: int) -> None:
    """Write a batch of a stream to a table, which need not exist and may have the batch already.

    Args:
        asked: Its mode is ``append``, or ``overwrite`` where a batch is the whole table.
    """
    replaces = asked.mode == "overwrite" and asked.request.flag("overwriteSchema")
    kind = "overwrite_schema" if replaces else asked.mode
    # The options of a transaction and `dataChange` are for batch writes, as in delta-spark.
    write = replace(
        # A batch is appended, or is the whole table, whatever the options say of its partitions.
        _frame_write(frame.sparkSession, replace(asked, mode="append")),
        kind=kind,
        notes=replace(asked.notes, transaction=ApplicationTransaction(query, batch)),
        data_change=True,
        # A table at a path that a stream makes is not clustered.
        clustered_by=None,
        entry=HistoryEntry.of_batch(query, batch, is_complete=kind != "append"),
    )
    write_frame(table, frame, write)


def _frame_write(spark: SparkSession, asked: Save) -> FrameWrite:
    mode = conf_value(spark, PARTITION_OVERWRITE_MODE) or "static"
    request = Request(asked.options, {PARTITION_OVERWRITE_MODE: mode})
    return replace(
        asked_write(request, asked.mode == "overwrite", asked.condition, asked.partition_by),
        clustered_by=asked.cluster_by or None,
        properties=asked.properties,
        merges_schema=_merges_schema(spark, asked),
        file_options=asked.file_options,
    )


def _merges_schema(spark: SparkSession, asked: Save) -> bool:
    return asked.request.flag("mergeSchema", merge_conf(spark).schema_auto_merge)


def _refuse_unsupported(asked: Save) -> None:
    refuse_unsupported(asked.options)
    if asked.is_bucketed or asked.transform.startswith("bucket("):
        raise DeltaUnsupportedOperationException(
            "DELTA_OPERATION_NOT_ALLOWED_DETAIL",
            "Operation not allowed: `Bucketing` is not supported for Delta tables. Leave it out, or name the columns "
            "with clusterBy or partitionBy. Nothing was written.",
            parameters={"operation": "Bucketing"},
        )
    if asked.transform:
        raise DeltaUnsupportedOperationException(
            "DELTA_OPERATION_NOT_ALLOWED",
            "Operation not allowed: `Partitioning by expressions` is not supported for Delta tables, as by "
            f"{asked.transform}. Partition by a generated column with its value. Nothing was written.",
            parameters={"operation": "Partitioning by expressions"},
        )
    if asked.is_sorted:
        raise DeltaAnalysisException(
            "SORT_BY_WITHOUT_BUCKETING",
            "sortBy must be used together with bucketBy, which Delta tables do not have. Leave it out, or sort the "
            "rows: df.sortWithinPartitions. Nothing was written.",
        )


def _mode(asked: Save) -> str:
    if asked.mode == "ignore":
        return "error"
    if asked.mode in ("append", "overwrite", "error"):
        return asked.mode
    raise DeltaIllegalArgumentException(
        "INVALID_SAVE_MODE",
        f'The specified save mode "{asked.mode}" is invalid. Valid save modes include "append", "overwrite", "ignore", '
        '"error", "errorifexists", and "default".',
        parameters={"mode": asked.mode},
    )


def find_table(spark: SparkSession, name: str) -> DeltaTable | None:
    return Tables(spark).called(parse_table_name(name))


def save_as_table(frame: DataFrame, name: str, asked: Save) -> None:
    tables, named = Tables(frame.sparkSession), TableName.of(parse_table_name(name))
    if asked.mode == "ignore" and tables.has_other_table(named):
        return
    found, path = tables.called(named.parts), asked.options.get("path")
    if found is not None and asked.mode != "error":
        if asked.mode == "overwrite" and path is not None:
            check_location(found.table, named.parts, path)
        keeps_types = asked.mode == "overwrite"
        save_to_table(frame, found.table, asked, _replacement(found.table, named, asked), converts=not keeps_types)
        return
    if path is not None and asked.mode in ("append", "overwrite") and tables.is_forgotten(named.parts, path):
        # Its files outlive the catalog of a session without a metastore.
        table = open_table(frame.sparkSession, path)
        snapshot = table.snapshot()
        place = new_place(table, qualified(frame.sparkSession, named.parts))
        with recorded(place, spark_schema(snapshot), snapshot.metadata.description, requires_entry=False):
            save_to_table(frame, table, asked)
        return
    kind = _frame_write(frame.sparkSession, asked).kind
    if kind not in _OF_ALL_ROWS:
        create_as(frame, name, "create", asked)
        return
    refuse_new_definition(asked.changes_data, exists=False)
    # Another session may make it meanwhile: an overwrite takes its place.
    create_as(frame, name, "create_or_replace", asked, _said_of_overwrite(kind))


def _replacement(table: Table, name: TableName, asked: Save) -> HistoryEntry | None:
    """Return what the history calls an overwrite of all rows by name, which stays the same table.

    Delta: DeltaOperations.ReplaceTable with isV1WriterSaveAsTableOverwrite.
    """
    kind = _frame_write(table.spark, asked).kind
    if kind not in _OF_ALL_ROWS:
        return None
    keeps = kind == "overwrite"
    partitions = table.snapshot().metadata.partition_columns if keeps else asked.partitions or ()
    definition = TableDefinition(StructType(), partitions, asked.properties, clustered_by=asked.cluster_by)
    is_managed = find_place(table.spark, name, None).is_managed
    parameters = {**create_parameters(definition, is_managed=is_managed), **_said_of_overwrite(kind)}
    return HistoryEntry("CREATE OR REPLACE TABLE AS SELECT", parameters)


def _said_of_overwrite(kind: str) -> dict[str, object]:
    said: dict[str, object] = {"isV1SaveAsTableOverwrite": True}
    return {**said, "canOverwriteSchema": True} if kind == "overwrite_schema" else said


def create_as(
    frame: DataFrame, name: str, mode: CreateMode, asked: Save, said: Mapping[str, object] | None = None
) -> None:
    """Make a table of a name, or at a path that is named as ``delta.`path` ``, with a frame's rows.

    Args:
        said: What the history says besides the table's definition.
    """
    _refuse_unsupported(asked)
    refuse_new_definition(asked.changes_data, mode in ("replace", "create_or_replace"))
    given = {key.lower(): value for key, value in asked.properties.items()}
    statement = CreateTable(
        TableName.of(parse_table_name(name)),
        mode,
        partitioned_by=asked.partitions or (),
        clustered_by=asked.cluster_by,
        properties={key: value for key, value in asked.properties.items() if key.lower() not in (_LOCATION, _COMMENT)},
        comment=given.get(_COMMENT),
        location=asked.options.get("path", given.get(_LOCATION)),
    )
    notes = replace(asked.notes, parameters=said or {})
    create_from_rows(Tables(frame.sparkSession), statement, frame, notes, asked.file_options)


def create_empty(
    spark: SparkSession, name: str, schema: StructType | None, asked: Save, comment: str | None = None
) -> bool:
    """Make a table of a name without rows, or an entry for the one at a path; return whether the name was free.

    Args:
        schema: Its columns; None for those of the table at the path.
    """
    named = TableName.of(parse_table_name(name))
    if names_another_catalog(spark, named.parts) or Tables(spark).has_other_table(named):
        return False
    columns = StructType() if schema is None else new_schema(schema)
    definition = TableDefinition(
        columns, asked.partitions or (), asked.properties, comment, clustered_by=asked.cluster_by
    )
    place = find_place(spark, named, asked.options.get("path"))
    create(place, as_spelled(definition), "create", requires_entry=True)
    return True


def insert_into(frame: DataFrame, found: DeltaTable, asked: Save) -> None:
    """Write a frame's columns, by their places, to an existing table."""
    schema = spark_schema(found.table.snapshot())
    rows = placed(frame, found, schema.names, evolves=_merges_schema(frame.sparkSession, asked))
    mode = "overwrite" if asked.mode == "overwrite" else "append"
    save_to_table(with_fields_by_position(rows, schema), found.table, replace(asked, mode=mode))
