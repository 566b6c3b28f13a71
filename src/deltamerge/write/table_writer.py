"""Creates, appends to and overwrites tables."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import Action, Metadata, Protocol, SetTransaction
from deltamerge.log.features.clustering import FEATURE, clustering_columns, clustering_domain
from deltamerge.log.features.column_mapping import NONE, mapping_mode, with_column_ids, without_mapping
from deltamerge.log.features.row_tracking import with_column_names
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.snapshot import Snapshot, table_exists
from deltamerge.skipping.predicates import ALWAYS
from deltamerge.spark.config import PREFIX
from deltamerge.spark.session import merge_conf, settings_below
from deltamerge.spark.table import Table
from deltamerge.txn.application import ApplicationTransaction
from deltamerge.txn.prepared import PreparedCommit, ReadSet
from deltamerge.txn.transaction import commit
from deltamerge.version import ENGINE_INFO
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.char_varchar import as_strings
from deltamerge.write.data_files import WrittenFiles, removing_leftovers
from deltamerge.write.definition import TableDefinition, check_definition, physical_names
from deltamerge.write.frame_rows import new_schema, now_ms, write_checked, write_fitted
from deltamerge.write.generated_columns import check_generation_expressions
from deltamerge.write.identity_columns import check_identity_columns
from deltamerge.write.inert import schema_to_commit, schema_to_write
from deltamerge.write.layout import data_folder
from deltamerge.write.table_features import protocol_for, stored_properties, upgraded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def create_table(table: Table, definition: TableDefinition, mode: str) -> None:
    """Create a table without rows.

    Args:
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
    properties = {**_default_properties(table), **definition.properties}
    definition = replace(definition, schema=as_strings(definition.schema), properties=properties)
    check_definition(definition)
    check_identity_columns(definition.schema, definition.partition_columns)
    check_generation_expressions(table.spark, definition.schema)
    before = table.snapshot() if exists else None
    _commit_definition(table, before, _with_column_ids(definition, before), WrittenFiles((), (), ()))


def _default_properties(table: Table) -> dict[str, str]:
    """Return the properties that the session sets for all new tables. Delta: DeltaConfigs.mergeGlobalConfigs."""
    found = settings_below(table.spark, f"{PREFIX}properties.defaults.")
    return {f"delta.{name}": value for name, value in found.items()}


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
        mode: ``append``, ``overwrite``, ``overwrite_schema`` or ``error``.
        partition_columns: The partition columns of a new table; None leaves an existing table's.
        properties: Properties of a new or overwritten table.

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
    named = () if transaction is None else (transaction.action(now_ms()),)
    if before is not None and mode in ("append", "overwrite"):
        new_properties = properties if mode == "overwrite" else None
        return _write_rows(table, before, frame, partition_columns, new_properties, named)
    given = properties if exists else {**_default_properties(table), **properties}
    definition = TableDefinition(new_schema(frame), partition_columns or (), given)
    if before is not None:
        before.check_writable()
        refuse_append_only(before, table.name, "the overwrite deletes rows")
        definition = replace(
            definition,
            partition_columns=before.metadata.partition_columns if partition_columns is None else partition_columns,
            properties={**before.metadata.configuration, **properties},
            description=before.metadata.description,
            name=before.metadata.name,
        )
    check_definition(definition)
    _protocol(before, definition)
    definition = _with_column_ids(definition, before)
    folder = data_folder(definition.properties, str(uuid.uuid4()))
    with removing_leftovers(table.store, folder):
        written = write_checked(table, frame, definition, folder)
        return _commit_definition(table, before, definition, written, named)


def _write_rows(
    table: Table,
    snapshot: Snapshot,
    frame: DataFrame,
    partition_columns: tuple[str, ...] | None,
    properties: Mapping[str, str] | None,
    named: tuple[SetTransaction, ...],
) -> int:
    """Append rows to a table, or, where there are `properties`, replace its rows and set them.

    Delta: ImplicitMetadataOperation, without overwriteSchema.
    """
    snapshot.check_writable()
    if properties is not None:
        refuse_append_only(snapshot, table.name, "the overwrite deletes rows")
    metadata, protocol = snapshot.metadata, snapshot.protocol
    if partition_columns not in (None, metadata.partition_columns):
        raise DeltaAnalysisException(
            "DELTA_PARTITION_COLUMNS_MISMATCH",
            f"Partition columns do not match those of table {table.name}: given {list(partition_columns or ())}, the "
            f"table has {list(metadata.partition_columns)}. To replace them: mode='overwrite', overwrite_schema=True.",
            sqlstate="42K0E",
        )
    definition = TableDefinition(schema_to_write(snapshot), metadata.partition_columns, metadata.configuration)
    if properties is not None:
        configuration = with_column_names({**metadata.configuration, **stored_properties(properties)})
        protocol = upgraded(protocol, protocol_for(StructType([]), properties))
        definition = replace(definition, properties=configuration)
        if mapping_mode(configuration) != mapping_mode(metadata.configuration):
            definition = _with_column_ids(definition, snapshot)
    folder = data_folder(definition.properties, str(uuid.uuid4()))
    with removing_leftovers(table.store, folder):
        written, schema = write_fitted(table, frame, definition, folder)
        actions: tuple[Action, ...] = (
            *(() if protocol == snapshot.protocol else (protocol,)),
            *_changed_metadata(snapshot, definition.properties, schema),
            *named,
            *(() if properties is None else _removals(snapshot)),
            *written.files,
        )
        mode = "Append" if properties is None else "Overwrite"
        prepared = _prepared(table, snapshot, actions, written, _write_parameters(mode, definition))
        if properties is None:
            prepared = replace(prepared, read_set=ReadSet(), is_blind_append=True)
        return commit(prepared, now_ms).version


def _removals(snapshot: Snapshot) -> list[Action]:
    now = now_ms()
    return [file.remove(now) for file in snapshot.files.add_files()]


def _changed_metadata(snapshot: Snapshot, configuration: Mapping[str, str], schema: StructType) -> tuple[Metadata, ...]:
    """Return the metadata to commit, none where nothing of it changes."""
    metadata = replace(snapshot.metadata, configuration=dict(configuration))
    if schema != schema_to_write(snapshot):
        committed = json.dumps(schema_to_commit(schema, snapshot).jsonValue())
        metadata = replace(metadata, schema_string=committed)
    return () if metadata == snapshot.metadata else (metadata,)


def _commit_definition(
    table: Table,
    snapshot: Snapshot | None,
    definition: TableDefinition,
    files: WrittenFiles,
    named: tuple[SetTransaction, ...] = (),
) -> int:
    metadata = Metadata(
        id=snapshot.metadata.id if snapshot is not None else str(uuid.uuid4()),
        name=definition.name,
        description=definition.description,
        schema_string=json.dumps(definition.schema.jsonValue()),
        partition_columns=definition.partition_columns,
        configuration=with_column_names(stored_properties(definition.properties)),
        created_time=snapshot.metadata.created_time if snapshot is not None else now_ms(),
    )
    protocol = _protocol(snapshot, definition)
    actions: list[Action] = [metadata, *named]
    if snapshot is None or snapshot.protocol != protocol:
        actions.insert(0, protocol)
    if snapshot is not None:
        snapshot.check_writable()
        actions += _removals(snapshot)
    actions += files.files
    actions += _clustering(snapshot, definition)
    if files.files:
        mode = "ErrorIfExists" if snapshot is None else "Overwrite"
        prepared = _prepared(table, snapshot, tuple(actions), files, _write_parameters(mode, definition))
    else:
        operation = "CREATE TABLE" if snapshot is None else "REPLACE TABLE"
        prepared = _prepared(table, snapshot, tuple(actions), None, _create_parameters(definition), operation)
    return commit(prepared, now_ms).version


def _protocol(snapshot: Snapshot | None, definition: TableDefinition) -> Protocol:
    """Return a new table's protocol, or an existing table's with what the definition needs besides."""
    clustering = {f"delta.feature.{FEATURE}": "supported"} if definition.clustered_by else {}
    needed = protocol_for(definition.schema, {**definition.properties, **clustering})
    return needed if snapshot is None else upgraded(snapshot.protocol, needed)


def _with_column_ids(definition: TableDefinition, before: Snapshot | None) -> TableDefinition:
    """Assign ids to the columns of a definition that maps them; an overwritten table's columns keep theirs."""
    unmapped = schema_to_json(without_mapping(parse_schema(json.dumps(definition.schema.jsonValue()))))
    found = with_column_ids(
        Metadata("", schema_string=unmapped, configuration=definition.properties),
        lambda: str(uuid.uuid4()),
        None if before is None or mapping_mode(before.metadata.configuration) == NONE else before.schema,
    )
    schema = StructType.fromJson(json.loads(found.schema_string or unmapped))
    return replace(definition, schema=schema, properties=found.configuration)


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
    written: WrittenFiles | None,
    parameters: dict[str, str],
    operation: str = "WRITE",
) -> PreparedCommit:
    conf, metrics = merge_conf(table.spark), {}
    if written is not None:
        metrics = {
            "numFiles": str(len(written.files)),
            "numOutputRows": str(written.row_count),
            "numOutputBytes": str(sum(file.size for file in written.files)),
        }
    return PreparedCommit(
        snapshot=table.store if snapshot is None else snapshot,
        actions=actions,
        read_set=ReadSet() if snapshot is None else ReadSet((ALWAYS,), frozenset(), whole_table=True),
        operation=operation,
        operation_parameters=parameters,
        operation_metrics=metrics,
        isolation_level="Serializable",
        is_blind_append=False,
        user_metadata=conf.user_metadata,
        engine_info=ENGINE_INFO,
        txn_id=str(uuid.uuid4()),
        session_time_zone=conf.session_time_zone,
    )


def _write_parameters(mode: str, definition: TableDefinition) -> dict[str, str]:
    return {"mode": mode, "partitionBy": json.dumps(list(definition.partition_columns))}


def _create_parameters(definition: TableDefinition) -> dict[str, str]:
    return {
        "isManaged": "false",
        "description": definition.description or "",
        "partitionBy": json.dumps(list(definition.partition_columns)),
        "properties": json.dumps(dict(definition.properties)),
    }
