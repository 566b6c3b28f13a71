"""The definition of a new table that is like another one."""

from __future__ import annotations

import json

from pyspark.sql.types import StructField, StructType

from deltamerge.log.commit_times import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltamerge.log.features.column_mapping import MAX_COLUMN_ID
from deltamerge.log.features.identity_marks import HIGH_WATER_MARK
from deltamerge.log.features.row_tracking import COLUMN_NAMES
from deltamerge.log.features.type_widening import without_type_changes
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.snapshot import Snapshot
from deltamerge.write.definition import TableDefinition
from deltamerge.write.stored_schema import schema_to_write

# What the log of one table says of its own columns, rows and commits.
_OF_ONE_TABLE = frozenset({
    *COLUMN_NAMES,
    ENABLEMENT_TIMESTAMP,
    ENABLEMENT_VERSION,
    MAX_COLUMN_ID,
    "delta.requireCheckpointProtectionBeforeVersion",
})  # fmt: skip


def definition_like(snapshot: Snapshot) -> TableDefinition:
    """Return a table's columns, partitioning, properties with constraints, and comment, for a new one without rows.

    As in delta-spark the new table is not clustered.
    """
    metadata = snapshot.metadata
    properties = {key: value for key, value in metadata.configuration.items() if key not in _OF_ONE_TABLE}
    return TableDefinition(_new_columns(snapshot), metadata.partition_columns, properties, metadata.description)


def _new_columns(snapshot: Snapshot) -> StructType:
    """Return a table's columns without the types that they had, and with identities that begin anew."""
    written = parse_schema(json.dumps(schema_to_write(snapshot).jsonValue()))
    schema = StructType.fromJson(json.loads(schema_to_json(without_type_changes(written))))
    return StructType([StructField(f.name, f.dataType, f.nullable, _new_metadata(f)) for f in schema.fields])


def _new_metadata(field: StructField) -> dict[str, object]:
    return {key: value for key, value in field.metadata.items() if key != HIGH_WATER_MARK}
