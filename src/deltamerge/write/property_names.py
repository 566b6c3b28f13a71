"""The names of Delta's table properties: they are known, and their case does not matter."""

from __future__ import annotations

from collections.abc import Mapping

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.protocol import SUPPORTED_WRITER_FEATURES
from deltamerge.sql.names import near_misses
from deltamerge.write.property_values import check_values

# Delta: DeltaConfigs, and delta.targetFileSize.
_NAMES = [
    "appendOnly",
    "autoOptimize",
    "autoOptimize.autoCompact",
    "autoOptimize.optimizeWrite",
    "castIcebergTimeType",
    "checkpoint.writeStatsAsJson",
    "checkpoint.writeStatsAsStruct",
    "checkpointInterval",
    "checkpointPolicy",
    "checkpointRetentionDuration",
    "columnMapping.maxColumnId",
    "columnMapping.mode",
    "compatibility.symlinkFormatManifest.enabled",
    "coordinatedCommits.commitCoordinator-preview",
    "coordinatedCommits.commitCoordinatorConf-preview",
    "coordinatedCommits.tableConf-preview",
    "dataSkippingNumIndexedCols",
    "dataSkippingStatsColumns",
    "dataSkippingStringPrefixLength",
    "deletedFileRetentionDuration",
    "dropFeatureTruncateHistory.retentionDuration",
    "enableChangeDataCapture",
    "enableChangeDataFeed",
    "enableDeletionVectors",
    "enableExpiredLogCleanup",
    "enableFullRetentionRollback",
    "enableIcebergCompatV1",
    "enableIcebergCompatV2",
    "enableIcebergCompatV3",
    "enableIcebergWriterCompatV1",
    "enableInCommitTimestamps",
    "enableMaterializePartitionColumnsFeature",
    "enableRowTracking",
    "enableTypeWidening",
    "enableVariantShredding",
    "ignoreIcebergBucketPartition",
    "ignoreProtocolDefaults",
    "inCommitTimestampEnablementTimestamp",
    "inCommitTimestampEnablementVersion",
    "isolationLevel",
    "logRetentionDuration",
    "minReaderVersion",
    "minWriterVersion",
    "parquet.format.version",
    "randomPrefixLength",
    "randomizeFilePrefixes",
    "redirectReaderWriter-preview",
    "redirectWriterOnly-preview",
    "requireCheckpointProtectionBeforeVersion",
    "rowTrackingSuspended",
    "sampleRetentionDuration",
    "setTransactionRetentionDuration",
    "targetFileSize",
    "universalFormat.enabledFormats",
    "universalFormat.iceberg.atomicConversion.supported",
    "writePartitionColumnsToParquet",
]
BY_LOWER = {f"delta.{name}".lower(): f"delta.{name}" for name in _NAMES}
_FEATURE = "delta.feature."
_FEATURES = {name.lower(): name for name in SUPPORTED_WRITER_FEATURES}
DEFAULTS = "spark.databricks.delta.properties.defaults."
_OF_ANY_NAME = ("delta.constraints.", _FEATURE, "delta.universalformat.config.")


def spelled(key: str) -> str:
    """Return a property's key as Delta spells it; any other key stays."""
    lowered = key.lower()
    if lowered.startswith(_FEATURE):
        return _FEATURE + _FEATURES.get(lowered.removeprefix(_FEATURE), key[len(_FEATURE) :])
    return BY_LOWER.get(lowered, key)


def default_properties(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a session sets for all new tables. Delta: DeltaConfigs.mergeGlobalConfigs."""
    found = ((key.removeprefix(DEFAULTS), value) for key, value in settings.items() if key.startswith(DEFAULTS))
    return {spelled(f"delta.{name}"): value for name, value in found}


def named_properties(properties: Mapping[str, str], *, any_name: bool) -> dict[str, str]:
    """Return properties that a user gives under the names that Delta has for them.

    Delta: DeltaConfigs.validateConfigurations.
    """
    found = {}
    for key, value in properties.items():
        lowered = key.lower()
        is_deltas = lowered.startswith("delta.") and not lowered.startswith(_OF_ANY_NAME)
        if is_deltas and lowered not in BY_LOWER and not any_name:
            misses = near_misses(key, sorted(BY_LOWER.values()))
            meant = f" Did you mean {' or '.join(misses)}?" if misses else ""
            raise DeltaAnalysisException(
                "DELTA_UNKNOWN_CONFIGURATION",
                f"Unknown configuration was specified: {key}.{meant} To disable this check, set "
                "spark.databricks.delta.allowArbitraryProperties.enabled=true in the Spark session configuration.",
                parameters={"config": key},
            )
        found[spelled(key)] = value
    check_values(found)
    return found
