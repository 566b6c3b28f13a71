"""The table's metadata after a merge that evolves its schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql.types import StructType

from deltamerge.log.actions import Metadata
from deltamerge.log.column_mapping import check_names, with_column_ids
from deltamerge.log.schema import parse_schema
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.resolved import ResolvedMerge


def table_after(
    snapshot: Snapshot, merge: ResolvedMerge, new_id: Callable[[], str]
) -> tuple[ResolvedMerge, Metadata]:
    """Works out the metadata that a merge leaves.

    Args:
        snapshot: The table before.
        merge: The merge.
        new_id: Gives an id that was never given before.

    Returns:
        The merge, new fields of whose output schema have the ids and physical names that files will know them by,
        and the metadata.

    Raises:
        DeltaAnalysisException: A new field's name needs column mapping, which the table does not have.
    """
    if not merge.evolves_schema:
        return merge, snapshot.metadata
    text = json.dumps(merge.output_schema.jsonValue())
    check_names(parse_schema(text), snapshot.metadata.configuration)
    metadata = with_column_ids(replace(snapshot.metadata, schema_string=text), new_id)
    schema = StructType.fromJson(json.loads(metadata.schema_string or text))
    return replace(merge, output_schema=schema), metadata
