"""Delta's table properties: their names are known, whatever their case, and so are the values that they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException
from deltamerge.log.properties import parse_interval
from deltamerge.log.protocol import SUPPORTED_WRITER_FEATURES
from deltamerge.sql.names import near_misses

# Delta: DeltaConfigs, and delta.targetFileSize; by the values that are checked.
_BOOLEANS = (
    "appendOnly", "checkpoint.writeStatsAsJson", "checkpoint.writeStatsAsStruct",
    "compatibility.symlinkFormatManifest.enabled", "enableChangeDataFeed", "enableDeletionVectors",
    "enableExpiredLogCleanup", "enableFullRetentionRollback", "enableInCommitTimestamps", "enableRowTracking",
    "enableTypeWidening", "enableVariantShredding", "randomizeFilePrefixes", "rowTrackingSuspended",
)  # fmt: skip
_INTERVALS = (
    "checkpointRetentionDuration", "deletedFileRetentionDuration", "dropFeatureTruncateHistory.retentionDuration",
    "logRetentionDuration", "sampleRetentionDuration", "setTransactionRetentionDuration",
)  # fmt: skip
_OTHERS = [
    "autoOptimize",
    "autoOptimize.autoCompact",
    "autoOptimize.optimizeWrite",
    "castIcebergTimeType",
    "checkpointInterval",
    "checkpointPolicy",
    "columnMapping.maxColumnId",
    "columnMapping.mode",
    "coordinatedCommits.commitCoordinator-preview",
    "coordinatedCommits.commitCoordinatorConf-preview",
    "coordinatedCommits.tableConf-preview",
    "dataSkippingNumIndexedCols",
    "dataSkippingStatsColumns",
    "dataSkippingStringPrefixLength",
    "enableChangeDataCapture",
    "enableIcebergCompatV1",
    "enableIcebergCompatV2",
    "enableIcebergCompatV3",
    "enableIcebergWriterCompatV1",
    "enableMaterializePartitionColumnsFeature",
    "ignoreIcebergBucketPartition",
    "ignoreProtocolDefaults",
    "inCommitTimestampEnablementTimestamp",
    "inCommitTimestampEnablementVersion",
    "isolationLevel",
    "minReaderVersion",
    "minWriterVersion",
    "parquet.format.version",
    "randomPrefixLength",
    "redirectReaderWriter-preview",
    "redirectWriterOnly-preview",
    "requireCheckpointProtectionBeforeVersion",
    "targetFileSize",
    "universalFormat.enabledFormats",
    "universalFormat.iceberg.atomicConversion.supported",
    "writePartitionColumnsToParquet",
]
BY_LOWER = {f"delta.{name}".lower(): f"delta.{name}" for name in (*_BOOLEANS, *_INTERVALS, *_OTHERS)}
_FEATURE = "delta.feature."
_FEATURES = {name.lower(): name for name in SUPPORTED_WRITER_FEATURES}
DEFAULTS = "spark.databricks.delta.properties.defaults."
_OF_ANY_NAME = ("delta.constraints.", _FEATURE, "delta.universalformat.config.")

_ISOLATION = ("serializable", "writeserializable")


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


def _is_boolean(value: str) -> bool:
    return value.lower() in ("true", "false")


def _is_number_from(least: int) -> Callable[[str], bool]:
    def test(value: str) -> bool:
        try:
            return int(value) >= least
        except ValueError:
            return False

    return test


_TESTS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    **{f"delta.{name}": (_is_boolean, "true or false") for name in _BOOLEANS},
    "delta.checkpointInterval": (_is_number_from(1), "a whole number greater than 0"),
    "delta.dataSkippingNumIndexedCols": (_is_number_from(-1), "a whole number from -1 on"),
    "delta.randomPrefixLength": (_is_number_from(1), "a whole number greater than 0"),
    "delta.isolationLevel": (lambda value: value.lower() in _ISOLATION, "Serializable or WriteSerializable"),
}


def _check_interval(key: str, value: str) -> None:
    try:
        parse_interval(value)
    except ValueError as error:
        raise DeltaIllegalArgumentException(
            "DELTA_INVALID_INTERVAL",
            f"{value} is not a valid INTERVAL for the table property {key} ({error}). Write it as 'interval 7 days', "
            "without months. Nothing was changed.",
            parameters={"interval": value},
        ) from error


def check_values(properties: Mapping[str, str]) -> None:
    """Refuse values that a property of Delta's cannot have."""
    for key, value in properties.items():
        if key.removeprefix("delta.") in _INTERVALS:
            _check_interval(key, value)
        test, wanted = _TESTS.get(key, (None, ""))
        if test is not None and not test(value):
            raise DeltaIllegalArgumentException(
                "DELTAMERGE_INVALID_TABLE_PROPERTY",
                f"The table property {key} is '{value}', but it has to be {wanted}. Nothing was changed.",
                parameters={"key": key, "value": value},
            )
