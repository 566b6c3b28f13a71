"""The rows of an AddFile by its statistics, and the statistics of a file that gets a deletion vector."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile
from deltamerge.log.paths import decode_path
from deltamerge.storage.store import Store
from deltamerge.workers.parquet_footer import rows_by_footer

_DECODER = json.JSONDecoder()
_BLANKS = " \t\r\n"


def record_count(file: AddFile) -> int | None:
    """Return the rows in a data file, deleted ones included; None where its statistics do not have it."""
    return _record_count(file.stats)


def _record_count(stats: str | None) -> int | None:
    if not stats:
        return None
    try:
        records = json.loads(stats).get("numRecords")
    except ValueError:
        return None
    return records if isinstance(records, int) else None


def rows_about(files: Iterable[tuple[str | None, int]]) -> int:
    """Estimate the rows of files, deleted ones included, from the statistics and the size in bytes of each.

    Without statistics a file counts a row for each byte, which few have.
    """
    counts = ((_record_count(stats), size) for stats, size in files)
    return sum(size if rows is None else rows for rows, size in counts)


def physical_rows(store: Store, file: AddFile) -> int:
    """Return the rows in a data file, deleted ones included, by its statistics or else its footer."""
    counted = record_count(file)
    return footer_rows(store, file) if counted is None else counted


def footer_rows(store: Store, file: AddFile) -> int:
    """Return the rows in a data file by its footer.

    Raises:
        DeltaTableException: It has no legible one.
    """
    path = decode_path(file.path)
    try:
        with store.open_input(path) as opened:
            rows, why = rows_by_footer(opened), "is encrypted"
    except ValueError as error:
        rows, why = None, f"cannot be read: {error}"
    if rows is None:
        raise DeltaTableException(
            "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER",
            f"The footer of the data file {store.absolute(path)} {why}. The log does not say how many rows the file "
            "has. Restore the file if it is damaged; otherwise copy the table's rows into a new table with Spark.",
            parameters={"path": store.absolute(path)},
        )
    return rows


def logical_rows(store: Store, file: AddFile) -> int:
    deleted = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
    return physical_rows(store, file) - deleted


def known_rows(files: Iterable[AddFile]) -> int | None:
    """Return how many rows files have by their statistics; None where one has none."""
    rows = 0
    for file in files:
        records = record_count(file)
        if records is None:
            return None
        rows += records - (0 if file.deletion_vector is None else file.deletion_vector.cardinality)
    return rows


def with_wide_bounds(stats: str | None, num_records: int) -> str:
    """Return the statistics of a file that gets a deletion vector, every number as it was spelled.

    ``tightBounds`` becomes false: the rows that attain a bound may be deleted. Protocol: Per-file Statistics;
    Writer Requirements for Deletion Vectors.
    """
    members = dict(_members(stats)) if stats else {}
    if members.get("numRecords", "null") == "null":
        members["numRecords"] = str(num_records)
    members["tightBounds"] = "false"
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in members.items()) + "}"


def _members(string: str) -> Iterator[tuple[str, str]]:
    """Yield the members of a JSON object with their values as they are spelled; none of what is no object."""
    try:
        if not isinstance(json.loads(string), dict):
            return
    except ValueError:
        return
    at = _skip(string, string.index("{") + 1)
    while string[at] != "}":
        name, at = _DECODER.raw_decode(string, at)
        start = _skip(string, _skip(string, at) + 1)
        _, at = _DECODER.raw_decode(string, start)
        yield name, string[start:at]
        at = _skip(string, at)
        if string[at] == ",":
            at = _skip(string, at + 1)


def _skip(string: str, at: int) -> int:
    while string[at] in _BLANKS:
        at += 1
    return at
