"""Which columns of a table have statistics, by its properties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from deltamerge.log.features.column_mapping import physical_name
from deltamerge.log.properties import integer, is_enabled
from deltamerge.log.schema import StructField, StructType, lower_case

NUM_INDEXED_COLS = "delta.dataSkippingNumIndexedCols"
STATS_COLUMNS = "delta.dataSkippingStatsColumns"


@dataclass(frozen=True)
class Leaf:
    """A column or struct field that is no struct: its path as the table and as files spell it, and the field."""

    names: tuple[str, ...]
    path: tuple[str, ...]
    field: StructField


@dataclass(frozen=True)
class IndexedColumns:
    """The statistics that a table's properties ask for: of leaf columns by their physical paths.

    `string_prefix_length` is in characters; with `tight_bounds` files record that their bounds are tight: they may
    get deletion vectors.
    """

    paths: frozenset[tuple[str, ...]]
    string_prefix_length: int = 32
    tight_bounds: bool = False

    @staticmethod
    def of(schema: StructType, partition_columns: Iterable[str], configuration: Mapping[str, str]) -> IndexedColumns:
        """Return the columns that delta-spark would index (``StatisticsCollection.getIndexedColumns``).

        A property that cannot be read counts as absent.
        """
        partitions = set(partition_columns)
        leaves = [leaf for leaf in leaves_of(schema) if leaf.names[0] not in partitions]
        listed = configuration.get(STATS_COLUMNS)
        if listed is not None:
            wanted = set(split_columns(listed.lower()))
            leaves = [leaf for leaf in leaves if not wanted.isdisjoint(_prefixes(leaf.names))]
        else:
            count = integer(configuration, NUM_INDEXED_COLS, 32)
            leaves = leaves if count < 0 else leaves[:count]
        return IndexedColumns(
            paths=frozenset(leaf.path for leaf in leaves),
            string_prefix_length=integer(configuration, "delta.dataSkippingStringPrefixLength", 32),
            tight_bounds=is_enabled(configuration, "delta.enableDeletionVectors"),
        )


def leaves_of(schema: StructType) -> Iterator[Leaf]:
    """Yield a schema's leaves in order; arrays and maps are leaves whole."""
    for field in schema.fields:
        yield from _leaves(field, (), ())


def _leaves(field: StructField, names: tuple[str, ...], path: tuple[str, ...]) -> Iterator[Leaf]:
    names = (*names, field.name)
    path = (*path, physical_name(field))
    if isinstance(field.data_type, StructType):
        for part in field.data_type.fields:
            yield from _leaves(part, names, path)
    else:
        yield Leaf(names, path, field)


def _prefixes(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return (lower_case(names[:size]) for size in range(1, len(names) + 1))


def split_columns(string: str) -> Iterator[tuple[str, ...]]:
    """Split ``a, b.c, `d.e`.f`` into paths; a doubled backtick inside backticks is one."""
    parts: list[str] = []
    name = ""
    quoted = False
    at = 0
    while at < len(string):
        char = string[at]
        if char == "`":
            if quoted and string[at + 1 : at + 2] == "`":
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
