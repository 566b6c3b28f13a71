"""The names of folders in which Spark's writer puts the rows of a partition, and which tell its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql.types import BinaryType, StringType, StructField, TimestampType

from deltamerge.exceptions import DeltaTableException
from deltamerge.spark import columns as F
from deltamerge.storage.store import Store
from deltamerge.workers.partition_names import NULL_PARTITION, escape_path_name, unescape_path_name

# Before the hexadecimal digits of a value's UTF-8.
_ENCODED = "!"


@dataclass(frozen=True)
class PartitionFolders:
    """How Spark is to name the folders of partitions.

    Args:
        tell_case: Whether ``DE`` and ``de`` are two folders; else they would be one, with files of the same names.
    """

    tell_case: bool = True

    def name(self, value: Column, field: StructField) -> Column:
        """Return what a partition column's value is called in folders."""
        spelled = partition_string(value, field)
        if not isinstance(field.dataType, (StringType, BinaryType)):
            return spelled
        is_encoded = spelled.startswith(_ENCODED) if self.tell_case else spelled.rlike("^!|[A-Z]|[^\\x00-\\x7F]")
        return F.when(is_encoded, F.concat(F.lit(_ENCODED), F.lower(F.hex(spelled)))).otherwise(spelled)


def folders_in(store: Store, folder: str) -> PartitionFolders:
    if not store.is_local:
        return PartitionFolders()
    store.make_folder(folder)
    return PartitionFolders(tell_case=not Path(store.root, folder.swapcase()).exists())


def values_in(path: str, columns: Sequence[str]) -> dict[str, str | None]:
    """Return the partition values that a file's folders name.

    Args:
        columns: The partition columns' names in the log.
    """
    names = {escape_path_name(name): name for name in columns}
    values: dict[str, str | None] = {}
    for folder in path.split("/")[-1 - len(columns) : -1] if columns else ():
        name, _, value = folder.partition("=")
        values[names[name]] = None if value == NULL_PARTITION else unescape_path_name(value)
    return values


def values_written(path: str, columns: Sequence[str]) -> dict[str, str | None]:
    """Return the partition values of a file that Spark has put into folders of `PartitionFolders`.

    Raises:
        DeltaTableException: Java has not spelled a folder's name as it was told.
    """
    if "?" in path or not _is_unicode(path):
        # Hive's escapes leave no such character in a name.
        raise _not_spelled(path)
    return {name: _decoded(value) for name, value in values_in(path, columns).items()}


def _decoded(value: str | None) -> str | None:
    if value is None or not value.startswith(_ENCODED):
        return value
    return bytes.fromhex(value[len(_ENCODED) :]).decode(errors="replace")


def _is_unicode(path: str) -> bool:
    """Return whether no byte of a name was other than UTF-8, which Python shows by half a pair of surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in path)


def _not_spelled(path: str) -> DeltaTableException:
    shown = path.encode(errors="backslashreplace").decode()
    return DeltaTableException(
        "DELTAMERGE_FILE_NAME_ENCODING",
        f"Spark's Java does not spell file names in UTF-8: '{shown}' is not the name that was meant. Nothing was "
        "committed. Start the driver and the executors with LC_ALL=C.UTF-8 in their environment.",
        parameters={"path": shown},
    )


def partition_string(value: Column, field: StructField) -> Column:
    """Spell partition values as the log does, a TIMESTAMP's in UTC. Protocol: Partition Value Serialization."""
    if isinstance(field.dataType, TimestampType):
        return _utc_string(value)
    return value.cast(StringType())


def _utc_string(value: Column) -> Column:
    micros = F.unix_micros(value)
    rest = F.pmod(micros, F.lit(86_400_000_000))
    # Spark divides BIGINTs as DOUBLEs, which the last microsecond of a day would round up.
    day = (micros - rest) / F.lit(86_400_000_000)
    date = F.date_add(F.lit("1970-01-01").cast("date"), day.cast("int")).cast("string")
    seconds = F.floor(rest / F.lit(1_000_000))
    clock = F.format_string(
        "%02d:%02d:%02d.%06d",
        F.floor(seconds / F.lit(3600)),
        F.pmod(F.floor(seconds / F.lit(60)), F.lit(60)),
        F.pmod(seconds, F.lit(60)),
        F.pmod(rest, F.lit(1_000_000)),
    )
    return F.concat(date, F.lit("T"), clock, F.lit("Z"))
