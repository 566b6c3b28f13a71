"""The protocol that a table's definition needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql.types import StructType, TimestampNTZType, VariantType

from deltamerge.exceptions import DeltaAnalysisException, DeltaTableException, DeltaUnsupportedFeatureException
from deltamerge.log.actions import Protocol
from deltamerge.log.features.required_features import features_of_properties, with_required
from deltamerge.log.protocol import (
    LEGACY_READER_FEATURES,
    SUPPORTED_READER_FEATURES,
    SUPPORTED_WRITER_FEATURES,
    check_readable,
    features,
    reader_features,
    universal_formats,
    writer_features,
)
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.nested_types import all_types
from deltamerge.write.defaults import CURRENT_DEFAULT
from deltamerge.write.definition import check_types
from deltamerge.write.generated_columns import GENERATION_EXPRESSION
from deltamerge.write.identity_columns import IDENTITY

_FEATURE_PREFIX = "delta.feature."
MIN_READER_VERSION, MIN_WRITER_VERSION = "delta.minReaderVersion", "delta.minWriterVersion"
_BASE = frozenset({"appendOnly", "invariants"})
# Which new columns turn on by themselves. Delta: automaticallyUpdateProtocolOfExistingTables.
_TURNED_ON = frozenset({"variantType"})


def protocol_for(schema: StructType, properties: Mapping[str, str]) -> Protocol:
    """Return the lowest protocol that a table's definition needs. Protocol: Table Features.

    Args:
        properties: Its properties; ``delta.feature.NAME`` asks for a feature by name, ``delta.minReaderVersion`` and
            ``delta.minWriterVersion`` ask for versions.

    Returns:
        Reader 1 and writer 2, or the versions asked for, where these are enough; else feature lists.
    """
    # Where delta-spark's metadata asks for a feature's preview, a new table gets the feature itself.
    of_properties = (name.removesuffix("-preview") for name in features_of_properties(properties))
    wanted = {*of_properties, *_by_type(schema)}
    named = {key[len(_FEATURE_PREFIX) :] for key in properties if key.startswith(_FEATURE_PREFIX)}
    # A feature's preview that is asked for by name does instead of the feature.
    wanted = {name for name in wanted if f"{name}-preview" not in named} | named
    wanted |= with_required(wanted)
    unknown = sorted(universal_formats(properties) | (wanted - SUPPORTED_WRITER_FEATURES))
    if unknown:
        raise DeltaUnsupportedFeatureException(
            "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
            f"The table's definition asks for features that are not implemented: {', '.join(unknown)}. Leave out the "
            "properties or types that need them, or make the table with another engine.",
            parameters={"unsupported": ", ".join(unknown)},
        )
    asked = Protocol(_version(properties, MIN_READER_VERSION, 1), _version(properties, MIN_WRITER_VERSION, 2))
    check_readable(asked)
    if asked.min_reader_version == 3 and asked.min_writer_version < 7:
        raise DeltaTableException(
            "DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE",
            "Unable to upgrade only the reader protocol version to use table features. Writer protocol version must "
            f"be at least 7 to proceed: reader version 3 was asked for with writer version {asked.min_writer_version}.",
            parameters={"writerVersion": "7"},
        )
    readers, writers = frozenset(wanted & SUPPORTED_READER_FEATURES), frozenset(wanted | _BASE)
    if asked.min_writer_version < 7 and readers <= reader_features(asked) and wanted <= writer_features(asked):
        return asked
    readers, writers = readers | reader_features(asked), writers | writer_features(asked)
    return Protocol(3, 7, readers, writers) if asked.min_reader_version == 3 else with_features(readers, writers)


def _version(properties: Mapping[str, str], key: str, default: int) -> int:
    value = properties.get(key, str(default))
    if value.isdecimal():
        return max(int(value), default)
    raise DeltaAnalysisException(
        "DELTA_PROTOCOL_PROPERTY_NOT_INT",
        f"Protocol property {key} needs to be an integer. Found {value}.",
        parameters={"key": key, "value": value},
    )


def stored_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a table stores: those that ask for a protocol end up in it."""
    return {
        key: value
        for key, value in properties.items()
        if not key.startswith(_FEATURE_PREFIX) and key not in (MIN_READER_VERSION, MIN_WRITER_VERSION)
    }


def with_features(readers: frozenset[str], writers: frozenset[str]) -> Protocol:
    """Return a protocol with features by name; readers need them by name only where no version implies them."""
    for version, implied in sorted(LEGACY_READER_FEATURES.items()):
        if readers == implied:
            return Protocol(version, 7, None, writers)
    return Protocol(3, 7, readers, writers)


def check_evolution(snapshot: Snapshot, schema: StructType) -> None:
    """Refuse new columns whose types the table's protocol does not allow, and which do not turn it on by themselves."""
    check_types(schema)
    missing = _missing(snapshot, schema) - _TURNED_ON
    if missing:
        raise DeltaAnalysisException(
            "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
            f"New columns need table features that must be enabled first: {', '.join(sorted(missing))}. "
            "Set delta.feature.<name> = supported on the table, or give the columns another type.",
            parameters={"unsupportedFeatures": ", ".join(sorted(missing))},
        )


def evolved_protocol(snapshot: Snapshot, schema: StructType) -> Protocol:
    """Return a table's protocol with the features that its new columns turn on by themselves."""
    turned_on = _missing(snapshot, schema) & _TURNED_ON
    if not turned_on:
        return snapshot.protocol
    return upgraded(snapshot.protocol, with_features(turned_on & SUPPORTED_READER_FEATURES, turned_on | _BASE))


def _missing(snapshot: Snapshot, schema: StructType) -> frozenset[str]:
    present = features(snapshot.protocol)
    needed = writer_features(protocol_for(schema, {})) - _BASE
    return frozenset(name for name in needed if present.isdisjoint((name, f"{name}-preview")))


def upgraded(present: Protocol, needed: Protocol) -> Protocol:
    """Return the present protocol where it has all that is needed, else feature lists of both.

    In the lists a feature of readers and writers is in both: one that only one list names is on, one that only a legacy
    writer version implies is not, since readers do not know it.
    """
    named = (present.reader_features or frozenset()) | (present.writer_features or frozenset())
    readers = reader_features(present) | (named & SUPPORTED_READER_FEATURES)
    writers = writer_features(present) | readers
    if reader_features(needed) <= readers and writer_features(needed) <= writers:
        return present
    readers |= reader_features(needed)
    writers = (writers | writer_features(needed)) - SUPPORTED_READER_FEATURES | readers
    return Protocol(3, 7, readers, writers) if present.min_reader_version == 3 else with_features(readers, writers)


def _by_type(schema: StructType) -> Iterator[str]:
    for data_type in all_types(schema):
        if isinstance(data_type, TimestampNTZType):
            yield "timestampNtz"
        elif isinstance(data_type, VariantType):
            yield "variantType"
        elif isinstance(data_type, StructType):
            for field in data_type.fields:
                metadata = field.metadata
                if CURRENT_DEFAULT in metadata:
                    yield "allowColumnDefaults"
                if GENERATION_EXPRESSION in metadata:
                    yield "generatedColumns"
                if any(key.startswith(IDENTITY) for key in metadata):
                    yield "identityColumns"
