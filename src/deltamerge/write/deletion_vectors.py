"""Deleted rows into deletion vectors: the bitmap of each touched file grows, all bitmaps go into few files."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.log.actions import AddFile, DeletionVectorDescriptor
from deltamerge.log.add_file_stats import physical_rows, with_wide_bounds
from deltamerge.log.features.deletion_vectors import (
    deleted_positions,
    read_deletion_vectors,
    relative_descriptor,
    vector_file_name,
)
from deltamerge.log.packing import packed
from deltamerge.log.properties import is_enabled
from deltamerge.log.protocol import features
from deltamerge.log.snapshot import Snapshot
from deltamerge.storage.store import Store
from deltamerge.workers.vector_format import pack_vectors, serialize

# delta-spark begins another file at this size too.
_FILE_BYTES = 2 << 20


@dataclass(frozen=True)
class VectorChanges:
    """What becomes of files some of whose rows are deleted by deletion vectors.

    Args:
        kept: The files that have rows left, each with its new vector.
        removed: The files that have none left.
        vectors_added: New vectors, on files that had one or not.
    """

    kept: tuple[AddFile, ...] = ()
    removed: tuple[AddFile, ...] = ()
    vectors_added: int = 0
    vectors_removed: int = 0
    vectors_updated: int = 0

    @staticmethod
    def of(kept: Sequence[AddFile], removed: Sequence[AddFile], before: Iterable[AddFile]) -> VectorChanges:
        """Count what becomes of files; `before` are all of them as they were."""
        had = {file.path for file in before if file.deletion_vector is not None}
        updated = sum(file.path in had for file in kept)
        return VectorChanges(tuple(kept), tuple(removed), len(kept), len(had), updated)


NO_VECTORS = VectorChanges()


def all_of(changes: Sequence[VectorChanges]) -> VectorChanges:
    return VectorChanges(
        kept=tuple(file for some in changes for file in some.kept),
        removed=tuple(file for some in changes for file in some.removed),
        vectors_added=sum(some.vectors_added for some in changes),
        vectors_removed=sum(some.vectors_removed for some in changes),
        vectors_updated=sum(some.vectors_updated for some in changes),
    )


def writes_deletion_vectors(snapshot: Snapshot, permitted: bool) -> bool:
    enabled = is_enabled(snapshot.metadata.configuration, "delta.enableDeletionVectors")
    supported = "deletionVectors" in features(snapshot.protocol)
    return permitted and enabled and supported


def write_deletion_vectors(
    store: Store, folder: str, deleted: Mapping[str, BitMap64], files: Mapping[str, AddFile]
) -> VectorChanges:
    """Write the vectors of files some of whose rows are deleted.

    Args:
        deleted: The positions to delete by file, none of them deleted before.
        files: The files by the same keys, with the vectors that they have.

    Returns:
        What to commit in the place of these files: each is removed as it was, `VectorChanges.kept` are added.
        Protocol: Writer Requirements for Deletion Vectors.
    """
    touched = {key: files[key] for key in sorted(deleted, key=lambda key: files[key].path)}
    present = [f.deletion_vector for f in touched.values() if f.deletion_vector is not None]
    before = read_deletion_vectors(store, present)
    kept: list[tuple[AddFile, BitMap64, int]] = []
    removed = []
    for key, file in touched.items():
        num_records = physical_rows(store, file)
        positions = _extended(before, file, deleted[key], num_records)
        if len(positions) == num_records:
            removed.append(file)
        else:
            kept.append((file, positions, num_records))
    vectors = _write(store, folder, [positions for _, positions, _ in kept])
    added = [
        replace(file, deletion_vector=vector, data_change=True, stats=with_wide_bounds(file.stats, num_records))
        for (file, _, num_records), vector in zip(kept, vectors, strict=True)
    ]
    return VectorChanges.of(added, removed, touched.values())


def _extended(before: Mapping[str, BitMap64], file: AddFile, positions: BitMap64, num_records: int) -> BitMap64:
    old = deleted_positions(file, before)
    if positions.max() >= num_records or not positions.isdisjoint(old):
        raise DeltaRuntimeException(
            "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX",
            f"Deletion vector integrity check failed: rows to delete were found in {file.path} that are deleted "
            f"already or are behind its {num_records} rows. Nothing was changed; the file may have been replaced "
            "in place.",
        )
    return positions | old


def _write(store: Store, folder: str, vectors: list[BitMap64]) -> list[DeletionVectorDescriptor]:
    descriptors: list[DeletionVectorDescriptor] = []
    serialized = ((len(positions), serialize(positions)) for positions in vectors)
    for group in packed(((vector, len(vector[1])) for vector in serialized), _FILE_BYTES):
        file_id = uuid.uuid4()
        file = pack_vectors([data for _, data in group])
        # Nobody else has the name: where an answer was lost, the file is this one.
        store.put(f"{folder}/{vector_file_name(file_id)}", file.content)
        descriptors += [
            relative_descriptor(folder, file_id, place, cardinality)
            for place, (cardinality, _) in zip(file.places, group, strict=True)
        ]
    return descriptors
