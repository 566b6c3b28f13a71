"""The configuration keys of MERGE, with delta-spark's names and defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from deltamerge.exceptions import DeltaIllegalArgumentException

PREFIX = "spark.databricks.delta."


@dataclass(frozen=True)
class MergeConf:
    """The session settings of one MERGE, read once at its start.

    Field names are delta-spark's keys without their prefix, in snake_case; `KEYS` maps them.
    """

    optimize_insert_only_merge: bool = True
    optimize_matched_only_merge: bool = True
    repartition_before_write: bool = True
    materialize_source: str = "auto"
    materialize_source_max_attempts: int = 4
    rdd_storage_level: str = "DISK_ONLY"
    rdd_storage_level_first_retry: str = "DISK_ONLY_2"
    rdd_storage_level_retry: str = "DISK_ONLY_3"
    fail_if_source_changed: bool = False
    deletion_vectors_persistent: bool = True
    empty_schema_target_check: bool = True
    schema_auto_merge: bool = False
    allow_automatic_widening: str = "always"
    resolve_update_structs_by_name: bool = True
    check_latest_schema_on_read: bool = True
    history_metrics: bool = True
    txn_app_id: str | None = None
    txn_version: int | None = None
    txn_version_auto_reset: bool = False
    user_metadata: str | None = None
    executor: str = "auto"
    driver_bytes: int | None = None
    conflict_retries: int = 3
    case_sensitive: bool = False
    session_time_zone: str = "UTC"
    store_assignment_policy: str = "ANSI"
    ansi_enabled: bool = True
    double_quoted_identifiers: bool = False
    auto_broadcast_join_threshold: str = "10485760b"


KEYS: dict[str, str] = {
    "optimize_insert_only_merge": PREFIX + "merge.optimizeInsertOnlyMerge.enabled",
    "optimize_matched_only_merge": PREFIX + "merge.optimizeMatchedOnlyMerge.enabled",
    "repartition_before_write": PREFIX + "merge.repartitionBeforeWrite.enabled",
    "materialize_source": PREFIX + "merge.materializeSource",
    "materialize_source_max_attempts": PREFIX + "merge.materializeSource.maxAttempts",
    "rdd_storage_level": PREFIX + "merge.materializeSource.rddStorageLevel",
    "rdd_storage_level_first_retry": PREFIX + "merge.materializeSource.rddStorageLevelFirstRetry",
    "rdd_storage_level_retry": PREFIX + "merge.materializeSource.rddStorageLevelRetry",
    "fail_if_source_changed": PREFIX + "merge.failIfSourceChanged",
    "deletion_vectors_persistent": PREFIX + "merge.deletionVectors.persistent",
    "empty_schema_target_check": PREFIX + "merge.emptySchemaTargetCheck.enabled",
    "schema_auto_merge": PREFIX + "schema.autoMerge.enabled",
    "allow_automatic_widening": PREFIX + "typeWidening.allowAutomaticWidening",
    "resolve_update_structs_by_name": PREFIX + "resolveMergeUpdateStructsByName.enabled",
    "check_latest_schema_on_read": PREFIX + "checkLatestSchemaOnRead",
    "history_metrics": PREFIX + "history.metricsEnabled",
    "txn_app_id": PREFIX + "write.txnAppId",
    "txn_version": PREFIX + "write.txnVersion",
    "txn_version_auto_reset": PREFIX + "write.txnVersion.autoReset.enabled",
    "user_metadata": PREFIX + "commitInfo.userMetadata",
    "executor": "spark.deltamerge.merge.executor",
    "driver_bytes": "spark.deltamerge.merge.driverBytes",
    "conflict_retries": "spark.deltamerge.merge.conflictRetries",
    "case_sensitive": "spark.sql.caseSensitive",
    "session_time_zone": "spark.sql.session.timeZone",
    "store_assignment_policy": "spark.sql.storeAssignmentPolicy",
    "ansi_enabled": "spark.sql.ansi.enabled",
    "double_quoted_identifiers": "spark.sql.ansi.doubleQuotedIdentifiers",
    "auto_broadcast_join_threshold": "spark.sql.autoBroadcastJoinThreshold",
}

# The names of PySpark's StorageLevel.
_STORAGE_LEVELS = frozenset(
    {
        "NONE",
        "DISK_ONLY",
        "DISK_ONLY_2",
        "DISK_ONLY_3",
        "MEMORY_ONLY",
        "MEMORY_ONLY_2",
        "MEMORY_AND_DISK",
        "MEMORY_AND_DISK_2",
        "MEMORY_AND_DISK_DESER",
        "OFF_HEAP",
    }
)

CHOICES: dict[str, frozenset[str]] = {
    "rdd_storage_level": _STORAGE_LEVELS,
    "rdd_storage_level_first_retry": _STORAGE_LEVELS,
    "rdd_storage_level_retry": _STORAGE_LEVELS,
    "materialize_source": frozenset({"auto", "all", "none"}),
    "allow_automatic_widening": frozenset({"always", "same_family_type", "never"}),
    "executor": frozenset({"auto", "classic", "insert_only", "key_lookup", "low_shuffle"}),
    "store_assignment_policy": frozenset({"ANSI", "LEGACY", "STRICT"}),
}


def read_conf(get: Callable[[str], str | None]) -> MergeConf:
    """Read every key of one merge.

    Args:
        get: Returns the session's value of a key, or None where it is not set; delta-spark's default then applies.

    Raises:
        DeltaIllegalArgumentException: A value is not one that its key takes.
    """
    values: dict[str, object] = {}
    for field in fields(MergeConf):
        key = KEYS[field.name]
        text = get(key)
        if text is not None:
            values[field.name] = _parse(key, field.name, text, field.type)
    return MergeConf(**values)  # type: ignore[arg-type]


def _parse(key: str, name: str, text: str, kind: object) -> object:
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise _wrong(key, text, "true or false")
        return text.lower() == "true"
    if kind in ("int", "int | None"):
        try:
            return int(text)
        except ValueError:
            raise _wrong(key, text, "a whole number") from None
    choices = CHOICES.get(name)
    if choices is not None:
        by_lower = {choice.lower(): choice for choice in choices}
        if text.lower() not in by_lower:
            raise _wrong(key, text, f"one of {', '.join(sorted(choices))}")
        return by_lower[text.lower()]
    return text


def _wrong(key: str, text: str, wanted: str) -> DeltaIllegalArgumentException:
    return DeltaIllegalArgumentException(
        "INVALID_CONF_VALUE",
        f"The value '{text}' of {key} is not valid: it must be {wanted}.",
        sqlstate="22022",
        parameters={"confName": key, "confValue": text},
    )
