"""The values that Delta's table properties may have. Delta: DeltaConfigs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deltamerge.exceptions import DeltaIllegalArgumentException
from deltamerge.log.properties import parse_interval

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
_ISOLATION = ("serializable", "writeserializable", "snapshotisolation")


def _is_boolean(value: str) -> bool:
    return value.lower() in ("true", "false")


def _is_interval(value: str) -> bool:
    try:
        return parse_interval(value) >= 0
    except ValueError:
        return False


def _is_number_from(least: int) -> Callable[[str], bool]:
    def test(value: str) -> bool:
        try:
            return int(value) >= least
        except ValueError:
            return False

    return test


_TESTS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    **{f"delta.{name}": (_is_boolean, "true or false") for name in _BOOLEANS},
    **{f"delta.{name}": (_is_interval, "an interval such as 'interval 7 days', without months") for name in _INTERVALS},
    "delta.checkpointInterval": (_is_number_from(1), "a whole number greater than 0"),
    "delta.dataSkippingNumIndexedCols": (_is_number_from(-1), "a whole number from -1 on"),
    "delta.randomPrefixLength": (_is_number_from(1), "a whole number greater than 0"),
    "delta.isolationLevel": (lambda value: value.lower() in _ISOLATION, "Serializable or WriteSerializable"),
}


def check_values(properties: Mapping[str, str]) -> None:
    """Refuse values that a property of Delta's cannot have."""
    for key, value in properties.items():
        test, wanted = _TESTS.get(key, (None, ""))
        if test is not None and not test(value):
            raise DeltaIllegalArgumentException(
                "DELTAMERGE_INVALID_TABLE_PROPERTY",
                f"The table property {key} is '{value}', but it has to be {wanted}. Nothing was changed.",
                parameters={"key": key, "value": value},
            )
