"""Whether a transaction and commits that came first changed or read the same rows, where they share files.

Commits that delete rows by deletion vectors leave the files where they are: what each of two writers deletes in one
file is known by position, so that both deletions hold if they are of different rows. Frozen values only: what is in
the files is looked at by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pyroaring import BitMap64

from deltamerge.log.actions import AddFile, DeletionVectorDescriptor
from deltamerge.log.features.deletion_vectors import deleted_positions
from deltamerge.log.paths import canonical_path
from deltamerge.txn.conflicts import WinningCommit


@dataclass(frozen=True)
class OtherChanges:
    """What commits that came first did to the files that a transaction read, and which rows they added.

    Args:
        states: By canonical path the states of a file that the transaction read: as it was read, then as each commit
            left it that changed it.
        removed: Those of them that are no longer in the table.
        added: By canonical path files with rows that were not there.
    """

    states: Mapping[str, tuple[AddFile, ...]] = field(hash=False)
    removed: frozenset[str]
    added: Mapping[str, AddFile] = field(hash=False)

    @property
    def vectors(self) -> tuple[DeletionVectorDescriptor, ...]:
        """The deletion vectors that decide which rows were changed."""
        found = (file.deletion_vector for states in self.states.values() for file in states)
        return tuple(vector for vector in found if vector is not None)


@dataclass(frozen=True)
class RowsToCheck:
    """Rows of a file that others deleted, restored or added; `positions` is None for all that are not deleted."""

    file: AddFile
    positions: BitMap64 | None = field(default=None, hash=False)


@dataclass(frozen=True)
class Resolution:
    """How a transaction commits after the others.

    Args:
        united: By canonical path the files, as the others left them, whose vectors grow by what it deletes.
        to_check: Rows that it must not have read: none may match its source.
    """

    united: Mapping[str, AddFile] = field(hash=False)
    to_check: tuple[RowsToCheck, ...]


def other_changes(
    read: Iterable[AddFile], winners: Iterable[WinningCommit], root: str, *, blind_appends: bool
) -> OtherChanges:
    """Sum up what commits did, in the order of their versions.

    Args:
        blind_appends: Whether files count that were added by a writer which read nothing (Serializable).
    """
    now = {canonical_path(file.path, root): file for file in read}
    states: dict[str, tuple[AddFile, ...]] = {}
    added: dict[str, AddFile] = {}
    removed: set[str] = set()
    for winner in winners:
        adds = {canonical_path(file.path, root): file for file in winner.added}
        counts = blind_appends or not winner.is_blind_append
        for path in (canonical_path(file.path, root) for file in winner.removed):
            if path in now and path not in adds:
                states.setdefault(path, (now.pop(path),))
                removed.add(path)
        for path, file in adds.items():
            if path in now:
                states[path] = (*states.get(path, (now[path],)), file)
                now[path] = file
            elif file.data_change and counts:
                # Of a file that was added twice all rows count, whichever were deleted in between.
                added[path] = replace(file, deletion_vector=None) if path in added else file
    return OtherChanges(states, frozenset(removed), added)


def resolve_rows(
    changes: OtherChanges,
    deleted: Mapping[str, BitMap64],
    rewritten: frozenset[str],
    vectors: Mapping[str, BitMap64],
    *,
    deletes_what_matched: bool,
) -> Resolution | None:
    """Return how a transaction commits after others; None where both changed a row, or a row's file is gone.

    Args:
        deleted: By canonical path the positions that the transaction deletes by deletion vectors.
        rewritten: The canonical paths of files that it removes.
        vectors: The positions of `changes.vectors`, by their `unique_id`.
        deletes_what_matched: Whether it deletes each row that made a difference to it, an updated one's old values
            too: then rows that it did not delete may go.
    """
    united: dict[str, AddFile] = {}
    # A file that went and came back may have lost rows and got others: all that it ever had count.
    to_check = [
        RowsToCheck(replace(file, deletion_vector=None) if path in changes.removed else file)
        for path, file in changes.added.items()
    ]
    for path, states in changes.states.items():
        is_removed = path in changes.removed
        if path in rewritten or (is_removed and path in deleted):
            return None
        if is_removed and path in changes.added:
            continue
        sets = [deleted_positions(file, vectors) for file in states]
        gone = BitMap64.union(*sets) - sets[0]
        back = BitMap64.union(BitMap64(), *(before - after for before, after in pairwise(sets)))
        if path in deleted:
            if not deleted[path].isdisjoint(gone):
                return None
            united[path] = states[-1]
        if not is_removed:
            rows = back if deletes_what_matched else gone | back
            to_check += [RowsToCheck(states[-1], rows)] if rows else []
        elif back:
            to_check.append(RowsToCheck(replace(states[0], deletion_vector=None)))
        elif not deletes_what_matched:
            to_check.append(RowsToCheck(states[0]))
    return Resolution(united, tuple(to_check))
