"""Cubes of a clustered table: the files that one clustering wrote, and which of them are clustered anew.

Delta: ClusteringStrategy, ZCube, ZCubeInfo.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence

from deltamerge.log.actions import AddFile, compact_json

CLUSTERING_PROVIDER = "liquid"
_CUBE, _COLUMNS, _CURVE = "ZCUBE_ID", "ZCUBE_ZORDER_BY", "ZCUBE_ZORDER_CURVE"


def new_cube(columns: Sequence[str]) -> dict[str, str | None]:
    """Return the tags of a new cube's files, which are ordered along a Z-order curve."""
    return {_CUBE: str(uuid.uuid4()), _COLUMNS: compact_json(columns), _CURVE: "zorder"}


def files_to_cluster(
    files: Sequence[AddFile], columns: Sequence[str], smallest: int, *, is_full: bool = False
) -> list[AddFile]:
    """Return the files that a clustering rewrites, those of one cube together, files without a cube first.

    Files that other implementations have clustered stay, and so do cubes of the table's columns that are large enough;
    where all the rest is one cube, there is nothing to do. Files that were clustered by other columns are rewritten.

    Args:
        smallest: The size in bytes from which on a cube stays as it is.
        is_full: Whether files that other implementations have clustered are rewritten, too.
    """
    cubes: dict[str, list[AddFile]] = defaultdict(list)
    for file in files:
        if is_full or file.clustering_provider in (None, CLUSTERING_PROVIDER):
            cubes[_cube_of(file, columns)].append(file)
    kept = {cube: of for cube, of in cubes.items() if not cube or sum(file.size for file in of) < smallest}
    if len(kept) == 1 and "" not in kept:
        return []
    return [file for cube in sorted(kept) for file in kept[cube]]


def cube_id(file: AddFile) -> str:
    """Return the id of a file's cube, whatever its columns; empty where it is in none."""
    return (file.tags or {}).get(_CUBE) or ""


def packed_cubes(files: Sequence[AddFile], size: int) -> list[list[AddFile]]:
    """Cut files into those of one new cube each, which are of some size (bytes) or a little larger."""
    packed: list[list[AddFile]] = [[]]
    filled = 0
    for file in files:
        if packed[-1] and filled >= size:
            packed.append([])
            filled = 0
        packed[-1].append(file)
        filled += file.size
    return [of for of in packed if of]


def _cube_of(file: AddFile, columns: Sequence[str]) -> str:
    """Return the id of a file's cube; empty where it has none of these columns."""
    tags = file.tags or {}
    return tags.get(_CUBE) or "" if tags.get(_COLUMNS) == compact_json(columns) else ""
