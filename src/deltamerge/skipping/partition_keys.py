"""The partition that a file is in, by its values: writers may spell one value in several ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from deltamerge.log.actions import AddFile
from deltamerge.log.snapshot import Snapshot
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE, find_column
from deltamerge.skipping.keys import Key
from deltamerge.skipping.partition_values import partition_parser
from deltamerge.skipping.timestamps import parse_instant

Partition: TypeAlias = "tuple[Key | None, ...]"


def partition_of(
    snapshot: Snapshot,
    session_time_zone: str,
    unread: Callable[[str, str], Key] = lambda _, string: string,
) -> Callable[[AddFile], Partition]:
    """Return what reads a file's partition: the values of the partition columns, as keys.

    Args:
        unread: Returns what stands for a column's string that cannot surely be read as the column's type; by default
            the string.
    """
    readers = [_reader(snapshot, name, session_time_zone, unread) for name in snapshot.metadata.partition_columns]
    return lambda file: tuple(read(file.partition_values) for read in readers)


def _reader(
    snapshot: Snapshot, name: str, session_time_zone: str, unread: Callable[[str, str], Key]
) -> Callable[[Mapping[str, str | None]], Key | None]:
    column = find_column(snapshot.schema, (name,), frozenset({name}))
    assert column is not None
    physical = column.physical_path[0]
    ddl = next(field for field in snapshot.schema.fields if field.name == name).metadata.get(CHAR_VARCHAR_TYPE)
    is_char = isinstance(ddl, str) and ddl.lower().startswith("char")
    parse = partition_parser(column.type, session_time_zone, parse_instant)

    def read(values: Mapping[str, str | None]) -> Key | None:
        string = values.get(physical)
        if string is None or string == "":
            return None
        key = (string.rstrip(" ") if is_char else string) if parse is None else parse(string)
        return unread(name, string) if key is None else key

    return read
