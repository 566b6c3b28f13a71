"""Which features a table's metadata asks for and its protocol lacks: delta-spark refuses such tables.

Source: delta-spark's ``DeltaLog.assertTableFeaturesMatchMetadata``. Protocols without lists of features lack nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from deltamerge.log.actions import Metadata, Protocol
from deltamerge.log.schema import StructField, StructType, contains_type, parse_schema

_REQUIRED: dict[str, frozenset[str]] = {
    "rowTracking": frozenset({"domainMetadata"}),
    "clustering": frozenset({"domainMetadata"}),
    "variantShredding": frozenset({"variantType"}),
    "icebergCompatV1": frozenset({"columnMapping"}),
    "icebergCompatV2": frozenset({"columnMapping"}),
    "icebergCompatV3": frozenset({"columnMapping", "rowTracking", "domainMetadata"}),
    "coordinatedCommits-preview": frozenset({"inCommitTimestamp", "vacuumProtocolCheck"}),
}
"""What each feature needs besides itself, and what that needs."""

# By a property the value that asks for a feature, and the feature.
_BY_PROPERTY = {
    "delta.appendOnly": ("true", "appendOnly"),
    "delta.enableChangeDataFeed": ("true", "changeDataFeed"),
    "delta.enableDeletionVectors": ("true", "deletionVectors"),
    "delta.enableRowTracking": ("true", "rowTracking"),
    "delta.enableTypeWidening": ("true", "typeWidening"),
    "delta.enableInCommitTimestamps": ("true", "inCommitTimestamp"),
    "delta.checkpointPolicy": ("v2", "v2Checkpoint"),
    "delta.enableVariantShredding": ("true", "variantShredding-preview"),
    "delta.enableIcebergCompatV1": ("true", "icebergCompatV1"),
    "delta.enableIcebergCompatV2": ("true", "icebergCompatV2"),
    "delta.enableIcebergCompatV3": ("true", "icebergCompatV3"),
    "delta.enableIcebergWriterCompatV1": ("true", "icebergWriterCompatV1"),
    "delta.enableMaterializePartitionColumnsFeature": ("true", "materializePartitionColumns"),
}

_INSTEAD = {
    "typeWidening": "typeWidening-preview",
    "variantType": "variantType-preview",
    "variantShredding-preview": "variantShredding",
}
"""A feature's other stage, which does as well."""

_IDENTITY = {"delta.identity.start", "delta.identity.step", "delta.identity.allowExplicitInsert"}

# Of generated and identity columns only the columns themselves count, of invariants the fields of structs, too.
# NOT NULL is none: the protocol asks for no feature then, and delta-rs makes such tables.
_BY_SCHEMA: dict[str, Callable[[StructType], bool]] = {
    "generatedColumns": lambda schema: any("delta.generationExpression" in f.metadata for f in schema.fields),
    "identityColumns": lambda schema: any(f.metadata.keys() >= _IDENTITY for f in schema.fields),
    "invariants": lambda schema: any("delta.invariants" in f.metadata for f in _struct_fields(schema)),
    "timestampNtz": lambda schema: contains_type(schema, "timestamp_ntz"),
    "variantType": lambda schema: contains_type(schema, "variant"),
}


def with_required(features: Iterable[str]) -> frozenset[str]:
    features = frozenset(features)
    return features.union(*(_REQUIRED.get(name, frozenset()) for name in features))


def features_not_in_protocol(protocol: Protocol, metadata: Metadata) -> frozenset[str]:
    """Return the features that a table's metadata requires and its protocol does not list.

    None where the protocol lists no features.
    """
    if protocol.min_reader_version < 3 and protocol.min_writer_version < 7:
        return frozenset()
    present = (protocol.writer_features or frozenset()) | (protocol.reader_features or frozenset())
    asked = {*features_of_properties(metadata.configuration)}
    schema = parse_schema(metadata.schema_string)
    asked |= {name for name, asks in _BY_SCHEMA.items() if asks(schema)}
    asked = {name for name in asked if _INSTEAD.get(name) not in present}
    return with_required(asked | present) - present


def features_of_properties(configuration: Mapping[str, str]) -> Iterator[str]:
    for key, (value, feature) in _BY_PROPERTY.items():
        if configuration.get(key, "").lower() == value:
            yield feature
    if configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        yield "columnMapping"
    if any(key.lower().startswith("delta.constraints.") for key in configuration):
        yield "checkConstraints"


def _struct_fields(schema: StructType) -> Iterable[StructField]:
    for field in schema.fields:
        yield field
        if isinstance(field.data_type, StructType):
            yield from _struct_fields(field.data_type)
