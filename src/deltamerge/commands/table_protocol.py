"""Changes of a table's protocol: versions raised, features added."""

from __future__ import annotations

from deltamerge.commands.committing import commit_alteration
from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import Protocol, compact_json
from deltamerge.log.protocol import (
    SUPPORTED_WRITER_FEATURES,
    reader_features,
    writer_features,
)
from deltamerge.spark.table import Table, spark_schema
from deltamerge.write.table_features import MIN_READER_VERSION, MIN_WRITER_VERSION, protocol_for, upgraded

_PREFIX = "delta.feature."


def upgrade_protocol(table: Table, reader: int, writer: int) -> None:
    """Raise a table's protocol to versions; nothing is done where it has these or later ones."""
    snapshot = table.snapshot_to_write()
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
    parameters = {"newProtocol": compact_json(described)}
    commit_alteration(table, snapshot, "UPGRADE PROTOCOL", parameters, [wanted])


def add_feature(table: Table, name: str) -> None:
    """Add a feature to a table's protocol; nothing is done where it is there."""
    snapshot = table.snapshot_to_write()
    known = {feature.lower(): feature for feature in SUPPORTED_WRITER_FEATURES}
    if name.lower() not in known:
        raise DeltaTableException(
            "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG",
            f"Table features configured in the following Spark configs or Delta table properties are not recognized: "
            f"{_PREFIX}{name}.",
            parameters={"configs": name},
        )
    feature = known[name.lower()]
    needed = protocol_for(spark_schema(snapshot), {f"{_PREFIX}{feature}": "supported"})
    wanted = upgraded(snapshot.protocol, needed)
    if wanted == snapshot.protocol:
        return
    properties = compact_json({f"{_PREFIX}{feature}": "supported"})
    commit_alteration(table, snapshot, "SET TBLPROPERTIES", {"properties": properties}, [wanted])
