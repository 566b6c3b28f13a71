"""Changes of a table's protocol: versions raised, features added and dropped."""

from __future__ import annotations

import json
from dataclasses import replace

from deltamerge.commands.committing import commit_command
from deltamerge.exceptions import DeltaAnalysisException, DeltaTableException
from deltamerge.log.actions import Action, Protocol
from deltamerge.log.protocol import (
    LEGACY_READER_FEATURES,
    LEGACY_WRITER_FEATURES,
    SUPPORTED_WRITER_FEATURES,
    reader_features,
    writer_features,
)
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.table import Table, spark_schema
from deltamerge.txn.prepared import ReadSet
from deltamerge.write.table_features import MIN_READER_VERSION, MIN_WRITER_VERSION, protocol_for, upgraded

_PREFIX = "delta.feature."
_CONSTRAINTS = "delta.constraints."
# Writer features that leave nothing in files or older versions which a reader would have to know, and the properties
# that go with each.
_DROPPABLE: dict[str, tuple[str, ...]] = {
    "checkConstraints": (),
    "inCommitTimestamp": (
        "delta.enableInCommitTimestamps",
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
    ),
}


def upgrade_protocol(table: Table, reader: int, writer: int) -> None:
    """Raise a table's protocol to versions; nothing is done where it has these or later ones.

    Raises:
        DeltaUnsupportedFeatureException: There are no such versions.
    """
    snapshot = table.snapshot()
    snapshot.check_writable()
    before = snapshot.protocol
    reader, writer = max(reader, before.min_reader_version), max(writer, before.min_writer_version)
    wanted = Protocol(reader, writer)
    if writer == 7 or reader == 3:
        readers, writers = reader_features(before), writer_features(before)
        wanted = Protocol(reader, 7, readers if reader == 3 else None, writers)
    protocol_for(spark_schema(snapshot), {MIN_READER_VERSION: str(reader), MIN_WRITER_VERSION: str(writer)})
    if wanted == before:
        return
    described = {
        "minReaderVersion": wanted.min_reader_version,
        "minWriterVersion": wanted.min_writer_version,
        **({} if wanted.reader_features is None else {"readerFeatures": sorted(wanted.reader_features)}),
        **({} if wanted.writer_features is None else {"writerFeatures": sorted(wanted.writer_features)}),
    }
    parameters = {"newProtocol": json.dumps(described, separators=(",", ":"))}
    _commit(table, snapshot, "UPGRADE PROTOCOL", parameters, [wanted])


def add_feature(table: Table, name: str) -> None:
    """Add a feature to a table's protocol; nothing is done where it is there.

    Raises:
        DeltaTableException: There is no such feature.
    """
    snapshot = table.snapshot()
    snapshot.check_writable()
    known = {feature.lower(): feature for feature in SUPPORTED_WRITER_FEATURES}
    if name.lower() not in known:
        raise DeltaTableException(
            "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG",
            f"Table features configured in the following Spark configs or Delta table properties are not recognized: "
            f"{_PREFIX}{name}.",
            sqlstate="56038",
            parameters={"configs": name},
        )
    feature = known[name.lower()]
    needed = protocol_for(spark_schema(snapshot), {f"{_PREFIX}{feature}": "supported"})
    wanted = upgraded(snapshot.protocol, needed)
    if wanted == snapshot.protocol:
        return
    properties = json.dumps({f"{_PREFIX}{feature}": "supported"}, separators=(",", ":"))
    _commit(table, snapshot, "SET TBLPROPERTIES", {"properties": properties}, [wanted])


def drop_feature(table: Table, name: str, *, truncate_history: bool) -> None:
    """Take a feature out of a table's protocol. Delta: AlterTableDropFeatureDeltaCommand.

    Raises:
        DeltaTableException: The table does not have the feature, or it cannot be dropped.
        DeltaAnalysisException: The table uses it.
    """
    snapshot = table.snapshot()
    snapshot.check_writable()
    present = reader_features(snapshot.protocol) | writer_features(snapshot.protocol)
    known = {feature.lower(): feature for feature in SUPPORTED_WRITER_FEATURES | present}
    feature = known.get(name.lower())
    if feature is None:
        raise _not_dropped("UNSUPPORTED_CLIENT_FEATURE", name, "it is no known feature", "0AKDC")
    if feature not in present:
        why = "it is not currently present in the table's protocol"
        raise _not_dropped("FEATURE_NOT_PRESENT", feature, why, "55000")
    if feature not in _DROPPABLE:
        why = "dropping this feature is not supported: use delta-spark for it"
        raise _not_dropped("NONREMOVABLE_FEATURE", feature, why, "0AKDC")
    if truncate_history:
        why = "the particular feature does not require history truncation"
        raise _not_dropped("HISTORY_TRUNCATION_NOT_ALLOWED", feature, why, "42000")
    configuration = snapshot.metadata.configuration
    constraints = [key.removeprefix(_CONSTRAINTS) for key in configuration if key.startswith(_CONSTRAINTS)]
    if feature == "checkConstraints" and constraints:
        listed = ", ".join(f"`{constraint}`" for constraint in sorted(constraints))
        raise DeltaAnalysisException(
            "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE",
            f"Cannot drop the CHECK constraints table feature. The following constraints must be dropped first: "
            f"{listed}.",
            sqlstate="0AKDE",
            parameters={"constraints": listed},
        )
    before = snapshot.protocol
    writers = writer_features(before) - {feature}
    readers = None if before.min_reader_version < 3 else reader_features(before)
    kept = {key: value for key, value in configuration.items() if key not in _DROPPABLE[feature]}
    actions: list[Action] = [_by_versions(Protocol(before.min_reader_version, 7, readers, writers))]
    if kept != configuration:
        actions.append(replace(snapshot.metadata, configuration=kept))
    parameters = {"featureName": feature, "truncateHistory": "false"}
    _commit(table, snapshot, "DROP FEATURE", parameters, actions)


def _by_versions(protocol: Protocol) -> Protocol:
    """Return a protocol without lists of features where versions imply just these."""
    readers, writers = reader_features(protocol), writer_features(protocol)
    for writer, implied in LEGACY_WRITER_FEATURES.items():
        for reader, of_reader in LEGACY_READER_FEATURES.items():
            if implied == writers and of_reader == readers:
                return Protocol(reader, writer)
    return protocol


def _not_dropped(error_class: str, feature: str, why: str, sqlstate: str) -> DeltaTableException:
    return DeltaTableException(
        f"DELTA_FEATURE_DROP_{error_class}",
        f"Cannot drop {feature} from this table: {why}. Nothing was changed.",
        sqlstate=sqlstate,
        parameters={"feature": feature},
    )


def _commit(
    table: Table, snapshot: Snapshot, operation: str, parameters: dict[str, str], actions: list[Action]
) -> None:
    commit_command(table, snapshot, operation, parameters, actions, metrics={}, read=ReadSet(whole_table=True))
