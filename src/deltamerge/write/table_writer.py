"""Creates, appends to and overwrites tables."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from deltamerge.exceptions import DeltaAnalysisException, DeltaRuntimeException
from deltamerge.log.actions import Action, Metadata, Protocol, SetTransaction
from deltamerge.log.features.clustering import FEATURE, clustering_columns, clustering_domain
from deltamerge.log.features.column_mapping import (
    NONE,
    mapping_mode,
    with_column_ids,
    without_mapping,
)
from deltamerge.log.features.row_tracking import with_column_names
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.snapshot import Snapshot, table_exists
from deltamerge.skipping.predicates import ALWAYS
from deltamerge.spark import columns as F
from deltamerge.spark.config import MergeConf
from deltamerge.spark.session import READING_MANY_FILES, merge_conf, session_settings
from deltamerge.spark.table import Table
from deltamerge.txn.application import ApplicationTransaction
from deltamerge.txn.prepared import PreparedCommit, ReadSet
from deltamerge.txn.transaction import commit
from deltamerge.version import ENGINE_INFO
from deltamerge.write.align import align, unknown_fields
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.char_varchar import as_strings, excess_in
from deltamerge.write.constraints import checked, violation_in
from deltamerge.write.data_files import (
    WriteTarget,
    WrittenFiles,
    leaving_nothing_behind,
    remove_leftovers,
    write_files,
)
from deltamerge.write.defaults import column_defaults
from deltamerge.write.definition import TableDefinition, check_definition, physical_names
from deltamerge.write.generated_columns import (
    GENERATION_EXPRESSION,
    check_generation_expressions,
    with_generated,
)
from deltamerge.write.identity_columns import (
    IDENTITY,
    check_identity_columns,
    identities_given,
    with_high_water_marks,
)
from deltamerge.write.inert import schema_to_commit, schema_to_write
from deltamerge.write.layout import data_folder
from deltamerge.write.store_assignment import StoreAssignment, can_up_cast, overflow_in
from deltamerge.write.table_features import protocol_for, stored_properties, upgraded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def create_table(table: Table, definition: TableDefinition, mode: str) -> None:
    """Create a table without rows.

    Args:
        table: Where.
        definition: What it is to be.
        mode: ``create``, ``create_if_not_exists``, ``replace`` or ``create_or_replace``.

    Raises:
        DeltaAnalysisException: There is a table where none may be, or none where one must be, or the definition is
            wrong.
    """
    exists = table_exists(table.store)
    if exists and mode == "create_if_not_exists":
        return
    if exists and mode == "create":
        raise DeltaAnalysisException(
            "DELTA_TABLE_ALREADY_EXISTS",
            f"Table {table.name} already exists. Use createIfNotExists, replace or createOrReplace, or another "
            "location.",
            sqlstate="42P07",
            parameters={"tableName": table.name},
        )
    if not exists and mode == "replace":
        raise DeltaAnalysisException(
            "DELTA_CANNOT_REPLACE_MISSING_TABLE",
            f"Table {table.name} cannot be replaced as it does not exist. Use createOrReplace to make it.",
            sqlstate="42P01",
            parameters={"tableName": table.name},
        )
    definition = replace(definition, schema=as_strings(definition.schema))
    check_definition(definition)
    check_identity_columns(definition.schema, definition.partition_columns)
    check_generation_expressions(table.spark, definition.schema)
    before = table.snapshot() if exists else None
    _commit_definition(table, before, _with_column_ids(definition, before), WrittenFiles((), (), ()))


def write_table(
    table: Table,
    frame: DataFrame,
    mode: str,
    partition_columns: tuple[str, ...] | None,
    properties: Mapping[str, str],
    transaction: ApplicationTransaction | None = None,
) -> int | None:
    """Write a frame's rows as a table.

    Args:
        table: Where.
        frame: The rows.
        mode: ``append``, ``overwrite``, ``overwrite_schema`` or ``error``.
        partition_columns: The partition columns of a new table; None leaves an existing table's.
        properties: Properties of a new or overwritten table.
        transaction: The application's transaction, which is done once.

    Returns:
        The version that was made, or None where the table has the transaction already.

    Raises:
        DeltaAnalysisException: The frame does not fit the table, or there is a table and the mode is ``error``.
        InvariantViolationException: A row violates a constraint.
    """
    exists = table_exists(table.store)
    before = table.snapshot() if exists and (transaction is not None or mode != "error") else None
    if before is not None and transaction is not None and transaction.is_in(before):
        return None
    if exists and mode == "error":
        raise DeltaAnalysisException(
            "DELTA_PATH_EXISTS",
            f"Cannot write to existing table {table.name} with mode error. Use append or overwrite.",
            sqlstate="42K04",
        )
    named = () if transaction is None else (transaction.action(_now()),)
    if before is not None and mode == "append":
        return _append(table, before, frame, partition_columns, named)
    if before is not None and mode == "overwrite":
        return _overwrite(table, before, frame, partition_columns, properties, named)
    schema = as_strings(_plain(frame.schema))
    definition = TableDefinition(schema, partition_columns or (), properties)
    if before is not None:
        before.check_writable()
        refuse_append_only(before, table.name, "the overwrite deletes rows")
        definition = _redefined(before.metadata, schema, partition_columns, properties)
    check_definition(definition)
    _protocol(before, definition)
    definition = _with_column_ids(definition, before)
    folder = data_folder(definition.properties, str(uuid.uuid4()))
    with leaving_nothing_behind(table.store, folder):
        written = _write(table, frame, definition, folder)
        return _commit_definition(table, before, definition, written, named)


def _redefined(
    before: Metadata,
    schema: StructType,
    partition_columns: tuple[str, ...] | None,
    properties: Mapping[str, str],
) -> TableDefinition:
    """Return a table's definition with another schema."""
    return TableDefinition(
        schema,
        before.partition_columns if partition_columns is None else partition_columns,
        {**before.configuration, **properties},
        description=before.description,
        name=before.name,
    )


def _plain(schema: StructType) -> StructType:
    """A new table's columns and fields are nullable and never generated, as delta-spark makes them of a frame."""
    return StructType(
        [StructField(f.name, _as_nullable(f.dataType), True, _plain_metadata(f)) for f in schema.fields]
    )


def _as_nullable(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        fields = [StructField(f.name, _as_nullable(f.dataType), True, f.metadata) for f in data_type.fields]
        return StructType(fields)
    if isinstance(data_type, ArrayType):
        return ArrayType(_as_nullable(data_type.elementType))
    if isinstance(data_type, MapType):
        return MapType(_as_nullable(data_type.keyType), _as_nullable(data_type.valueType))
    return data_type


def _plain_metadata(field: StructField) -> dict[str, Any]:
    """A frame may have been read from a table with columns of this kind."""
    metadata = field.metadata or {}
    return {k: v for k, v in metadata.items() if k != GENERATION_EXPRESSION and not k.startswith(IDENTITY)}


def _append(
    table: Table,
    snapshot: Snapshot,
    frame: DataFrame,
    partition_columns: tuple[str, ...] | None,
    named: tuple[SetTransaction, ...],
) -> int:
    snapshot.check_writable()
    _check_partitioning(table, snapshot.metadata, partition_columns)
    definition = _definition_of(snapshot)
    folder = data_folder(definition.properties, str(uuid.uuid4()))
    with leaving_nothing_behind(table.store, folder):
        written, schema = _write_into(table, frame, definition, folder)
        actions: tuple[Action, ...] = (
            *_changed_metadata(snapshot, definition.properties, schema),
            *named,
            *written.files,
        )
        prepared = _prepared(table, snapshot, actions, "WRITE", _write_parameters("Append", definition))
        prepared = replace(prepared, operation_metrics=_metrics(written))
        return commit(replace(prepared, read_set=ReadSet(), is_blind_append=True), _now).version


def _overwrite(
    table: Table,
    snapshot: Snapshot,
    frame: DataFrame,
    partition_columns: tuple[str, ...] | None,
    properties: Mapping[str, str],
    named: tuple[SetTransaction, ...],
) -> int:
    """Replace a table's rows. Delta: ImplicitMetadataOperation, without overwriteSchema."""
    snapshot.check_writable()
    refuse_append_only(snapshot, table.name, "the overwrite deletes rows")
    _check_partitioning(table, snapshot.metadata, partition_columns)
    definition = _definition_of(snapshot)
    configuration = with_column_names({**definition.properties, **stored_properties(properties)})
    protocol = upgraded(snapshot.protocol, protocol_for(StructType([]), properties))
    definition = replace(definition, properties=configuration)
    if mapping_mode(configuration) != mapping_mode(snapshot.metadata.configuration):
        definition = _with_column_ids(definition, snapshot)
    folder = data_folder(definition.properties, str(uuid.uuid4()))
    with leaving_nothing_behind(table.store, folder):
        written, schema = _write_into(table, frame, definition, folder)
        now = _now()
        actions: tuple[Action, ...] = (
            *(() if protocol == snapshot.protocol else (protocol,)),
            *_changed_metadata(snapshot, definition.properties, schema),
            *named,
            *(file.remove(now) for file in snapshot.files.add_files()),
            *written.files,
        )
        prepared = _prepared(table, snapshot, actions, "WRITE", _write_parameters("Overwrite", definition))
        return commit(replace(prepared, operation_metrics=_metrics(written)), _now).version


def _definition_of(snapshot: Snapshot) -> TableDefinition:
    metadata = snapshot.metadata
    return TableDefinition(schema_to_write(snapshot), metadata.partition_columns, metadata.configuration)


def _check_partitioning(table: Table, metadata: Metadata, partition_columns: tuple[str, ...] | None) -> None:
    if partition_columns is not None and partition_columns != metadata.partition_columns:
        raise DeltaAnalysisException(
            "DELTA_PARTITION_COLUMNS_MISMATCH",
            f"Partition columns do not match those of table {table.name}: given {list(partition_columns)}, the table "
            f"has {list(metadata.partition_columns)}. To replace them: mode='overwrite', overwrite_schema=True.",
            sqlstate="42K0E",
        )


def _write_into(
    table: Table, frame: DataFrame, definition: TableDefinition, folder: str
) -> tuple[WrittenFiles, StructType]:
    """Write rows of an existing table; return also its schema with the high water marks after them."""
    schema = definition.schema
    fitted, given = _fitted(frame, schema, merge_conf(table.spark), table.name)
    with identities_given(fitted, schema, given) as (rows, identities):
        written = _write(table, with_generated(rows, schema, given), definition, folder)
    return written, with_high_water_marks(schema, identities, table.store, written.files)


def _changed_metadata(
    snapshot: Snapshot, configuration: Mapping[str, str], schema: StructType
) -> tuple[Metadata, ...]:
    """Return the metadata to commit, none where nothing of it changes."""
    metadata = replace(snapshot.metadata, configuration=dict(configuration))
    if schema != schema_to_write(snapshot):
        text = json.dumps(schema_to_commit(schema, snapshot).jsonValue())
        metadata = replace(metadata, schema_string=text)
    return () if metadata == snapshot.metadata else (metadata,)


def _fitted(
    frame: DataFrame, schema: StructType, conf: MergeConf, table: str
) -> tuple[DataFrame, frozenset[str]]:
    """Return a frame in the table's columns and types, with defaults for missing ones, and the names of the others."""
    assignment = StoreAssignment(conf.store_assignment_policy, conf.ansi_enabled, conf.case_sensitive)
    given = {f.name if conf.case_sensitive else f.name.lower(): f for f in frame.schema.fields}
    known = {f.name if conf.case_sensitive else f.name.lower(): f for f in schema.fields}
    unknown = [f.name for key, f in given.items() if key not in known]
    for key in given.keys() & known.keys():
        types = given[key].dataType, known[key].dataType
        unknown += unknown_fields(*types, known[key].name, conf.case_sensitive)
    if unknown:
        raise DeltaAnalysisException(
            "DELTA_SCHEMA_MISMATCH",
            f"The frame has columns that table {table} lacks: {', '.join(unknown)}. Leave them "
            "out, or replace the table's schema: mode='overwrite', overwrite_schema=True.",
            sqlstate="42KDG",
        )
    columns, default = [], column_defaults(schema, _now() * 1000)
    for index, (key, f) in enumerate(known.items()):
        value = _stored(given[key], f, assignment) if key in given else default(index)
        columns.append(value.alias(f.name))
    return frame.select(*columns), frozenset(f.name for key, f in known.items() if key in given)


def _stored(given: StructField, wanted: StructField, assignment: StoreAssignment) -> Column:
    """Return a column with its type in the table: structs by name, values as an assignment of MERGE stores them."""
    if assignment.policy == "STRICT" and not can_up_cast(given.dataType, wanted.dataType):
        source, target = given.dataType.simpleString().upper(), wanted.dataType.simpleString().upper()
        raise DeltaAnalysisException(
            "CANNOT_UP_CAST_DATATYPE",
            f"Cannot up cast {given.name} from {source} to {target}: spark.sql.storeAssignmentPolicy is STRICT. "
            "Cast the column, or set the policy to ANSI.",
            sqlstate="42846",
        )
    value = F.col("`" + given.name.replace("`", "``") + "`")
    return align(value, given.dataType, wanted.dataType, assignment.into(wanted.name))


def _write(table: Table, frame: DataFrame, definition: TableDefinition, folder: str) -> WrittenFiles:
    target = WriteTarget(
        store=table.store,
        schema=definition.schema,
        log_schema=parse_schema(definition.schema.json()),
        partition_columns=definition.partition_columns,
        configuration=definition.properties,
        folder=folder,
        clock=_now,
    )
    with session_settings(table.spark, READING_MANY_FILES):
        try:
            return write_files(checked(frame, definition.schema, definition.properties), target)
        except KeyboardInterrupt:
            remove_leftovers(table.store, folder)
            raise
        except Exception as error:
            found = violation_in(str(error), table.name) or excess_in(str(error)) or _overflow(str(error))
            raise found or error from error


def _overflow(message: str) -> DeltaRuntimeException | None:
    overflow = overflow_in(message)
    if overflow is None:
        return None
    return DeltaRuntimeException(
        overflow.condition,
        f"A value cannot be stored in its column: {overflow.words}. Nothing was written. Correct the value, or "
        "use try_cast for NULL in its place.",
        sqlstate=overflow.sqlstate,
        parameters=overflow.parameters,
    )


def _commit_definition(
    table: Table,
    snapshot: Snapshot | None,
    definition: TableDefinition,
    files: WrittenFiles,
    named: tuple[SetTransaction, ...] = (),
) -> int:
    now = _now()
    metadata = Metadata(
        id=snapshot.metadata.id if snapshot is not None else str(uuid.uuid4()),
        name=definition.name,
        description=definition.description,
        schema_string=json.dumps(definition.schema.jsonValue()),
        partition_columns=definition.partition_columns,
        configuration=with_column_names(stored_properties(definition.properties)),
        created_time=snapshot.metadata.created_time if snapshot is not None else now,
    )
    protocol = _protocol(snapshot, definition)
    actions: list[Action] = [metadata, *named]
    if snapshot is None or snapshot.protocol != protocol:
        actions.insert(0, protocol)
    if snapshot is not None:
        snapshot.check_writable()
        actions += [file.remove(now) for file in snapshot.files.add_files()]
    actions += files.files
    actions += _clustering(snapshot, definition)
    operation = "WRITE" if files.files else ("CREATE TABLE" if snapshot is None else "REPLACE TABLE")
    parameters = (
        _write_parameters("Overwrite" if snapshot is not None else "ErrorIfExists", definition)
        if operation == "WRITE"
        else _create_parameters(definition)
    )
    prepared = _prepared(table, snapshot, tuple(actions), operation, parameters)
    if files.files:
        prepared = replace(prepared, operation_metrics=_metrics(files))
    return commit(prepared, _now).version


def _protocol(snapshot: Snapshot | None, definition: TableDefinition) -> Protocol:
    """Return a new table's protocol, or an existing table's with what the definition needs besides."""
    clustering = {f"delta.feature.{FEATURE}": "supported"} if definition.clustered_by else {}
    needed = protocol_for(definition.schema, {**definition.properties, **clustering})
    return needed if snapshot is None else upgraded(snapshot.protocol, needed)


def _with_column_ids(definition: TableDefinition, before: Snapshot | None) -> TableDefinition:
    """Assign ids to the columns of a definition that maps them; an overwritten table's columns keep theirs."""
    text = schema_to_json(without_mapping(parse_schema(json.dumps(definition.schema.jsonValue()))))
    found = with_column_ids(
        Metadata("", schema_string=text, configuration=definition.properties),
        lambda: str(uuid.uuid4()),
        before.schema if before is not None and _is_mapped(before) else None,
    )
    schema = StructType.fromJson(json.loads(found.schema_string or text))
    return replace(definition, schema=schema, properties=found.configuration)


def _is_mapped(snapshot: Snapshot) -> bool:
    return mapping_mode(snapshot.metadata.configuration) != NONE


def _clustering(snapshot: Snapshot | None, definition: TableDefinition) -> list[Action]:
    """Return the clustering to commit; columns that the table no longer has are dropped from it."""
    physical = physical_names(definition.schema)
    if definition.clustered_by:
        return [clustering_domain([(physical[name],) for name in definition.clustered_by])]
    before = () if snapshot is None else clustering_columns(snapshot.domain_metadata)
    if all(parts[0] in physical.values() for parts in before):
        return []
    return [clustering_domain([])]


def _prepared(
    table: Table,
    snapshot: Snapshot | None,
    actions: tuple[Action, ...],
    operation: str,
    parameters: dict[str, str],
) -> PreparedCommit:
    return PreparedCommit(
        snapshot=table.store if snapshot is None else snapshot,
        actions=actions,
        read_set=ReadSet() if snapshot is None else ReadSet((ALWAYS,), frozenset(), whole_table=True),
        operation=operation,
        operation_parameters=parameters,
        operation_metrics={},
        isolation_level="Serializable",
        is_blind_append=False,
        user_metadata=merge_conf(table.spark).user_metadata,
        engine_info=ENGINE_INFO,
        txn_id=str(uuid.uuid4()),
        session_time_zone=merge_conf(table.spark).session_time_zone,
    )


def _metrics(written: WrittenFiles) -> dict[str, str]:
    return {
        "numFiles": str(len(written.files)),
        "numOutputRows": str(written.row_count),
        "numOutputBytes": str(sum(file.size for file in written.files)),
    }


def _write_parameters(mode: str, definition: TableDefinition) -> dict[str, str]:
    return {"mode": mode, "partitionBy": json.dumps(list(definition.partition_columns))}


def _create_parameters(definition: TableDefinition) -> dict[str, str]:
    return {
        "isManaged": "false",
        "description": definition.description or "",
        "partitionBy": json.dumps(list(definition.partition_columns)),
        "properties": json.dumps(dict(definition.properties)),
    }


def _now() -> int:
    return int(time.time() * 1000)
