"""Files of a table as the work of tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa

from deltamerge.data_source.request import Request
from deltamerge.log.actions import AddFile
from deltamerge.log.features.deletion_vectors import deleted_rows
from deltamerge.log.paths import decode_path
from deltamerge.scan.paths import located
from deltamerge.skipping.partition_values import BOOLEANS
from deltamerge.skipping.timestamps import (
    MICROS_PER_DAY,
    in_known_years,
    local_micros,
    parse_date,
    parse_instant,
    parse_timestamp,
)
from deltamerge.storage.store import Store
from deltamerge.workers.table_columns import padded
from deltamerge.workers.table_rows import FilePart
from deltamerge.workers.vector_blocks import blocks_of

_MAX_BYTES, _OPEN_BYTES = 128 << 20, 4 << 20
# Enough digits for any DECIMAL; rounded as Spark casts strings.
_DECIMALS = Context(prec=76, rounding=ROUND_HALF_UP)


@dataclass(frozen=True)
class PartitionColumn:
    """A partition column.

    Args:
        name: Its name in the query.
        physical: Its name in the log.
        pad: The length to which strings are filled up with blanks; None for none.
    """

    name: str
    physical: str
    type: pa.DataType
    pad: int | None = None

    def value_of(self, file: AddFile, time_zone: str) -> pa.Array:
        return padded(partition_value(file.partition_values.get(self.physical), self.type, time_zone), self.pad)


def file_parts(
    store: Store,
    files: Sequence[AddFile],
    columns: Sequence[PartitionColumn],
    time_zone: str,
    constants: Sequence[Mapping[str, pa.Array]] | None = None,
) -> list[FilePart]:
    vectors = deleted_rows(store, files)
    parts = []
    for number, file in enumerate(files):
        vector = file.deletion_vector
        values = {column.name: column.value_of(file, time_zone) for column in columns}
        parts.append(
            FilePart(
                located(store, decode_path(file.path)),
                deleted=None if vector is None else blocks_of(vectors[vector.unique_id]),
                values={**values, **(constants[number] if constants is not None else {})},
                # One that the log does not have is 0.
                size=file.size or None,
            )
        )
    return parts


def partition_value(string: str | None, kind: pa.DataType, time_zone: str) -> pa.Array:
    """Return a partition's value as an array of one value. Protocol: Partition Value Serialization."""
    if string is None or string == "":
        return pa.nulls(1, kind)
    try:
        return _value(string, kind, time_zone)
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        raise ValueError(f"the partition value '{string}' is no {kind}: {error}") from None


def _value(string: str, kind: pa.DataType, time_zone: str) -> pa.Array:
    value: object = string
    if pa.types.is_boolean(kind):
        value = BOOLEANS.get(string.lower())
        if value is None:
            raise ValueError("neither true nor false")
    elif pa.types.is_integer(kind):
        value = int(string)
    elif pa.types.is_floating(kind):
        value = float(string.lower().replace("infinity", "inf"))
    elif pa.types.is_decimal(kind):
        value = Decimal(string).quantize(Decimal(1).scaleb(-kind.scale), context=_DECIMALS)
    elif pa.types.is_date(kind):
        near, shift = in_known_years(string)
        days = parse_date(near)
        if days is None:
            raise ValueError("not written as 2024-05-01")
        return pa.array([days + shift], pa.int32()).cast(kind)
    elif pa.types.is_timestamp(kind):
        return pa.array([_micros(string, kind, time_zone)], pa.int64()).cast(kind)
    elif pa.types.is_binary(kind):
        value = string.encode()
    return pa.array([value], kind)


def _micros(string: str, kind: pa.DataType, time_zone: str) -> int:
    near, shift = in_known_years(string)
    parsed = parse_timestamp(near)
    if parsed is None:
        raise ValueError("not written as 2024-05-01 12:30:00")
    micros = local_micros(parsed[0]) if kind.tz is None else parse_instant(near, time_zone)
    if micros is None or (shift and kind.tz is not None and parsed[1] is None):
        raise ValueError(f"it depends on the session's time zone {time_zone}, which Python does not know")
    return micros + shift * MICROS_PER_DAY


def grouped(request: Request, parts: Iterable[tuple[FilePart, int]]) -> list[Sequence[FilePart]]:
    """Divide files among tasks, as Spark does; large ones are split.

    Args:
        parts: Files, each with its size in bytes.
    """
    sized = list(parts)
    opening = request.setting_bytes("spark.sql.files.openCostInBytes", _OPEN_BYTES)
    most = request.setting_bytes("spark.sql.files.maxPartitionBytes", _MAX_BYTES)
    tasks = int(request.settings.get("spark.default.parallelism") or os.cpu_count() or 1)
    fair = sum(size + opening for _, size in sized) // max(tasks, 1)
    limit = max(1, min(most, max(opening, fair)))
    pieces: list[tuple[FilePart, int]] = []
    for part, size in sized:
        if size <= limit:
            pieces.append((part, size))
            continue
        starts = range(0, size, limit)
        pieces += [(replace(part, bytes=(start, min(start + limit, size))), limit) for start in starts]
    groups: list[Sequence[FilePart]] = []
    current: list[FilePart] = []
    filled = 0
    for part, size in sorted(pieces, key=lambda piece: -piece[1]):
        if current and filled + size > limit:
            groups.append(current)
            current, filled = [], 0
        current.append(part)
        filled += size + opening
    return [*groups, current] if current else groups
