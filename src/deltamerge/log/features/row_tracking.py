"""Row tracking: ids that rows keep, and the version that last changed each.

Source: Delta protocol, "Row Tracking". In a table that supports it every file has a first row id and a version; one
that has it enabled also keeps, in two hidden columns of its data files, what a row had before it was rewritten.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import Action, AddFile, DomainMetadata, Metadata, Protocol
from deltamerge.log.add_file_stats import record_count
from deltamerge.log.properties import is_enabled
from deltamerge.log.protocol import writer_features
from deltamerge.workers.row_tracking import HiddenColumns

FEATURE = "rowTracking"
DOMAIN = "delta.rowTracking"
ENABLED = "delta.enableRowTracking"
SUSPENDED = "delta.rowTrackingSuspended"
ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
ROW_COMMIT_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
COLUMN_NAMES = (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN)


def materialized_columns(metadata: Metadata) -> HiddenColumns | None:
    """Return the hidden columns of a table that has row tracking enabled; None where it has not."""
    if not is_enabled(metadata.configuration, ENABLED):
        return None
    found = [metadata.configuration.get(key) for key in COLUMN_NAMES]
    if None in found:
        raise DeltaTableException(
            "DELTA_MATERIALIZED_ROW_TRACKING_COLUMN_NAME_MISSING",
            f"The table has {ENABLED} but lacks the property {ROW_ID_COLUMN} or {ROW_COMMIT_VERSION_COLUMN}: enable "
            "row tracking anew with the engine that made the table.",
        )
    return HiddenColumns(str(found[0]), str(found[1]))


def with_column_names(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return a new table's properties with the names of its hidden columns, where it enables row tracking."""
    if not is_enabled(configuration, ENABLED):
        return dict(configuration)
    names = {
        ROW_ID_COLUMN: f"_row-id-col-{uuid.uuid4()}",
        ROW_COMMIT_VERSION_COLUMN: f"_row-commit-version-col-{uuid.uuid4()}",
    }
    return {**names, **configuration}


def high_water_mark(domains: Iterable[DomainMetadata]) -> int | None:
    """Return the highest row id ever assigned, where the domains have it."""
    for domain in domains:
        if domain.domain == DOMAIN and not domain.removed:
            return domain.read(lambda values: int(values["rowIdHighWaterMark"]))
    return None


def assign_row_ids(
    actions: Sequence[Action], protocol: Protocol, metadata: Metadata, mark: int, version: int
) -> tuple[Action, ...]:
    """Assign row ids and version to the new files of a commit, and add the new high-water mark.

    `protocol` and `metadata` are those after the commit, which makes `version`; `mark` is the highest row id
    assigned so far, -1 for none. A commit that restores a mark has it among its actions.
    """
    if FEATURE not in writer_features(protocol) or is_enabled(metadata.configuration, SUSPENDED):
        return tuple(actions)
    assigned: list[Action] = []
    restored = high_water_mark(action for action in actions if isinstance(action, DomainMetadata))
    highest = max(mark, -1 if restored is None else restored)
    for action in actions:
        if isinstance(action, DomainMetadata) and action.domain == DOMAIN and not action.removed:
            continue
        if not isinstance(action, AddFile):
            assigned.append(action)
            continue
        first, since = action.base_row_id, action.default_row_commit_version
        if first is None:
            first = highest + 1
            highest += _rows(action)
        since = version if since is None else since
        assigned.append(replace(action, base_row_id=first, default_row_commit_version=since))
    if highest != mark:
        configuration = json.dumps({"domainName": DOMAIN, "rowIdHighWaterMark": highest}, separators=(",", ":"))
        assigned.append(DomainMetadata(DOMAIN, configuration))
    return tuple(assigned)


def _rows(file: AddFile) -> int:
    rows = record_count(file)
    if rows is None:
        raise DeltaTableException(
            "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS",
            f"Cannot assign row IDs without row count statistics: the file {file.path} has none.",
            parameters={"path": file.path},
        )
    return rows
