"""What is done for the log after a commit: its checksum, now and then a checkpoint, the removal of expired files."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from deltamerge.log.actions import Metadata
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.cleanup import clean_up_expired_log
from deltamerge.log.properties import integer
from deltamerge.log.segment import commit_path
from deltamerge.log.version_checksum import checksum_content, checksum_path, state_after
from deltamerge.txn.prepared import Committed, PreparedCommit

_LOGGER = logging.getLogger(__name__)


def maintain_log(
    committed: Committed, prepared: PreparedCommit, content: bytes | None, clock: Callable[[], int]
) -> None:
    """Write what belongs to a new version; nothing that fails here is an error of the commit, which has landed.

    Args:
        content: The commit file's; None where it is not known to be this one.
        clock: Returns milliseconds since the epoch.
    """
    if prepared.writes_checksum:
        with _no_error_of(committed, "version checksum"):
            _write_checksum(committed, prepared, content)
    if prepared.metadata is not None and _is_checkpoint_due(committed.version, prepared.metadata):
        with _no_error_of(committed, "checkpoint or the log's clean-up"):
            write_checkpoint(committed.snapshot, clock())
            clean_up_expired_log(committed.snapshot, clock())


@contextlib.contextmanager
def _no_error_of(committed: Committed, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Whatever fails, no error may make the commit look as if it had not landed.
        _LOGGER.warning(
            "Version %s of %s is committed, but its %s failed: %s",
            committed.version,
            committed.store.root,
            what,
            error,
            exc_info=True,
        )


def _write_checksum(committed: Committed, prepared: PreparedCommit, content: bytes | None) -> None:
    read, store = prepared.read_snapshot, committed.store
    if content is not None and committed.version == prepared.read_version + 1:
        # Known without reading anything back.
        before = None if read is None else read.state
        state = state_after(before, commit_path(committed.version), content, store.root)
    else:
        state = committed.snapshot.state
    # A file that is there already is another writer's, and stays (Protocol: Writer Requirements).
    with contextlib.suppress(FileExistsError):
        store.put_if_absent(checksum_path(committed.version), checksum_content(state, prepared.txn_id))


def _is_checkpoint_due(version: int, metadata: Metadata) -> bool:
    """Return whether a version is to have a checkpoint, as delta-spark decides it."""
    interval = integer(metadata.configuration, "delta.checkpointInterval", 10)
    return version > 0 and interval > 0 and version % interval == 0
