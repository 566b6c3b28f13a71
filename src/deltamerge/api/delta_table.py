"""DeltaTable, as delta-spark's Python API has it."""

from __future__ import annotations

import datetime as dt
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltamerge.api.arguments import Condition, Values, assignments_of, condition_of
from deltamerge.api.merge_builder import DeltaMergeBuilder, merge_builder
from deltamerge.api.table_builder import DeltaColumnBuilder, DeltaTableBuilder, IdentityGenerator
from deltamerge.api.table_commands import TableCommands
from deltamerge.commands.convert import convert_to_delta
from deltamerge.commands.delete_update import delete, update
from deltamerge.exceptions import DeltaAnalysisException, DeltaTableNotFoundException
from deltamerge.log.change_feed import ChangeBoundary, ChangeFeed, change_range, required_columns
from deltamerge.log.commit_times import datetime_of
from deltamerge.log.history import COLUMNS, read_history
from deltamerge.log.paths import folders_up
from deltamerge.log.protocol import reader_features, writer_features
from deltamerge.log.snapshot import table_exists
from deltamerge.scan.changes import changes_frame
from deltamerge.scan.relation import newest_frame, table_frame
from deltamerge.scan.row_tracking import rows_with_metadata
from deltamerge.scan.time_travel import timestamp_ms
from deltamerge.spark.catalog import delta_location, named, table_location
from deltamerge.spark.frame_columns import with_table_name
from deltamerge.spark.session import merge_conf
from deltamerge.spark.table import Table, open_table
from deltamerge.sql.merge_ast import NameParts
from deltamerge.sql.names import parse_table_name, quote_name, shown_name
from deltamerge.sql.relations import folded
from deltamerge.sql.statements.ast import TableName
from deltamerge.storage.credentials import StoreOptions

__all__ = ["DeltaTable", "DeltaTableBuilder", "IdentityGenerator"]


# How many of the frames that `toDF` returned a table knows, so that their columns are its own.
_KNOWN_FRAMES = 16


class DeltaTable(TableCommands):
    """A Delta table: merge into it, read it, look at its history.

    Args:
        table: The table's location and the session.
        name: The name that may qualify its columns: an alias, or the table's with its database; no parts for none.
    """

    def __init__(self, table: Table, name: NameParts = ()) -> None:
        super().__init__(table)
        self._name = name
        self._frames: deque[DataFrame] = deque(maxlen=_KNOWN_FRAMES)

    @classmethod
    def forPath(cls, sparkSession: SparkSession, path: str, hadoopConf: StoreOptions | None = None) -> DeltaTable:
        """Open the table at a path.

        Args:
            sparkSession: The session.
            path: A local path or a URL.
            hadoopConf: Options of the object store, under obstore's names (``region``) or Hadoop's
                (``fs.s3a.access.key``). ``credential_provider`` is a callable that returns credentials as in obstore,
                and is called again before they expire. By default the session's settings are used
                (``spark.hadoop.fs.s3a.*``, also those of a bucket), then the environment's. Spark itself always uses
                the session's settings.

        Raises:
            DeltaTableNotFoundException: There is no Delta table.
            DeltaLogCorruptException: Its log cannot be read.
            DeltaUnsupportedFeatureException: Reading it needs a feature that is not implemented.
        """
        return cls(_opened(open_table(sparkSession, path, dict(hadoopConf or {}))))

    @classmethod
    def forName(
        cls, sparkSession: SparkSession, tableOrViewName: str, *, options: StoreOptions | None = None
    ) -> DeltaTable:
        """Open a table of the session's catalog, whose columns its name may qualify, as in ``people.id``.

        Args:
            sparkSession: The session.
            tableOrViewName: The table's name, perhaps with its database.
            options: Options of the object store; see `forPath`.

        Raises:
            DeltaTableNotFoundException: There is no such table, or it is not a Delta table.
        """
        named = TableName.of(parse_table_name(tableOrViewName))
        name = named.parts if named.path is None else ()
        try:
            return cls(open_by_name(sparkSession, tableOrViewName, options), name)
        except DeltaTableNotFoundException as error:
            # Jobs that make a table at their first run look for this class, or for these words.
            message = f"`{tableOrViewName}` is not a Delta table. {error.message}"
            parameters = {"tableName": tableOrViewName}
            raise DeltaTableNotFoundException("DELTA_MISSING_DELTA_TABLE", message, parameters=parameters) from None

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str, *, options: StoreOptions | None = None) -> bool:
        """Return whether there is a Delta table at a path, or at a folder that this is in, as for a partition's folder.

        Args:
            sparkSession: The session.
            identifier: A local path or a URL.
            options: Options of the object store; see `forPath`.

        Returns:
            Whether there is one; False for the log's own folder.
        """
        for number, folder in enumerate(folders_up(open_table(sparkSession, identifier, options).location)):
            try:
                if table_exists(open_table(sparkSession, folder, options).store):
                    return True
            except Exception:
                # Of folders above nobody need be able to see anything. Delta: findDeltaTableRoot.
                if number == 0:
                    raise
                return False
        return False

    @classmethod
    def create(
        cls, sparkSession: SparkSession | None = None, *, options: StoreOptions | None = None
    ) -> DeltaTableBuilder:
        """Start building a table, which must not exist yet.

        Args:
            sparkSession: The session; the active one by default.
            options: Options of the object store; see `forPath`.

        Returns:
            A builder; add columns, then call ``execute()``.
        """
        return DeltaTableBuilder(_session(sparkSession), cls, "create", options or {})

    @classmethod
    def createIfNotExists(
        cls, sparkSession: SparkSession | None = None, *, options: StoreOptions | None = None
    ) -> DeltaTableBuilder:
        """Start building a table; an existing one stays as it is.

        Args:
            sparkSession: The session; the active one by default.
            options: Options of the object store; see `forPath`.

        Returns:
            A builder; add columns, then call ``execute()``.
        """
        return DeltaTableBuilder(_session(sparkSession), cls, "create_if_not_exists", options or {})

    @classmethod
    def replace(
        cls, sparkSession: SparkSession | None = None, *, options: StoreOptions | None = None
    ) -> DeltaTableBuilder:
        """Start building a table that replaces an existing one, which must exist.

        Args:
            sparkSession: The session; the active one by default.
            options: Options of the object store; see `forPath`.

        Returns:
            A builder; add columns, then call ``execute()``.
        """
        return DeltaTableBuilder(_session(sparkSession), cls, "replace", options or {})

    @classmethod
    def createOrReplace(
        cls, sparkSession: SparkSession | None = None, *, options: StoreOptions | None = None
    ) -> DeltaTableBuilder:
        """Start building a table that replaces an existing one, if there is one.

        Args:
            sparkSession: The session; the active one by default.
            options: Options of the object store; see `forPath`.

        Returns:
            A builder; add columns, then call ``execute()``.
        """
        return DeltaTableBuilder(_session(sparkSession), cls, "create_or_replace", options or {})

    @classmethod
    def columnBuilder(cls, sparkSession: SparkSession, colName: str) -> DeltaColumnBuilder:
        """Start building a column of a new table.

        Args:
            sparkSession: The session.
            colName: The column's name.

        Returns:
            A builder; set its type, then call ``build()``.
        """
        return DeltaColumnBuilder(sparkSession, colName)

    @classmethod
    def convertToDelta(
        cls, sparkSession: SparkSession, identifier: str, partitionSchema: str | StructType | None = None
    ) -> DeltaTable:
        """Convert a folder of Parquet files to a Delta table; the files stay as they are.

        Args:
            sparkSession: The session.
            identifier: The folder, as ``parquet.`/path` ``; a Delta table stays as it is.
            partitionSchema: The columns whose values are in the folders' names, as DDL or a struct.

        Raises:
            DeltaAnalysisException: The identifier does not name a folder of Parquet files, or the folders do not
                match the partition columns.
            DeltaTableNotFoundException: The folder holds no Parquet files.
        """
        parts = parse_table_name(identifier)
        if len(parts) != 2 or parts[0].lower() != "parquet":
            location = delta_location(sparkSession, parts)
            if location is not None and table_exists(open_table(sparkSession, location).store):
                # As in delta-spark: the scripts that set tables up run more than once.
                return cls.forName(sparkSession, identifier)
            raise DeltaAnalysisException(
                "DELTA_MISSING_PROVIDER_FOR_CONVERT",
                f"CONVERT TO DELTA only supports folders of Parquet files, and {identifier} is none. Name the folder: "
                "parquet.`/path`.",
                parameters={"path": parts[-1]},
            )
        schema = StructType([]) if partitionSchema is None else partitionSchema
        found = StructType.fromDDL(schema) if isinstance(schema, str) else schema
        assert isinstance(found, StructType)
        convert_to_delta(open_table(sparkSession, parts[1]), found)
        return cls.forPath(sparkSession, parts[1])

    def _open(self, named: TableName) -> DeltaTable:
        spark, options = self.table.spark, dict(self.table.options)
        if named.path is not None:
            return DeltaTable.forPath(spark, named.path, options)
        return DeltaTable.forName(spark, quote_name(named.parts), options=options)

    def alias(self, aliasName: str) -> DeltaTable:
        """Name the table for a merge's conditions and values.

        Args:
            aliasName: The name.
        """
        aliased = DeltaTable(self.table, (aliasName,))
        aliased._frames = self._frames
        return aliased

    def _known_frames(self) -> tuple[DataFrame, ...]:
        return tuple(self._frames)

    def toDF(self) -> DataFrame:
        """Read the table at its latest version.

        Returns:
            A frame that stays at that version, unless it is merged into this table or written to it, which reads it
            anew. Merges, updates and deletes of this object take its columns
            (``table.toDF()["id"]``) as the table's.
        """
        frame = newest_frame(self.table, self.table.snapshot())
        if self._name:
            # An alias takes the place of the table's name.
            entry = self.table.entry
            is_of_entry = folded(entry[-len(self._name) :]) == folded(self._name)
            frame = with_table_name(frame, entry if is_of_entry else self._name)
        self._frames.append(frame)
        return frame

    def at(self, version: int | None = None, timestamp: str | dt.datetime | dt.date | None = None) -> DataFrame:
        """Read the table at an earlier version.

        Args:
            version: The version, or None.
            timestamp: The last version not after this time is read: a datetime, or a string such as
                ``2024-05-01 12:30:00`` in the session's time zone.

        Returns:
            A frame that stays at that version.

        Raises:
            DeltaTableException: There is no such version.
            DeltaAnalysisException: Both or neither are given, or there is no readable version for the timestamp.
        """
        if (version is None) == (timestamp is None):
            raise DeltaAnalysisException(
                "DELTA_ONEOF_IN_TIMETRAVEL", "Please either provide a timestamp or a version for time travel."
            )
        if timestamp is not None:
            return self.at_milliseconds(timestamp_ms(self.table.spark, timestamp))
        return table_frame(self.table, self.table.snapshot(version))

    def with_row_ids(self) -> DataFrame:
        """Read a table that has row tracking with the id of each row.

        Returns:
            The table's columns and a struct ``_metadata`` of ``row_id`` (BIGINT), which a row keeps for life,
            and ``row_commit_version`` (BIGINT), the version that last changed it.

        Raises:
            DeltaAnalysisException: The table has no row tracking.
        """
        return rows_with_metadata(self.table, self.table.snapshot())

    def at_milliseconds(self, milliseconds: int) -> DataFrame:
        """Read the version that the table had at a time; see `at`.

        Args:
            milliseconds: The time since 1970.

        Returns:
            A frame that stays at that version.

        Raises:
            DeltaAnalysisException: There is no readable version for the time.
        """
        return table_frame(self.table, self.table.snapshot(self.table.version_at(milliseconds)))

    def changes(
        self,
        startingVersion: int | None = None,
        endingVersion: int | None = None,
        startingTimestamp: str | dt.datetime | dt.date | None = None,
        endingTimestamp: str | dt.datetime | dt.date | None = None,
    ) -> DataFrame:
        """Read the table's change data feed, as delta-spark's option ``readChangeFeed`` does.

        Args:
            startingVersion: The first version whose changes are read.
            endingVersion: The last one; the latest by default.
            startingTimestamp: Instead of the first: changes made at this time or later.
            endingTimestamp: Instead of the last: changes made up to this time.

        Returns:
            The table's columns (where columns are mapped, those of the last version that is read), ``_change_type``
            (insert, update_preimage, update_postimage, delete),
            ``_commit_version`` (BIGINT) and ``_commit_timestamp`` (TIMESTAMP).

        Raises:
            DeltaIllegalArgumentException: The range ends before it begins, or begins after the latest version.
            DeltaAnalysisException: The range is wrong otherwise, was not recorded, or has changes of several schemas.
            DeltaTableException: A version is no longer in the log.
        """
        snapshot = self.table.snapshot()
        start = ChangeBoundary(startingVersion, self._milliseconds(startingTimestamp))
        end = ChangeBoundary(endingVersion, self._milliseconds(endingTimestamp))
        allows = merge_conf(self.table.spark).changes_out_of_range
        versions = change_range(snapshot, start, end, allows_out_of_range=allows)
        if versions is None:
            return changes_frame(self.table, snapshot, (), required_columns(snapshot.schema))
        feed = ChangeFeed.of(snapshot, *versions)
        changes = feed.read()
        return changes_frame(self.table, feed.snapshot, changes.files, changes.required)

    def _milliseconds(self, timestamp: str | dt.datetime | dt.date | None) -> int | None:
        return None if timestamp is None else timestamp_ms(self.table.spark, timestamp)

    def merge(
        self,
        source: DataFrame,
        condition: str | Column,
        *,
        dedupe_by: str | Sequence[str] | None = None,
        skip_unchanged: bool = False,
    ) -> DeltaMergeBuilder:
        """Start a merge into the table.

        Args:
            source: The source's rows; its alias qualifies its columns.
            condition: ON: SQL or a Column over both sides.
            dedupe_by: A source column or several, such as the time of a change. Of the source rows that share
                a key of ON's equalities, the one with the greatest value is merged and the others are ignored; if two
                have it, the merge fails and names the key.
            skip_unchanged: Whether a row to which an UPDATE would give the values that it has is left alone. The
                report counts these rows as skipped. The session's ``spark.deltamerge.merge.skipUnchanged`` asks for it
                in every merge.

        Returns:
            A builder; add clauses, then call ``execute()`` or ``run()``.
        """
        return merge_builder(
            self.table,
            self._name,
            source,
            condition,
            dedupe_by,
            skip_unchanged=skip_unchanged,
            target_frames=self._known_frames,
        )

    def delete(self, condition: Condition = None) -> None:
        """Delete rows.

        Args:
            condition: Which rows: SQL or a Column over the table; None means all.

        Raises:
            TypeError: The condition is neither SQL nor a Column.
            DeltaAnalysisException: The condition is wrong, or the table is append-only; nothing was changed.
            DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
        """
        delete(self.table, self._name, condition_of(condition), self._known_frames)

    def update(self, condition: Condition = None, set: Values | None = None) -> None:
        """Set columns of rows.

        Args:
            condition: Which rows: SQL or a Column over the table; None means all.
            set: Values by column, or by a field such as ``a.b``; SQL or Columns over the table.

        Raises:
            ValueError: There are no values.
            TypeError: The condition or a value is neither SQL nor a Column.
            DeltaAnalysisException: The statement is wrong, or the table is append-only; nothing was changed.
            DeltaRuntimeException: The data is at fault; the table is unchanged.
            DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
        """
        assignments = assignments_of(set, "'set'")
        update(self.table, self._name, condition_of(condition), assignments, self._known_frames)

    def history(self, limit: int | None = None) -> DataFrame:
        """List the table's commits, newest first.

        Args:
            limit: The maximum number of commits.

        Returns:
            version, timestamp, userId, userName, operation, operationParameters, job, notebook, clusterId,
            readVersion, isolationLevel, isBlindAppend, operationMetrics, userMetadata, engineInfo.
        """
        rows = [tuple(entry[name] for name in COLUMNS) for entry in read_history(self.table.store, limit)]
        return self.table.spark.createDataFrame(rows, ", ".join(f"{n} {t}" for n, t in COLUMNS.items()))

    def detail(self) -> DataFrame:
        """Describe the table.

        Returns:
            One row: format, id, name, description, location, createdAt, lastModified, partitionColumns,
            clusteringColumns, numFiles, sizeInBytes, properties, minReaderVersion, minWriterVersion, tableFeatures.
        """
        snapshot = self.table.snapshot()
        metadata, protocol = snapshot.metadata, snapshot.protocol
        features = sorted(reader_features(protocol) | writer_features(protocol))
        row = (
            "delta",
            metadata.id,
            ".".join(self.table.entry) or metadata.name,
            metadata.description,
            self.table.location,
            datetime_of(metadata.created_time),
            datetime_of(snapshot.timestamp_ms),
            list(metadata.partition_columns),
            list(map(shown_name, snapshot.clustered_by)),
            snapshot.files.num_files,
            snapshot.files.size_in_bytes,
            dict(metadata.configuration),
            protocol.min_reader_version,
            protocol.min_writer_version,
            features,
        )
        return self.table.spark.createDataFrame([row], _DETAIL)


_DETAIL = (
    "format STRING, id STRING, name STRING, description STRING, location STRING, createdAt TIMESTAMP, "
    "lastModified TIMESTAMP, partitionColumns ARRAY<STRING>, clusteringColumns ARRAY<STRING>, numFiles BIGINT, "
    "sizeInBytes BIGINT, properties MAP<STRING, STRING>, minReaderVersion INT, minWriterVersion INT, "
    "tableFeatures ARRAY<STRING>"
)


def other_detail(spark: SparkSession, provider: str, name: str, location: str) -> DataFrame:
    """Describe a table of the catalog that is no Delta table, as `DeltaTable.detail` does."""
    known = {"format": provider, "name": name, "location": location}
    names = re.findall(r"(?:^|, )([a-z]\w*) ", _DETAIL)
    return spark.createDataFrame([tuple(known.get(name) for name in names)], _DETAIL)


def open_by_name(spark: SparkSession, name: str, options: StoreOptions | None = None) -> Table:
    """Open a table of the session's catalog, with the options of its object store.

    Raises:
        DeltaTableNotFoundException: There is no such table, or it is not a Delta table.
    """
    table = open_table(spark, table_location(spark, name, options), options, name)
    return _opened(named(table, parse_table_name(name)))


def _opened(table: Table) -> Table:
    """Check that the table is there, and keep its schema, which a merge compares with the one it finds."""
    return replace(table, opened_schema=table.snapshot().metadata.schema_string)


def _session(spark: SparkSession | None) -> SparkSession:
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise ValueError("there is no active Spark session: pass one")
    return session
