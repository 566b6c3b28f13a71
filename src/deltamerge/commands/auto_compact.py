"""Auto compaction: after a commit the small files of the partitions that got files are compacted, where they are many.

Delta: AutoCompact, a hook after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from deltamerge.commands.optimize import compact
from deltamerge.commands.rewriting import by_partition
from deltamerge.log.actions import AddFile
from deltamerge.log.properties import is_enabled
from deltamerge.merge.command import MergeIntoCommand
from deltamerge.merge.executors.merge_changes import MergeChanges
from deltamerge.merge.outcome import MergeOutcome, Progress
from deltamerge.spark.config import AutoCompactConf, CommandConf
from deltamerge.spark.held_settings import for_reading, session_settings
from deltamerge.spark.session import errors_not_logged, merge_conf, session_conf
from deltamerge.spark.table import Table

logger = logging.getLogger("deltamerge.commands.AutoCompact")

PROPERTIES = ("delta.autoOptimize.autoCompact", "delta.autoOptimize")


def merge_and_compact(
    command: MergeIntoCommand,
    progress: Progress | None = None,
    *,
    on_commit: Callable[[MergeChanges, int], None] = lambda _, __: None,
) -> MergeOutcome:
    """Run a merge, then compact what it wrote where that is asked for."""
    committed: list[MergeChanges] = []

    def noted(changes: MergeChanges, version: int) -> None:
        committed.append(changes)
        on_commit(changes, version)

    compact_after = auto_compaction(command.table)
    outcome = command.run(progress, on_commit=noted)
    for changes in committed:
        appended = () if changes.appended is None else changes.appended.written.files
        compact_after(changes.execution.metadata.configuration, (*changes.written.files, *appended))
    return outcome


def auto_compaction(table: Table) -> Callable[[Mapping[str, str], Sequence[AddFile]], None]:
    """Return what is to follow a commit, given the table's properties and the files that the commit added.

    It compacts the partitions of these files, where session or table ask for it. The commit is there, so that a failure
    is only a warning in the log.

    Raises:
        DeltaIllegalArgumentException: A setting of the session has a value that it cannot have.
    """
    conf = session_conf(table.spark, AutoCompactConf)

    def compact_after(configuration: Mapping[str, str], added: Sequence[AddFile]) -> None:
        asked = any(is_enabled(configuration, name) for name in PROPERTIES)
        if not added or not (asked if conf.enabled is None else conf.enabled):
            return
        try:
            _compact(table, conf, added)
        except Exception:
            # Whatever fails here, whoever wrote must not take it for a write that failed, and write again.
            logger.warning("the small files of %s were not compacted", table.name, exc_info=True)

    return compact_after


def _compact(table: Table, conf: AutoCompactConf, added: Sequence[AddFile]) -> None:
    with session_settings(table.spark, for_reading(table.spark)), errors_not_logged():
        snapshot = table.snapshot_to_write()
        if snapshot.clustered_by:
            # To order its rows takes an OPTIMIZE.
            return
        smallest = conf.max_file_size // 2 if conf.min_file_size is None else conf.min_file_size
        zone = merge_conf(table.spark).session_time_zone
        written = by_partition(snapshot, added, zone).keys()
        small = (file for file in snapshot.files.add_files() if file.size < smallest)
        candidates = [
            file
            for partition, files in by_partition(snapshot, small, zone).items()
            if len(files) >= conf.min_num_files and (not conf.modified_partitions_only or partition in written)
            for file in files
        ]
        commands = session_conf(table.spark, CommandConf)
        sized = replace(commands, optimize_min_file_size=smallest, optimize_max_file_size=conf.max_file_size)
        compact(table, snapshot, candidates, sized)
