"""ALTER TABLE: properties and the comment, CHECK constraints, clustering columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql.types import StructType

from deltamerge.commands.committing import NOTHING_READ, commit_command
from deltamerge.exceptions import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltamerge.log.actions import Action, Metadata, compact_json
from deltamerge.log.features.clustering import DOMAIN, FEATURE, clustering_domain
from deltamerge.log.features.column_mapping import (
    MAX_COLUMN_ID,
    MODE,
    NAME,
    NONE,
    mapping_mode,
    with_column_ids,
    with_own_names,
)
from deltamerge.log.features.row_tracking import with_column_names
from deltamerge.log.properties import is_enabled
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.relation import table_frame
from deltamerge.skipping.predicates import ALWAYS
from deltamerge.spark import columns as F
from deltamerge.spark.config import CommandConf
from deltamerge.spark.session import errors_not_logged, session_conf
from deltamerge.spark.table import Table, spark_schema
from deltamerge.sql.names import shown_name
from deltamerge.sql.stored_expressions import check_stored
from deltamerge.txn.prepared import ReadSet
from deltamerge.write.constraints import CHECK_PREFIX
from deltamerge.write.definition import TableDefinition, as_spelled, check_clustering, physical_paths
from deltamerge.write.property_names import named_properties, spelled
from deltamerge.write.stats_columns import check_stats_columns
from deltamerge.write.table_features import protocol_for, stored_properties, upgraded

_COMMENT = "comment"
_ROW_TRACKING = "delta.enableRowTracking"
EVERYTHING_READ = ReadSet((ALWAYS,), frozenset(), whole_table=True)


def set_properties(table: Table, properties: Mapping[str, str]) -> None:
    """Set a table's properties; ``comment`` is its comment. Delta: AlterTableSetPropertiesDeltaCommand."""
    snapshot = table.snapshot_to_write()
    properties = named_properties(properties, any_name=session_conf(table.spark, CommandConf).any_property)
    _check_settable(snapshot, properties)
    stored = stored_properties({key: value for key, value in properties.items() if key != _COMMENT})
    before = snapshot.metadata
    metadata = replace(
        before,
        description=properties.get(_COMMENT, before.description),
        configuration=with_column_names({**before.configuration, **stored}),
    )
    if mapping_mode(metadata.configuration) != mapping_mode(before.configuration):
        # Files have the names that the columns have now.
        schema = with_own_names(parse_schema(metadata.schema_string))
        metadata = with_column_ids(replace(metadata, schema_string=schema_to_json(schema)))
    shown = {key.lower() if key.startswith("delta.feature.") else key: value for key, value in properties.items()}
    parameters = {"properties": compact_json(shown)}
    # Row ids are turned on for tables without files: no other writer may add one meanwhile.
    read = EVERYTHING_READ if _turns_on_row_ids(snapshot, properties) else NOTHING_READ
    _commit(table, snapshot, "SET TBLPROPERTIES", parameters, metadata, properties, read)


def _check_settable(snapshot: Snapshot, properties: Mapping[str, str]) -> None:
    if any(key.lower().startswith(CHECK_PREFIX) for key in properties):
        raise DeltaAnalysisException(
            "DELTA_ADD_CONSTRAINTS", "Please use ALTER TABLE ADD CONSTRAINT to add CHECK constraints."
        )
    if any(key.lower() == f"delta.feature.{FEATURE}" for key in properties):
        raise DeltaAnalysisException(
            "DELTA_ALTER_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED",
            f"Cannot enable the table feature {FEATURE} by ALTER TABLE SET TBLPROPERTIES: use CLUSTER BY.",
            parameters={"tableFeature": FEATURE},
        )
    _refuse_column_ids(properties)
    check_stats_columns(snapshot.schema, snapshot.metadata.partition_columns, properties)
    for key in ("location", "provider"):
        if key in properties:
            raise DeltaAnalysisException(
                f"DELTA_CANNOT_CHANGE_{key.upper()}", f"'{key}' is a reserved table property, and cannot be altered."
            )
    before, after = snapshot.mapping_mode, mapping_mode({**snapshot.metadata.configuration, **properties})
    if before != after and (before, after) != (NONE, NAME):
        raise DeltaAnalysisException(
            "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
            f"Changing column mapping mode from '{before}' to '{after}' is not supported.",
            parameters={"oldMode": before, "newMode": after},
        )
    if _turns_on_row_ids(snapshot, properties) and snapshot.files.num_files:
        raise DeltaUnsupportedOperationException(
            "DELTA_OPERATION_NOT_ALLOWED",
            f"Operation not allowed: {_ROW_TRACKING} = true on a table that has rows, which would need ids first. "
            "Set it when the table is made, or with delta-spark.",
            parameters={"operation": _ROW_TRACKING},
        )


def _refuse_column_ids(keys: Iterable[str]) -> None:
    """Refuse to change the highest id that a column has had: an id that is used again finds another column's values."""
    if MAX_COLUMN_ID in keys:
        raise DeltaUnsupportedOperationException(
            "DELTA_CANNOT_MODIFY_TABLE_PROPERTY",
            f"The Delta table configuration {MAX_COLUMN_ID} cannot be specified by the user.",
            parameters={"prop": MAX_COLUMN_ID},
        )


def _turns_on_row_ids(snapshot: Snapshot, properties: Mapping[str, str]) -> bool:
    is_on = is_enabled(snapshot.metadata.configuration, _ROW_TRACKING)
    return not is_on and is_enabled(properties, _ROW_TRACKING)


def unset_properties(table: Table, keys: Sequence[str]) -> None:
    """Unset properties of a table, those that it has. Delta: AlterTableUnsetPropertiesDeltaCommand."""
    snapshot = table.snapshot_to_write()
    before = snapshot.metadata
    keys = [spelled(key) for key in keys]
    if snapshot.mapping_mode != NONE:
        _refuse_column_ids(keys)
        if MODE in keys:
            _check_settable(snapshot, {MODE: NONE})
    metadata = replace(
        before,
        description=None if _COMMENT in keys else before.description,
        configuration={key: value for key, value in before.configuration.items() if key not in keys},
    )
    parameters = {"properties": compact_json(list(keys)), "ifExists": True}
    _commit(table, snapshot, "UNSET TBLPROPERTIES", parameters, metadata)


def add_constraint(table: Table, name: str, expression: str) -> None:
    """Add a CHECK constraint, which all present rows must satisfy. Delta: AlterTableAddConstraintDeltaCommand."""
    snapshot = table.snapshot_to_write()
    key = CHECK_PREFIX + name.lower()
    configuration = snapshot.metadata.configuration
    if key in configuration:
        raise DeltaAnalysisException(
            "DELTA_CONSTRAINT_ALREADY_EXISTS",
            f"Constraint '{name}' already exists. Please delete the old constraint first. Old constraint: "
            f"{configuration[key]}",
            parameters={"constraintName": name, "oldConstraint": configuration[key]},
        )
    violating = _violating(table, snapshot, name, expression)
    if violating:
        raise DeltaAnalysisException(
            "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
            f"{violating} rows in {table.name} violate the new CHECK constraint ({expression}). Correct them first.",
            parameters={"numRows": str(violating), "tableName": table.name, "checkConstraint": expression},
        )
    metadata = replace(snapshot.metadata, configuration={**configuration, key: expression})
    parameters = {"name": name, "expr": expression}
    _commit(table, snapshot, "ADD CONSTRAINT", parameters, metadata, {key: expression}, EVERYTHING_READ)


def _violating(table: Table, snapshot: Snapshot, name: str, expression: str) -> int:
    holds = F.expr(check_stored(expression, f"the CHECK constraint {name}"))
    with errors_not_logged():
        try:
            return count_where(table, snapshot, ~F.coalesce(holds, F.lit(False)), only=holds)
        except AnalysisException as error:
            if "FILTER_NOT_BOOLEAN" not in (error.getCondition() or ""):
                raise
            raise DeltaAnalysisException(
                "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT",
                f"CHECK constraint '{name}' ({expression}) should be a boolean expression.",
                parameters={"name": name, "expr": expression},
            ) from error


def count_where(table: Table, snapshot: Snapshot, condition: Column, only: Column | None = None) -> int:
    """Count the rows for which a condition is TRUE.

    Args:
        only: What must be a condition, too.
    """
    frame = table_frame(table, snapshot)
    # Classic Spark resolves as the frame is made, Connect when its schema is asked for.
    _ = frame.where(only if only is not None else condition).schema
    return frame.where(condition).count()


def drop_constraint(table: Table, name: str, *, if_exists: bool) -> None:
    """Drop a CHECK constraint. Delta: AlterTableDropConstraintDeltaCommand."""
    snapshot = table.snapshot_to_write()
    configuration = snapshot.metadata.configuration
    key = next((key for key in configuration if key.lower() == CHECK_PREFIX + name.lower()), None)
    if key is None and not if_exists:
        raise DeltaAnalysisException(
            "DELTA_CONSTRAINT_DOES_NOT_EXIST",
            f"Cannot drop nonexistent constraint {name} from table {table.name}. Write DROP CONSTRAINT IF EXISTS to "
            "go on without it.",
            parameters={"constraintName": name, "tableName": table.name},
        )
    parameters = {"name": name, "existed": "false"}
    if key is not None:
        parameters = {"name": name, "expr": configuration[key], "existed": "true"}
    kept = {k: v for k, v in configuration.items() if k != key}
    _commit(table, snapshot, "DROP CONSTRAINT", parameters, replace(snapshot.metadata, configuration=kept))


def cluster_by(table: Table, columns: Sequence[tuple[str, ...]]) -> None:
    """Set the columns that a table is clustered by; none ends it. Delta: AlterTableClusterByDeltaCommand."""
    snapshot = table.snapshot_to_write()
    if snapshot.metadata.partition_columns:
        raise DeltaAnalysisException(
            "DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED",
            "ALTER TABLE CLUSTER BY cannot be applied to a partitioned table.",
        )
    if not columns and DOMAIN not in snapshot.domain_metadata:
        return
    schema = spark_schema(snapshot)
    properties = snapshot.metadata.configuration
    definition = as_spelled(TableDefinition(schema, (), properties, clustered_by=tuple(columns)))
    check_clustering(definition)
    physical = physical_paths(schema)
    protocol = upgraded(snapshot.protocol, protocol_for(StructType([]), {f"delta.feature.{FEATURE}": "supported"}))
    actions: list[Action] = [clustering_domain([physical[path] for path in definition.clustered_by])]
    if protocol != snapshot.protocol:
        actions = [protocol, snapshot.metadata, *actions]
    parameters = {
        "oldClusteringColumns": ",".join(map(shown_name, snapshot.clustered_by)),
        "newClusteringColumns": ",".join(map(shown_name, definition.clustered_by)),
    }
    commit_command(table, snapshot, "CLUSTER BY", parameters, actions)


def _commit(
    table: Table,
    snapshot: Snapshot,
    operation: str,
    parameters: Mapping[str, object],
    metadata: Metadata,
    properties: Mapping[str, str] | None = None,
    read: ReadSet = NOTHING_READ,
) -> None:
    protocol = upgraded(snapshot.protocol, protocol_for(StructType([]), properties or {}))
    actions: list[Action] = [metadata] if protocol == snapshot.protocol else [protocol, metadata]
    commit_command(table, snapshot, operation, parameters, actions, read=read)
