"""Which commits of others a merge survives by running again, when it does, and what it reports of them."""

from __future__ import annotations

from collections.abc import Sequence

from deltamerge.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from deltamerge.log.features.column_mapping import physical_name
from deltamerge.log.schema import StructType, simple_string
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.outcome import LostCommit
from deltamerge.spark.config import KEYS

RUN_AGAIN = (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentDeleteDeleteException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
"""Conflicts after which the same merge is right for the table as it is now, if its columns are still the same."""

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0
_DOUBLED_AT_MOST = 10
_DID = {
    "DELTA_CONCURRENT_APPEND": "added rows that the merge should have read",
    "DELTA_CONCURRENT_DELETE_READ": "removed a file that the merge had read",
    "DELTA_CONCURRENT_DELETE_DELETE": "removed a file that the merge was to remove",
    "DELTA_METADATA_CHANGED": "changed the table's metadata",
    "DELTA_PROTOCOL_CHANGED": "changed the table's protocol",
}


def seconds_to_wait(lost: int, random: float) -> float:
    """Return how long a merge that lost `lost` times waits: up to twice as long each time, so that writers part.

    Args:
        random: From 0 to 1.
    """
    return random * min(_LONGEST_WAIT, _FIRST_WAIT * (1 << min(lost - 1, _DOUBLED_AT_MOST)))


def check_same_columns(before: Snapshot, now: Snapshot) -> None:
    """Refuse to run again on another table, or on other columns than those that there were; new ones may be there."""
    has = _columns(now)
    changed = [".".join(path) for path, kind in _columns(before).items() if has.get(path) != kind]
    if changed or before.metadata.id != now.metadata.id:
        what = f"changed {', '.join(changed)}" if changed else "replaced the table"
        raise MetadataChangedException(
            "DELTA_METADATA_CHANGED",
            f"MetadataChangedException: The metadata of the Delta table {now.store.root} has been changed by a "
            f"concurrent update, which {what}. Nothing was written. Run it again if it is right for the table now.",
        )


def _columns(snapshot: Snapshot) -> dict[tuple[str, ...], tuple[str, str]]:
    """Return by path the types of columns and fields, and their names in files."""
    columns = {}
    for path, field in snapshot.schema.walk():
        kind = "struct" if isinstance(field.data_type, StructType) else simple_string(field.data_type)
        columns[path] = (kind, physical_name(field))
    return columns


def rerun_notes(lost: Sequence[LostCommit]) -> tuple[str, ...]:
    if not lost:
        return ()
    times = "once" if len(lost) == 1 else f"{len(lost)} times"
    return (f"ran again {times}, because other writers were first: {_listed(lost)}",)


def reconciled_notes(others: Sequence[LostCommit]) -> tuple[str, ...]:
    """Return a sentence on commits that changed other rows of the same files, if there were any."""
    if not others:
        return ()
    return (
        f"committed beside other writers, who changed other rows of the same files: {', '.join(map(_who, others))}",
    )


def gave_up(
    error: DeltaConcurrentModificationException, lost: Sequence[LostCommit]
) -> DeltaConcurrentModificationException:
    """Return the error of a merge that has lost as often as the session allows, and more than once."""
    return type(error)(
        error.error_class,
        f"{error.message} The merge ran {len(lost)} times, as {KEYS['conflict_retries']} allows: {_listed(lost)}.",
        parameters=error.parameters,
    )


def _listed(lost: Sequence[LostCommit]) -> str:
    return ", ".join(f"{_who(one)} {_did(one)} [{one.rule}]" for one in lost)


def _did(lost: LostCommit) -> str:
    return f"and those before it: {lost.why}" if lost.why else _DID.get(lost.rule, "conflicted")


def _who(lost: LostCommit) -> str:
    by = f" ({lost.operation})" if lost.operation else ""
    return "another writer" if lost.version is None else f"version {lost.version}{by}"
