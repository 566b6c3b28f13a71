"""The table's metadata after a merge that evolves its schema."""

from __future__ import annotations

import json
from dataclasses import replace

from pyspark.sql.types import StructType

from deltamerge.log.actions import Metadata
from deltamerge.log.features.column_mapping import check_names, with_column_ids
from deltamerge.log.features.type_widening import PREVIEW, with_type_changes
from deltamerge.log.protocol import writer_features
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.write.dependents import check_dependents


def table_after(snapshot: Snapshot, merge: ResolvedMerge) -> tuple[ResolvedMerge, Metadata]:
    """Return the merge and the metadata of the table after it.

    New fields of the merge's output schema have the ids and physical names that files will know them by, wider ones
    their type changes.
    """
    if not merge.evolves_schema:
        return merge, snapshot.metadata
    check_dependents(merge.target_schema, merge.output_schema, snapshot.metadata.configuration)
    evolved = parse_schema(json.dumps(merge.output_schema.jsonValue()))
    check_names(evolved, snapshot.metadata.configuration)
    version = snapshot.version + 1 if PREVIEW in writer_features(snapshot.protocol) else None
    schema_string = schema_to_json(with_type_changes(snapshot.schema, evolved, version))
    metadata = with_column_ids(replace(snapshot.metadata, schema_string=schema_string))
    schema = StructType.fromJson(json.loads(metadata.schema_string or schema_string))
    return replace(merge, output_schema=schema), metadata
