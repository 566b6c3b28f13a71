"""The configuration keys of MERGE and the other commands, with delta-spark's names and defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from deltamerge.exceptions import DeltaIllegalArgumentException

PREFIX = "spark.databricks.delta."
Conf = TypeVar("Conf")


def _setting(key: str, default: Any) -> Any:  # noqa: ANN401
    return field(default=default, metadata={"key": key})


@dataclass(frozen=True)
class MergeConf:
    """The session settings of one MERGE, read once at its start; `KEYS` has the key of each field."""

    optimize_insert_only_merge: bool = _setting(f"{PREFIX}merge.optimizeInsertOnlyMerge.enabled", True)
    optimize_matched_only_merge: bool = _setting(f"{PREFIX}merge.optimizeMatchedOnlyMerge.enabled", True)
    repartition_before_write: bool = _setting(f"{PREFIX}merge.repartitionBeforeWrite.enabled", True)
    materialize_source: str = _setting(f"{PREFIX}merge.materializeSource", "auto")
    materialize_source_max_attempts: int = _setting(f"{PREFIX}merge.materializeSource.maxAttempts", 4)
    rdd_storage_level: str = _setting(f"{PREFIX}merge.materializeSource.rddStorageLevel", "DISK_ONLY")
    rdd_storage_level_first_retry: str = _setting(
        f"{PREFIX}merge.materializeSource.rddStorageLevelFirstRetry", "DISK_ONLY_2"
    )
    rdd_storage_level_retry: str = _setting(f"{PREFIX}merge.materializeSource.rddStorageLevelRetry", "DISK_ONLY_3")
    fail_if_source_changed: bool = _setting(f"{PREFIX}merge.failIfSourceChanged", False)
    deletion_vectors_persistent: bool = _setting(f"{PREFIX}merge.deletionVectors.persistent", True)
    update_deletion_vectors: bool = _setting(f"{PREFIX}update.deletionVectors.persistent", True)
    delete_deletion_vectors: bool = _setting(f"{PREFIX}delete.deletionVectors.persistent", True)
    empty_schema_target_check: bool = _setting(f"{PREFIX}merge.emptySchemaTargetCheck.enabled", True)
    schema_auto_merge: bool = _setting(f"{PREFIX}schema.autoMerge.enabled", False)
    allow_automatic_widening: str = _setting(f"{PREFIX}typeWidening.allowAutomaticWidening", "always")
    resolve_update_structs_by_name: bool = _setting(f"{PREFIX}resolveMergeUpdateStructsByName.enabled", True)
    casts_follow_ansi_enabled: bool = _setting(f"{PREFIX}updateAndMergeCastingFollowsAnsiEnabledFlag", False)
    check_latest_schema_on_read: bool = _setting(f"{PREFIX}checkLatestSchemaOnRead", True)
    history_metrics: bool = _setting(f"{PREFIX}history.metricsEnabled", True)
    txn_app_id: str | None = _setting(f"{PREFIX}write.txnAppId", None)
    txn_version: int | None = _setting(f"{PREFIX}write.txnVersion", None)
    txn_version_auto_reset: bool = _setting(f"{PREFIX}write.txnVersion.autoReset.enabled", False)
    write_checksum_file: bool = _setting(f"{PREFIX}writeChecksumFile.enabled", True)
    user_metadata: str | None = _setting(f"{PREFIX}commitInfo.userMetadata", None)
    executor: str = _setting("spark.deltamerge.merge.executor", "auto")
    driver_bytes: int | None = _setting("spark.deltamerge.merge.driverBytes", None)
    skip_unchanged: bool = _setting("spark.deltamerge.merge.skipUnchanged", False)
    conflict_retries: int = _setting("spark.deltamerge.merge.conflictRetries", 3)
    case_sensitive: bool = _setting("spark.sql.caseSensitive", False)
    session_time_zone: str = _setting("spark.sql.session.timeZone", "UTC")
    store_assignment_policy: str = _setting("spark.sql.storeAssignmentPolicy", "ANSI")
    ansi_enabled: bool = _setting("spark.sql.ansi.enabled", True)
    datetime_to_string: bool = _setting("spark.sql.legacy.typeCoercion.datetimeToString.enabled", False)
    double_quoted_identifiers: bool = _setting("spark.sql.ansi.doubleQuotedIdentifiers", False)
    preserve_null_source_structs: bool = _setting(f"{PREFIX}merge.preserveNullSourceStructs", True)
    preserve_null_structs_of_star: bool = _setting(f"{PREFIX}merge.preserveNullSourceStructs.updateStar", True)
    preserve_null_structs_of_writes: bool = _setting(f"{PREFIX}insert.preserveNullSourceStructs", True)
    changes_out_of_range: bool = _setting(f"{PREFIX}changeDataFeed.timestampOutOfRange.enabled", False)
    optimize_write: bool | None = _setting(f"{PREFIX}optimizeWrite.enabled", None)
    optimize_write_bin_size: str = _setting(f"{PREFIX}optimizeWrite.binSize", "512m")
    auto_broadcast_join_threshold: str = _setting("spark.sql.autoBroadcastJoinThreshold", "10485760b")

    @property
    def compares_times_as_strings(self) -> bool:
        """Whether dates and times become strings where they are compared with strings, as in Spark 2."""
        return self.datetime_to_string and not self.ansi_enabled

    @property
    def merge_assignment_policy(self) -> str:
        """How values of MERGE and UPDATE are stored; before Delta 3.0 that followed ``spark.sql.ansi.enabled``."""
        if self.casts_follow_ansi_enabled:
            return "ANSI" if self.ansi_enabled else "LEGACY"
        return self.store_assignment_policy


_CLUSTERING = f"{PREFIX}optimize.clustering.mergeStrategy.minCubeSize"


@dataclass(frozen=True)
class CommandConf:
    """The session settings of commands other than MERGE."""

    retention_check: bool = _setting(f"{PREFIX}retentionDurationCheck.enabled", True)
    vacuum_lite: bool = _setting(f"{PREFIX}vacuum.lite.enabled", False)
    vacuum_logging: bool | None = _setting(f"{PREFIX}vacuum.logging.enabled", None)
    ignore_vacuum_retention: bool = _setting(f"{PREFIX}vacuum.retentionWindowIgnore.enabled", True)
    optimize_min_file_size: int = _setting(f"{PREFIX}optimize.minFileSize", 1 << 30)
    optimize_max_file_size: int = _setting(f"{PREFIX}optimize.maxFileSize", 1 << 30)
    optimize_max_deleted_rows_ratio: float = _setting(f"{PREFIX}optimize.maxDeletedRowsRatio", 0.05)
    optimize_min_cube_size: int = _setting(f"{_CLUSTERING}.threshold", 100 << 30)
    optimize_target_cube_size: int = _setting(f"{_CLUSTERING}.targetCubeSize", 150 << 30)
    optimize_zorder_check_stats: bool = _setting(f"{PREFIX}optimize.zorder.checkStatsCollection.enabled", True)
    restore_protocol_downgrade: bool = _setting(f"{PREFIX}restore.protocolDowngradeAllowed", False)
    ignore_missing_files: bool = _setting("spark.sql.files.ignoreMissingFiles", False)
    any_property: bool = _setting(f"{PREFIX}allowArbitraryProperties.enabled", False)


@dataclass(frozen=True)
class AutoCompactConf:
    """The session settings of the compaction after a commit; None leaves it to the table's properties."""

    enabled: bool | None = _setting(f"{PREFIX}autoCompact.enabled", None)
    max_file_size: int = _setting(f"{PREFIX}autoCompact.maxFileSize", 128 << 20)
    min_file_size: int | None = _setting(f"{PREFIX}autoCompact.minFileSize", None)
    min_num_files: int = _setting(f"{PREFIX}autoCompact.minNumFiles", 50)
    modified_partitions_only: bool = _setting(f"{PREFIX}autoCompact.modifiedPartitionsOnly.enabled", True)


KEYS: dict[str, str] = {setting.name: setting.metadata["key"] for setting in fields(MergeConf)}

DEFAULTS: dict[str, str] = {
    setting.metadata["key"]: str(setting.default).lower() if isinstance(setting.default, bool) else str(setting.default)
    for kind in (MergeConf, CommandConf, AutoCompactConf)
    for setting in fields(kind)
    if setting.metadata["key"].startswith(PREFIX) and setting.default is not None
}
"""delta-spark's settings as its JAR makes them known to a session, with their defaults."""

# The names of PySpark's StorageLevel.
_STORAGE_LEVELS = frozenset({
    "NONE", "DISK_ONLY", "DISK_ONLY_2", "DISK_ONLY_3", "MEMORY_ONLY", "MEMORY_ONLY_2", "MEMORY_AND_DISK",
    "MEMORY_AND_DISK_2", "MEMORY_AND_DISK_DESER", "OFF_HEAP",
})  # fmt: skip

CHOICES: dict[str, frozenset[str]] = {
    "rdd_storage_level": _STORAGE_LEVELS,
    "rdd_storage_level_first_retry": _STORAGE_LEVELS,
    "rdd_storage_level_retry": _STORAGE_LEVELS,
    "materialize_source": frozenset({"auto", "all", "none"}),
    "allow_automatic_widening": frozenset({"always", "same_family_type", "never"}),
    "executor": frozenset({"auto", "classic", "insert_only", "key_lookup", "low_shuffle"}),
    "store_assignment_policy": frozenset({"ANSI", "LEGACY", "STRICT"}),
}


_ONLY_TRUE = ("preserve_null_source_structs", "preserve_null_structs_of_star", "preserve_null_structs_of_writes")
"""Switches for mistakes of old releases, which are not made here: with another value rows would differ in silence."""


def read_conf(kind: type[Conf], get: Callable[[str], str | None]) -> Conf:
    """Read every key of a statement.

    Args:
        get: Returns the session's value of a key, or None where it is not set; delta-spark's default then applies.
    """
    values: dict[str, object] = {}
    for setting in fields(kind):  # type: ignore[arg-type]
        key = setting.metadata["key"]
        value = get(key)
        if value is not None:
            values[setting.name] = _parse(key, setting.name, value, setting.type)
    for name in _ONLY_TRUE:
        if values.get(name) is False:
            raise wrong_value(
                KEYS[name], "false", "true, since a NULL struct is always stored as NULL here; unset the key"
            )
    return kind(**values)


def _parse(key: str, name: str, value: str, kind: object) -> object:
    if kind in ("bool", "bool | None"):
        if value.lower() not in ("true", "false"):
            raise wrong_value(key, value, "true or false")
        return value.lower() == "true"
    if kind in ("int", "int | None"):
        try:
            return int(value)
        except ValueError:
            raise wrong_value(key, value, "a whole number") from None
    if kind == "float":
        try:
            return float(value)
        except ValueError:
            raise wrong_value(key, value, "a number") from None
    choices = CHOICES.get(name)
    if choices is not None:
        by_lower = {choice.lower(): choice for choice in choices}
        if value.lower() not in by_lower:
            raise wrong_value(key, value, f"one of {', '.join(sorted(choices))}")
        return by_lower[value.lower()]
    return value


def wrong_value(key: str, value: str, wanted: str) -> DeltaIllegalArgumentException:
    return DeltaIllegalArgumentException(
        "INVALID_CONF_VALUE",
        f"The value '{value}' of {key} is not valid: it must be {wanted}.",
        parameters={"confName": key, "confValue": value},
    )
