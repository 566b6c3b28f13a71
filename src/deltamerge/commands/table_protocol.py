"""Changes of a table's protocol: versions raised, features added."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from deltamerge.commands.committing import commit_alteration
from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import Protocol, compact_json
from deltamerge.log.protocol import (
    SUPPORTED_WRITER_FEATURES,
    reader_features,
    writer_features,
)
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.table import Table, spark_schema
from deltamerge.write.table_features import MIN_READER_VERSION, MIN_WRITER_VERSION, protocol_for, upgraded

_PREFIX = "delta.feature."


def raise_versions(table: Table, reader: int, writer: int) -> None:
    """Raise a table's protocol to versions; nothing is done where it has all that they stand for.

    Delta: the versions are a group of features, all of which are added where the protocol has lists of them.
    """
    snapshot = table.snapshot_to_write()
    before, properties = snapshot.protocol, {MIN_READER_VERSION: str(reader), MIN_WRITER_VERSION: str(writer)}
    asked = protocol_for(StructType(), properties)
    reader, writer = max(reader, before.min_reader_version), max(writer, before.min_writer_version)
    if before.min_writer_version == 7:
        wanted = upgraded(before, asked)
    elif writer == 7:
        wanted = Protocol(reader, 7, reader_features(before) if reader == 3 else None, writer_features(before))
    else:
        wanted = Protocol(reader, writer)
    _change(table, snapshot, wanted, properties)


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
    _change(table, snapshot, upgraded(snapshot.protocol, needed), {f"{_PREFIX}{feature}": "supported"})


def _change(table: Table, snapshot: Snapshot, wanted: Protocol, properties: Mapping[str, str]) -> None:
    if wanted != snapshot.protocol:
        parameters = {"properties": compact_json(properties)}
        commit_alteration(table, snapshot, "SET TBLPROPERTIES", parameters, [wanted])
