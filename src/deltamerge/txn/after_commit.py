"""What follows a commit: a checkpoint now and then, and removing expired log files. Its failures only warn."""

from __future__ import annotations

import logging
from collections.abc import Callable

from deltamerge.log.actions import Metadata
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.cleanup import clean_up_expired_log
from deltamerge.txn.prepared import Committed

_LOGGER = logging.getLogger(__name__)
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
DEFAULT_CHECKPOINT_INTERVAL = 10


def is_checkpoint_due(version: int, metadata: Metadata) -> bool:
    """Return whether a version is to have a checkpoint, as delta-spark decides it."""
    try:
        interval = int(metadata.configuration.get(CHECKPOINT_INTERVAL, DEFAULT_CHECKPOINT_INTERVAL))
    except ValueError:
        interval = DEFAULT_CHECKPOINT_INTERVAL
    return version > 0 and interval > 0 and version % interval == 0


def maintain_log(committed: Committed, metadata: Metadata | None, clock: Callable[[], int]) -> None:
    """Write a checkpoint and remove expired log files, where the new version is due for it."""
    if metadata is None or not is_checkpoint_due(committed.version, metadata):
        return
    try:
        write_checkpoint(committed.snapshot, clock())
        clean_up_expired_log(committed.snapshot, clock())
    except Exception as error:
        # Whatever fails, the commit has landed, and no error may make it look as if it had not.
        _LOGGER.warning(
            "Version %s of %s is committed, but its checkpoint or the log's clean-up failed: %s",
            committed.version,
            committed.store.root,
            error,
            exc_info=True,
        )
