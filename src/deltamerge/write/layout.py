"""Folders and sizes of a write's files, by the table's properties."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import record_count
from deltamerge.log.properties import is_enabled
from deltamerge.workers.partition_names import partition_folder

TARGET_FILE_SIZE = "delta.targetFileSize"
RANDOM_PREFIXES = "delta.randomizeFilePrefixes"
PREFIX_LENGTH = "delta.randomPrefixLength"

_OPTIMIZE_WRITE = ("delta.autoOptimize.optimizeWrite", "delta.autoOptimize")
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)
_DATA_FOLDER = re.compile(r"deltamerge-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-source)?")


def data_folder(configuration: Mapping[str, str]) -> str:
    """Return a new folder for a write; with ``delta.randomizeFilePrefixes`` its first characters are random."""
    new_id = uuid.uuid4()
    name = f"deltamerge-{new_id}"
    if not is_enabled(configuration, RANDOM_PREFIXES):
        return name
    length = configuration.get(PREFIX_LENGTH, "2")
    return f"{new_id.hex[: int(length) if length.isdecimal() and int(length) else 2]}/{name}"


def is_data_folder(name: str) -> bool:
    """Return whether a folder's name is one that `data_folder` makes, or that of a source which is kept beside it."""
    return _DATA_FOLDER.fullmatch(name) is not None


def partition_folders(columns: Sequence[str], values: Mapping[str, str | None]) -> str:
    """Return a partition's folders, each with a slash after it, as Spark names them."""
    return "".join(f"{partition_folder(name, values.get(name))}/" for name in columns)


def records_per_file(configuration: Mapping[str, str], files: Iterable[AddFile]) -> int | None:
    """Estimate how many rows make a file of the size that the table asks for.

    Args:
        configuration: The table's properties; ``delta.targetFileSize`` is in bytes or such as ``100mb``.
        files: Files of the table, whose rows are taken to be like those to be written.

    Returns:
        Rows, or None where the property is not set or the files have no statistics.
    """
    wanted = target_file_size(configuration)
    if wanted is None:
        return None
    size = rows = 0
    for file in files:
        counted = record_count(file)
        if counted is not None:
            size, rows = size + file.size, rows + counted
    return max(1, wanted * rows // size) if size and rows else None


def target_file_size(configuration: Mapping[str, str]) -> int | None:
    """Return the bytes that a table's files are to have, None where its properties do not say."""
    setting = configuration.get(TARGET_FILE_SIZE)
    if setting is None:
        return None
    size = bytes_of(setting)
    if not size:
        raise DeltaAnalysisException(
            "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED",
            f"The table property {TARGET_FILE_SIZE} is '{setting}', which is no size. Write it in bytes, or such as "
            "'100mb'.",
        )
    return size


def bin_size(configuration: Mapping[str, str], is_asked: bool | None, size: str) -> int | None:
    """Return of how many bytes a task's rows are to be in an optimized write; None where none is asked for.

    Delta: DeltaOptimizedWriterExec.

    Args:
        is_asked: By the session's setting; None leaves it to the table's property.
        size: The session's size, such as ``512m``.
    """
    by_table = any(is_enabled(configuration, name) for name in _OPTIMIZE_WRITE)
    if not (by_table if is_asked is None else is_asked):
        return None
    # Without a unit the setting is in MiB.
    return bytes_of(f"{size}m" if size.strip().isdigit() else size) or None


def bytes_of(size: str) -> int | None:
    """Return the bytes of a size such as ``100``, ``128MB`` or ``1 gib``; None where it is no size."""
    match = _SIZE.fullmatch(size)
    return None if match is None else int(match[1]) << 10 * ["", "k", "m", "g", "t"].index(match[2].lower())
