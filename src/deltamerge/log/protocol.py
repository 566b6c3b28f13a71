"""The feature gate: which tables may be read and written; anything not named in it is refused.

Source: Delta protocol, "Table Features". A feature is added by implementing it and naming it in the sets below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deltamerge.exceptions import DeltaUnsupportedFeatureException
from deltamerge.log.actions import Metadata, Protocol
from deltamerge.log.features.required_features import features_not_in_protocol
from deltamerge.log.features.type_widening import PREVIEW, STABLE, check_type_changes
from deltamerge.log.properties import is_enabled
from deltamerge.log.schema import parse_schema

SUPPORTED_READER_FEATURES: frozenset[str] = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    }
)

SUPPORTED_WRITER_FEATURES: frozenset[str] = SUPPORTED_READER_FEATURES | {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "clustering",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "rowTracking",
}

NEVER_READABLE: tuple[str, ...] = ("catalogManaged", "catalogOwned")
"""Commits of such tables are ratified by a catalog: the log does not hold all of the table."""

UNIVERSAL_FORMATS = "delta.universalFormat.enabledFormats"
"""Names the formats whose metadata each commit must bring up to date. Hudi's asks for no feature of the protocol."""

LEGACY_READER_FEATURES: dict[int, frozenset[str]] = {1: frozenset(), 2: frozenset({"columnMapping"})}
"""What a reader version before 3 implies."""

_WRITER_STEPS: dict[int, tuple[str, ...]] = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
LEGACY_WRITER_FEATURES: dict[int, frozenset[str]] = {
    version: frozenset(name for step, names in _WRITER_STEPS.items() if step <= version for name in names)
    for version in range(1, 7)
}
"""What a writer version before 7 implies: all that the versions up to it brought."""


IN_USE = {"icebergCompatV1": "delta.enableIcebergCompatV1", "icebergCompatV2": "delta.enableIcebergCompatV2"}
"""Features that ask nothing of a writer as long as a table does not use them, by the property that enables each. Row
tracking, for one, is not among them: it asks for row ids wherever it is supported."""


def reader_features(protocol: Protocol) -> frozenset[str]:
    if protocol.min_reader_version < 3:
        return LEGACY_READER_FEATURES.get(protocol.min_reader_version, frozenset())
    return protocol.reader_features or frozenset()


def writer_features(protocol: Protocol) -> frozenset[str]:
    if protocol.min_writer_version < 7:
        return LEGACY_WRITER_FEATURES.get(protocol.min_writer_version, frozenset())
    return protocol.writer_features or frozenset()


def features(protocol: Protocol) -> frozenset[str]:
    """Return the features that are on: those that the protocol names or implies for readers or for writers.

    A feature of readers and writers is on if only one of the lists names it: Delta 3.1 wrote such protocols.
    """
    return reader_features(protocol) | writer_features(protocol)


def names_column_mapping(protocol: Protocol) -> bool:
    """Return whether the property ``delta.columnMapping.mode`` counts for certain.

    Protocol: Column Mapping. delta-rs sets the property, ids and physical names also in tables whose protocol lists
    other features only, and then writes files under the columns' own names. A legacy writer version alone promises
    nothing of readers.
    """
    return "columnMapping" in reader_features(protocol) | (protocol.writer_features or frozenset())


def check_readable(protocol: Protocol, metadata: Metadata | None = None) -> None:
    _check_versions(protocol)
    managed = sorted(
        name
        for name in (protocol.reader_features or frozenset()) | (protocol.writer_features or frozenset())
        if name.startswith(NEVER_READABLE)
    )
    if managed:
        raise _unsupported("READ", managed)
    unknown = reader_features(protocol) - SUPPORTED_READER_FEATURES
    if unknown:
        raise _unsupported("READ", unknown)
    if metadata is not None and not features(protocol).isdisjoint((STABLE, PREVIEW)):
        check_type_changes(parse_schema(metadata.schema_string))


def check_writable(protocol: Protocol, metadata: Metadata) -> None:
    check_readable(protocol, metadata)
    unknown = universal_formats(metadata.configuration) | {
        name
        for name in writer_features(protocol) - SUPPORTED_WRITER_FEATURES
        if name not in IN_USE or is_enabled(metadata.configuration, IN_USE[name])
    }
    if unknown:
        raise _unsupported("WRITE", unknown)
    _check_asked(protocol, metadata)


def universal_formats(configuration: Mapping[str, str]) -> frozenset[str]:
    """Return the other formats that a table is to be readable as, each as an error names it.

    Such as ``delta.universalFormat.enabledFormats=hudi``.
    """
    formats = configuration.get(UNIVERSAL_FORMATS, "").split(",")
    return frozenset(f"{UNIVERSAL_FORMATS}={name.strip()}" for name in formats if name.strip())


def _check_asked(protocol: Protocol, metadata: Metadata) -> None:
    missing = features_not_in_protocol(protocol, metadata)
    if metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        missing |= frozenset() if names_column_mapping(protocol) else {"columnMapping"}
    if not missing:
        return
    # Whoever goes by the protocol writes what nobody who goes by the metadata can read, and the other way round.
    listed = ", ".join(sorted(missing))
    raise DeltaUnsupportedFeatureException(
        "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
        "Unable to operate on this table because the following table features are enabled in metadata but not "
        f"listed in protocol: {listed}. It can be read. To write to it, take the properties or columns that ask for "
        "them away with the engine that made them, or copy the table.",
        parameters={"features": listed},
    )


def _check_versions(protocol: Protocol) -> None:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if 1 <= reader <= 3 and 1 <= writer <= 7:
        return
    raise DeltaUnsupportedFeatureException(
        "DELTA_INVALID_PROTOCOL_VERSION",
        f"The table requires reader version {reader} and writer version {writer}; known are reader versions "
        "1 to 3 and writer versions 1 to 7. Use a newer release, or the engine that wrote the table.",
        parameters={"required": f"{reader}, {writer}"},
    )


def _unsupported(access: str, names: Iterable[str]) -> DeltaUnsupportedFeatureException:
    listed = ", ".join(sorted(names))
    doing = "reading" if access == "READ" else "writing"
    return DeltaUnsupportedFeatureException(
        f"DELTA_UNSUPPORTED_FEATURES_FOR_{access}",
        f"Unsupported Delta table feature(s) for {doing}: {listed}. Nothing was read or written; use an "
        "engine that has them, or drop them from the table.",
        parameters={"unsupported": listed},
    )
