"""Writing a table: what tasks are to write, and the commit of what they have written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.types import NullType, StructType, TimestampType

from deltamerge.data_source.request import Request
from deltamerge.data_source.shapes import char_lengths
from deltamerge.data_source.write_checks import (
    check_columns,
    check_conditions,
    check_expressions,
    files_where,
    rows_condition,
)
from deltamerge.data_source.write_options import asked_write, option_properties
from deltamerge.exceptions import DeltaIllegalArgumentException, DeltaRuntimeException
from deltamerge.log.snapshot import Snapshot, table_exists
from deltamerge.merge.planning.fit import PARQUET_CODECS, parquet_options
from deltamerge.scan.file_types import arrow_schema, file_field, given_part
from deltamerge.scan.paths import located
from deltamerge.spark.catalog import without_location
from deltamerge.spark.limited_types import length_limit
from deltamerge.txn.application import ApplicationTransaction
from deltamerge.workers.conditions import Condition
from deltamerge.workers.staged_rows import SPARK_VERSION
from deltamerge.workers.table_files import RowsToWrite
from deltamerge.write.constraints import NotNull, constraints_of
from deltamerge.write.data_files import (
    WriteTarget,
    WrittenFiles,
    files_of_tasks,
    remove_leftovers,
    removing_leftovers,
)
from deltamerge.write.definition import TableDefinition
from deltamerge.write.frame_rows import new_schema
from deltamerge.write.layout import data_folder, target_file_size
from deltamerge.write.overwrite_kind import PARTITION_OVERWRITE_MODE
from deltamerge.write.partition_overwrite import of_same_partitions, replaced_among
from deltamerge.write.property_names import default_properties
from deltamerge.write.table_commits import (
    HistoryEntry,
    Replaced,
    WrittenRows,
    commit_definition,
    commit_rows,
    new_definition,
    protocol_of,
)
from deltamerge.write.table_writer import FrameWrite, refuse_new_definition, written_definition

# PyArrow does not write the frames around Hadoop's LZ4, which readers tell from those of others by trying.
_CODECS = {**PARQUET_CODECS, "lz4": PARQUET_CODECS["lz4_raw"]}


@dataclass(frozen=True)
class WritePlan:
    """What a write is to commit; it travels with the work of tasks as JSON.

    Args:
        options: The query's; they may be secret.
        version: The version that was read; None where there is no table.
    """

    options: Mapping[str, str] = field(repr=False)
    folder: str
    version: int | None
    kind: str
    where: str | None
    definition: TableDefinition

    def to_json(self) -> str:
        definition = {**vars(self.definition), "schema": self.definition.schema.jsonValue()}
        return json.dumps({**vars(self), "definition": definition})

    @staticmethod
    def of_json(plan: str) -> WritePlan:
        found = json.loads(plan)
        given = found.pop("definition")
        schema, partition_columns = StructType.fromJson(given.pop("schema")), tuple(given.pop("partition_columns"))
        return WritePlan(**found, definition=TableDefinition(schema, partition_columns, **given))


def plan_write(
    options: Mapping[str, str],
    settings: Mapping[str, str],
    schema: StructType,
    overwrite: bool,
    *,
    streams: bool = False,
) -> tuple[RowsToWrite, str, Mapping[str, str]]:
    """Plan a write.

    Returns:
        How tasks write rows; what is to be committed, as JSON; the settings.
    """
    request = Request(options, settings)
    given = without_location(schema)
    wanted = replace(asked_write(request, overwrite), properties=option_properties(request))
    if streams:
        # As delta-spark, whose streams do not know the option.
        wanted = replace(wanted, data_change=True)
    snapshot = request.snapshot() if table_exists(request.store) else None
    has_partitions = snapshot is not None and bool(snapshot.metadata.partition_columns)
    if wanted.kind == "dynamic" and (streams or not has_partitions):
        # A batch of the mode complete is the whole table.
        wanted = replace(wanted, kind="overwrite")
    definition = _definition(request, wanted, snapshot, given)
    conditions = check_conditions(definition, given, request)
    where = None if wanted.condition is None else wanted.condition.text
    if where is not None:
        conditions += (rows_condition(where, given, definition, request),)
    folder = data_folder(definition.properties)
    plan = WritePlan(
        options,
        folder,
        None if snapshot is None else snapshot.version,
        wanted.kind,
        where,
        definition,
    )
    rows = _rows_to_write(request, definition, given, folder, conditions)
    request.store.make_folder(folder)
    return rows, plan.to_json(), settings


def _definition(request: Request, wanted: FrameWrite, snapshot: Snapshot | None, given: StructType) -> TableDefinition:
    """Return the table's definition after the write, and check that rows of the frame can be written to it."""
    if snapshot is None or wanted.kind == "overwrite_schema":
        refuse_new_definition(wanted.data_change, snapshot is not None)
        columns, defaults = wanted.partition_columns, default_properties(request.settings)
        properties = wanted.properties if snapshot is None else wanted.set_properties
        definition = new_definition(snapshot, request.path, new_schema(given), columns, properties, defaults)
        protocol_of(snapshot, definition)
    else:
        definition = written_definition(snapshot, request.path, wanted, given, request.conf)
    check_expressions(definition, given)
    check_columns(definition, given, request.path)
    return definition


def _rows_to_write(
    request: Request,
    definition: TableDefinition,
    given: StructType,
    folder: str,
    conditions: tuple[tuple[Condition, str], ...],
) -> RowsToWrite:
    target = _target(request, definition, folder)
    columns, partitions, fields, lengths = [], {}, [], {}
    for column in definition.schema.fields:
        if isinstance(column.dataType, NullType):
            continue
        stored = file_field(column, target.mode)
        part = given_part(column, column.dataType, stored.type)
        if column.name in definition.partition_columns:
            partitions[column.name] = (stored.name, part)
        else:
            fields.append(stored)
            columns.append(part)
        most = length_limit(column)
        if most is not None:
            lengths[column.name] = most
    constraints = constraints_of(definition.schema, definition.properties)
    partition_types = [each.dataType for each in definition.schema if each.name in definition.partition_columns]
    return RowsToWrite(
        files=request.files,
        table=request.path,
        folder=located(request.store, folder),
        schema=pa.schema(fields),
        columns=tuple(columns),
        partitions=tuple(partitions[name] for name in definition.partition_columns),
        not_null=tuple(each.path for each in constraints if isinstance(each, NotNull)),
        lengths=lengths,
        pads=char_lengths(definition.schema),
        conditions=conditions,
        most_bytes=target_file_size(definition.properties),
        most_rows=_records_per_file(request),
        options=parquet_options(_codec(request)),
        metadata={SPARK_VERSION: request.settings.get("spark.version", "").encode()},
        frame_schema=arrow_schema(given),
        time_zone=request.conf.session_time_zone if TimestampType() in partition_types else None,
    )


def _codec(request: Request) -> str:
    """Return PyArrow's name of the codec that a write asks for. Spark: ParquetOptions.

    Raises:
        DeltaIllegalArgumentException: Spark has no such codec, or PyArrow does not.
    """
    setting = request.settings.get("spark.sql.parquet.compression.codec", "snappy")
    asked = request.options.get("compression", request.options.get("parquet.compression", setting))
    found = _CODECS.get(asked.lower())
    if found is None:
        available = ", ".join(sorted(_CODECS))
        raise DeltaIllegalArgumentException(
            "CODEC_NOT_AVAILABLE.WITH_AVAILABLE_CODECS_SUGGESTION",
            f"The codec {asked} is not available to write table {request.path}. Available codecs are {available}: set "
            "the option compression, or spark.sql.parquet.compression.codec, to one of them.",
            parameters={"codecName": asked, "availableCodecs": available},
        )
    return found


def _records_per_file(request: Request) -> int | None:
    """Return the most rows of a file; None without a limit."""
    asked = request.number("maxRecordsPerFile")
    most = int(request.settings.get("spark.sql.files.maxRecordsPerFile") or 0) if asked is None else asked
    return most if most > 0 else None


def _target(request: Request, definition: TableDefinition, folder: str) -> WriteTarget:
    return WriteTarget(
        store=request.store,
        schema=definition.schema,
        partition_columns=definition.partition_columns,
        configuration=definition.properties,
        folder=folder,
    )


def commit_write(plan: str, settings: Mapping[str, str], messages: Sequence[Any]) -> None:
    found = WritePlan.of_json(plan)
    # The session's mode may have changed since it was registered.
    modes = {message.overwrite_mode for message in messages if message is not None}
    request = Request(found.options, {**settings, PARTITION_OVERWRITE_MODE: modes.pop() or "static"})
    asked = asked_write(request, found.kind != "append")
    if asked.kind in ("dynamic", "overwrite") and found.definition.partition_columns:
        found = replace(found, kind=asked.kind)
    _commit(found, request, messages, asked)


def commit_batch(plan: str, settings: Mapping[str, str], messages: Sequence[Any], batch: int) -> None:
    """Commit a batch of a stream, unless the table has it already; else as `commit_write`.

    Args:
        plan: The one that Spark asks for with the commit; tasks have written by another one.
    """
    given = [message for message in messages if message is not None]
    if plan not in {message.plan for message in given}:
        unused = WritePlan.of_json(plan)
        remove_leftovers(Request(unused.options, settings).store, unused.folder)
    if not given:
        return
    query, written = given[0].query, WritePlan.of_json(given[0].plan)
    request = Request(written.options, settings)
    if query is None:
        remove_leftovers(request.store, written.folder)
        raise DeltaRuntimeException(
            "DELTAMERGE_STREAM_WITHOUT_ID",
            "Spark does not tell the id of the streaming query, so that a batch could be written twice. Write with "
            "foreachBatch and deltamerge.write_delta(df, path, txn_app_id=…, txn_version=batch_id).",
        )
    entry = HistoryEntry.of_batch(query, batch, is_complete=written.kind != "append")
    asked = asked_write(request, written.kind != "append")
    # Spark says with each batch which one it is; the options of a transaction are for batch writes.
    notes = replace(asked.notes, transaction=ApplicationTransaction(query, batch))
    _commit(written, request, given, replace(asked, notes=notes, data_change=True, entry=entry))


def abort_write(plan: str, settings: Mapping[str, str], messages: Sequence[Any]) -> None:
    """Delete what the tasks of a write have written, where one of them failed: its message is None.

    With all messages the commit was tried. It may have landed, and where it surely did not it has cleaned up itself.
    """
    if None not in messages:
        return
    plans = {plan, *(message.plan for message in messages if message is not None)}
    for found in map(WritePlan.of_json, plans):
        remove_leftovers(Request(found.options, settings).store, found.folder)


def _commit(
    plan: WritePlan,
    request: Request,
    messages: Sequence[Any],
    asked: FrameWrite,
) -> None:
    store, transaction = request.store, asked.notes.transaction
    with removing_leftovers(store, plan.folder):
        if transaction is not None and table_exists(store) and transaction.is_in(request.snapshot()):
            remove_leftovers(store, plan.folder)
            return
        definition = plan.definition
        done = [part for message in messages if message is not None for part in message.parts]
        files = files_of_tasks(_target(request, definition, plan.folder), done)
        if not files.files:
            store.delete_folder(plan.folder)
        destination, named = asked.notes.destination(store, request.conf), asked.notes.named()
        snapshot = None if plan.version is None else request.snapshot(plan.version)
        if snapshot is None or plan.kind == "overwrite_schema":
            entry = asked.history_entry(definition.partition_columns)
            commit_definition(destination, snapshot, definition, files, entry, named, overwrites=True)
            return
        replaced = _replaced(plan, request, snapshot, files, keeps_null=asked.keeps_null_partitions)
        entry = asked.history_entry(asked.partition_columns or (), is_dynamic=plan.kind == "dynamic")
        rows = WrittenRows(
            definition,
            snapshot.protocol,
            files,
            replaced,
            plan.where is not None,
            # Which frame the rows come from is not seen here: they may have been computed from other partitions.
            read_table=replaced is not None,
            data_change=asked.data_change,
        )
        commit_rows(destination, snapshot, rows, named, entry)


def _replaced(
    plan: WritePlan, request: Request, snapshot: Snapshot, written: WrittenFiles, *, keeps_null: bool
) -> Replaced | None:
    """Return the files whose place the written ones take; None for an append."""
    if plan.kind == "append":
        return None
    if plan.kind == "overwrite":
        return Replaced(snapshot.files)
    if plan.kind == "dynamic":
        zone = request.conf.session_time_zone
        return replaced_among(snapshot, of_same_partitions(snapshot, written, zone, keeps_null=keeps_null))
    assert plan.where is not None
    return replaced_among(snapshot, partial(files_where, plan.where, plan.definition, request, snapshot))
