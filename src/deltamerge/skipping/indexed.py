"""Which columns of a table have statistics, by its properties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from deltamerge.log.schema import StructField, StructType
from deltamerge.skipping.columns import physical_name

NUM_INDEXED_COLS = "delta.dataSkippingNumIndexedCols"
STATS_COLUMNS = "delta.dataSkippingStatsColumns"
STRING_PREFIX_LENGTH = "delta.dataSkippingStringPrefixLength"


@dataclass(frozen=True)
class StatisticsSettings:
    """How a table wants statistics.

    Args:
        num_indexed_cols: How many leaf columns have statistics, the first ones; negative for all.
        stats_columns: The columns that have statistics, in lower case; None where `num_indexed_cols` decides.
        string_prefix_length: Characters kept of minimal and maximal strings.
        tight_bounds: Whether the table can have deletion vectors, so that files say that theirs are tight.
    """

    num_indexed_cols: int = 32
    stats_columns: tuple[tuple[str, ...], ...] | None = None
    string_prefix_length: int = 32
    tight_bounds: bool = False


@dataclass(frozen=True)
class IndexedColumn:
    """A column that has statistics: its physical path, and its field."""

    path: tuple[str, ...]
    field: StructField


def statistics_settings(
    configuration: Mapping[str, str], writer_features: Iterable[str] | None
) -> StatisticsSettings:
    """Reads the settings from a table's properties and protocol.

    Args:
        configuration: The table's properties.
        writer_features: The protocol's writer features.

    Returns:
        The settings, with Delta's default where a property is absent or cannot be read.
    """
    listed = configuration.get(STATS_COLUMNS)
    return StatisticsSettings(
        num_indexed_cols=_number(configuration.get(NUM_INDEXED_COLS), 32),
        stats_columns=None if listed is None else tuple(_split(listed.lower())),
        string_prefix_length=_number(configuration.get(STRING_PREFIX_LENGTH), 32),
        tight_bounds="deletionVectors" in (writer_features or ()),
    )


def indexed_columns(
    schema: StructType, partition_columns: Iterable[str], settings: StatisticsSettings
) -> list[IndexedColumn]:
    """Gives the leaf columns that have statistics, as delta-spark chooses them.

    Args:
        schema: The table's schema.
        partition_columns: The names of the partition columns, which have none.
        settings: The table's settings.

    Returns:
        Leaves (fields of structs, arrays and maps whole) in the schema's order.
    """
    partitions = set(partition_columns)
    data = [field for field in schema.fields if field.name not in partitions]
    leaves = [leaf for field in data for leaf in _leaves(field, (), ())]
    if settings.stats_columns is not None:
        wanted = settings.stats_columns
        return [
            column
            for names, column in leaves
            if any(tuple(name.lower() for name in names[: len(path)]) == path for path in wanted)
        ]
    count = len(leaves) if settings.num_indexed_cols < 0 else settings.num_indexed_cols
    return [column for _, column in leaves[:count]]


def _leaves(
    field: StructField, names: tuple[str, ...], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], IndexedColumn]]:
    names = (*names, field.name)
    path = (*path, physical_name(field))
    if isinstance(field.data_type, StructType):
        for part in field.data_type.fields:
            yield from _leaves(part, names, path)
    else:
        yield names, IndexedColumn(path, field)


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default


def _split(text: str) -> Iterator[tuple[str, ...]]:
    """Splits ``a, b.c, `d.e`.f`` into paths; a doubled backtick inside backticks is one."""
    parts: list[str] = []
    name = ""
    quoted = False
    at = 0
    while at < len(text):
        char = text[at]
        if char == "`":
            if quoted and text[at + 1 : at + 2] == "`":
                name += "`"
                at += 1
            else:
                quoted = not quoted
        elif quoted or char not in ".,":
            name += char if quoted else char.strip()
        else:
            parts.append(name)
            name = ""
            if char == ",":
                yield tuple(parts)
                parts = []
        at += 1
    if name or parts:
        yield (*parts, name)
