"""The other commands of delta-spark's Python API: maintenance, earlier versions, copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from deltamerge.api.arguments import check_value
from deltamerge.api.new_tables import clone, find_place
from deltamerge.api.optimize_builder import DeltaOptimizeBuilder
from deltamerge.api.statements import frames
from deltamerge.commands.drop_feature import drop_feature
from deltamerge.commands.restore import METRICS as RESTORE_METRICS
from deltamerge.commands.restore import restore_to_version, version_of
from deltamerge.commands.table_protocol import add_feature, raise_versions
from deltamerge.commands.vacuum import garbage_paths, vacuum
from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException
from deltamerge.scan.time_travel import timestamp_ms
from deltamerge.spark.table import Table
from deltamerge.sql.names import is_path, parse_table_name
from deltamerge.sql.statements.ast import TableName
from deltamerge.txn.symlink_manifests import write_manifests

if TYPE_CHECKING:
    from typing_extensions import Self

_MANIFESTS = "symlink_format_manifest"


class TableCommands:
    """The commands of a `DeltaTable` other than reading and changing rows.

    Args:
        table: The table's location and the session.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def vacuum(self, retentionHours: float | None = None, *, dry_run: bool = False) -> DataFrame:
        """Delete files below the table's folder that no version within the retention refers to.

        With ``spark.databricks.delta.vacuum.lite.enabled`` those of them that commits in the log removed.

        Args:
            retentionHours: How long files of earlier versions are kept. Only 0 changes anything, unless
                ``spark.databricks.delta.vacuum.retentionWindowIgnore.enabled`` is false; else, and by default, it is
                the table's property ``delta.deletedFileRetentionDuration``, a week unless it is set.
            dry_run: Whether to return the files that would be deleted, without deleting them.

        Returns:
            A frame without rows or columns; for a dry run one row per file: path.

        Raises:
            DeltaIllegalArgumentException: The retention is negative, or shorter than the table's, which
                ``spark.databricks.delta.retentionDurationCheck.enabled`` = false permits.
        """
        hours = None if retentionHours is None else float(retentionHours)
        if dry_run:
            return frames.table(self.table.spark, [(path,) for path in garbage_paths(self.table, hours)], "path STRING")
        vacuum(self.table, hours)
        return frames.nothing(self.table.spark)

    def generate(self, mode: str) -> None:
        """Write manifests of the table's files, for engines that cannot read Delta.

        Args:
            mode: ``symlink_format_manifest``.

        Raises:
            DeltaIllegalArgumentException: There is no such mode.
            DeltaTableException: The table has deletion vectors or column mapping, which other readers do not know.
        """
        if mode.lower() != _MANIFESTS:
            raise DeltaIllegalArgumentException(
                "DELTA_MODE_NOT_SUPPORTED",
                f"Specified mode '{mode}' is not supported. Supported modes are: {_MANIFESTS}.",
                parameters={"mode": mode, "supportedModes": _MANIFESTS},
            )
        write_manifests(self.table.snapshot())

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the versions of the table's protocol; they are never lowered.

        Args:
            readerVersion: What a reader must know.
            writerVersion: What a writer must know.

        Raises:
            ValueError: A version is not an integer.
            DeltaUnsupportedFeatureException: There is no such version.
        """
        for name, version in (("The readerVersion", readerVersion), ("The writerVersion", writerVersion)):
            check_value(isinstance(version, int), name, "an integer", version)
        raise_versions(self.table, readerVersion, writerVersion)

    def addFeatureSupport(self, featureName: str) -> None:
        """Add a feature to the table's protocol.

        Args:
            featureName: Its name, such as ``deletionVectors``.

        Raises:
            ValueError: The name is not a string.
            DeltaTableException: There is no such feature.
        """
        check_value(isinstance(featureName, str), "featureName", "a string", featureName)
        add_feature(self.table, featureName)

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Take a feature out of the table's protocol, and before it all that uses it out of the table.

        By default earlier versions may use the feature: the protocol then has ``checkpointProtection`` instead.

        Args:
            featureName: Its name, such as ``deletionVectors``.
            truncateHistory: Whether to delete all versions but those of the last day, and to drop the feature only if
                none that is left uses it. Drop it a second time when they have expired.

        Raises:
            ValueError: An argument is of another type.
            DeltaTableException: The table does not have the feature, it cannot be dropped, or versions that use it have
                to expire first.
            DeltaAnalysisException: The table's columns or constraints need it.
        """
        check_value(isinstance(featureName, str), "featureName", "a string", featureName)
        is_right = truncateHistory is None or isinstance(truncateHistory, bool)
        check_value(is_right, "truncateHistory", "a boolean", truncateHistory)
        drop_feature(self.table, featureName, truncate_history=bool(truncateHistory))

    def restoreToVersion(self, version: int) -> DataFrame:
        """Restore an earlier version, as a new commit.

        Args:
            version: The version.

        Returns:
            One row: table_size_after_restore, num_of_files_after_restore, num_removed_files, num_restored_files,
            removed_files_size, restored_files_size (BIGINT). No row, and no new version, for the latest version.

        Raises:
            ValueError: The version is not an integer.
            DeltaAnalysisException: It does not exist yet.
            DeltaIllegalArgumentException: Some of its files are missing.
            DeltaTableException: It is no longer in the log.
        """
        check_value(isinstance(version, int), "version", "an int", version)
        return frames.of_metrics(self.table.spark, restore_to_version(self.table, version), RESTORE_METRICS)

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Restore the version that the table had at a time; see `restoreToVersion`.

        Args:
            timestamp: Such as ``2024-05-01 12:30:00``, in the session's time zone.

        Returns:
            What `restoreToVersion` returns.

        Raises:
            ValueError: The timestamp is not a string.
            DeltaAnalysisException: It is not a timestamp, or there is no readable version for it.
        """
        check_value(isinstance(timestamp, str), "timestamp", "a string", timestamp)
        version = version_of(self.table, timestamp_ms(self.table.spark, timestamp))
        metrics = restore_to_version(self.table, version, timestamp)
        return frames.of_metrics(self.table.spark, metrics, RESTORE_METRICS)

    def optimize(self) -> DeltaOptimizeBuilder:
        """Begin to compact the table's files, or to order its rows.

        Returns:
            A builder; call ``executeCompaction()`` or ``executeZOrderBy()``.
        """
        return DeltaOptimizeBuilder(self.table)

    def clone(
        self, target: str, isShallow: bool = False, replace: bool = False, properties: Mapping[str, str] | None = None
    ) -> Self:
        """Create a shallow clone of the latest version: a new table that refers to this one's files.

        Args:
            target: The new table's path or URL.
            isShallow: Must be True: files are not copied.
            replace: Whether the target may be an existing table, which must be empty.
            properties: Properties of the new table, added to this one's.

        Raises:
            ValueError: An argument has the wrong type.
            DeltaAnalysisException: The clone is not shallow, or the target exists already.
        """
        return self._cloned(None, target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a shallow clone of an earlier version; see `clone`.

        Args:
            version: The version.
            target: The new table's path or URL.
            isShallow: Must be True: files are not copied.
            replace: Whether the target may be an existing table, which must be empty.
            properties: Properties of the new table, added to this one's.

        Raises:
            ValueError: An argument has the wrong type.
            DeltaAnalysisException: The clone is not shallow, or the target exists already.
            DeltaTableException: There is no such version.
        """
        check_value(isinstance(version, int), "version", "an int", version)
        return self._cloned(version, target, isShallow, replace, properties)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a shallow clone of the version that the table had at a time; see `clone`.

        Args:
            timestamp: Such as ``2024-05-01 12:30:00``, in the session's time zone.
            target: The new table's path or URL.
            isShallow: Must be True: files are not copied.
            replace: Whether the target may be an existing table, which must be empty.
            properties: Properties of the new table, added to this one's.

        Raises:
            ValueError: An argument has the wrong type.
            DeltaAnalysisException: The clone is not shallow, the target exists already, or there is no readable
                version for the timestamp.
        """
        check_value(isinstance(timestamp, str), "timestamp", "a string", timestamp)
        version = self.table.version_at(timestamp_ms(self.table.spark, timestamp))
        return self._cloned(version, target, isShallow, replace, properties)

    def _cloned(
        self, version: int | None, target: str, is_shallow: bool, replaces: bool, properties: Mapping[str, str] | None
    ) -> Self:
        check_value(isinstance(target, str), "target", "a string", target)
        check_value(isinstance(is_shallow, bool), "isShallow", "a boolean", is_shallow)
        check_value(isinstance(replaces, bool), "replace", "a boolean", replaces)
        check_value(properties is None or isinstance(properties, dict), "properties", "a dict", properties)
        for name, value in (properties or {}).items():
            check_value(isinstance(name, str), f"All property keys including {name}", "a string", name)
            check_value(isinstance(value, str), f"All property values including {value}", "a string", value)
        if not is_shallow:
            raise DeltaAnalysisException(
                "DELTA_UNSUPPORTED_CLONE",
                "Only shallow clones are supported: pass isShallow=True, or copy the rows with write_delta.",
            )
        # What has a slash or a colon outside of backticks is no name.
        is_plain_path = is_path(target.partition("`")[0])
        named = TableName((target,), target) if is_plain_path else TableName.of(parse_table_name(target))
        place = find_place(self.table.spark, named, None, self.table.options)
        clone(place, self.table, version, properties or {}, replaces=replaces)
        return self._open(named)

    def _open(self, named: TableName) -> Self:
        raise NotImplementedError
