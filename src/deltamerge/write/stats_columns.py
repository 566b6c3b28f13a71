"""The columns that `delta.dataSkippingStatsColumns` names."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from deltamerge.exceptions import DeltaIllegalArgumentException
from deltamerge.log.schema import DECIMAL, PrimitiveType, StructField, StructType, find_field, simple_string
from deltamerge.skipping.indexed import STATS_COLUMNS, leaves_of, split_columns
from deltamerge.sql.names import shown_name

_ORDERED = frozenset(
    ("byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp", "timestamp_ntz")
)


def check_stats_columns(schema: StructType, partition_columns: Collection[str], properties: Mapping[str, str]) -> None:
    """Refuse a list of columns of which some would have no statistics, and so no file would be skipped.

    Delta: StatisticsCollection.validateDeltaStatsColumns.

    Raises:
        DeltaAnalysisException: There is no such column.
        DeltaIllegalArgumentException: One is a partition column, of a type without an order, or named twice.
    """
    seen: set[tuple[str, ...]] = set()
    for path in split_columns(properties.get(STATS_COLUMNS, "")):
        spelled, field = find_field(schema, path)
        shown = shown_name(spelled)
        if spelled[0] in partition_columns:
            raise DeltaIllegalArgumentException(
                "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN",
                f"Data skipping is not supported for partition column '{shown}', which {STATS_COLUMNS} names: "
                "files are found by its values. Leave it out.",
                parameters={"column": shown},
            )
        if len(spelled) == 1 and not _may_have_bounds(field):
            kind = simple_string(field.data_type)
            raise DeltaIllegalArgumentException(
                "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE",
                f"Data skipping is not supported for column '{shown}' of type {kind}, which {STATS_COLUMNS} names. "
                "Leave it out.",
                parameters={"columnName": shown, "columnType": kind},
            )
        leaves = {leaf.names for leaf in leaves_of(schema) if leaf.names[: len(spelled)] == spelled}
        if leaves & seen:
            raise DeltaIllegalArgumentException(
                "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS",
                f"Duplicated data skipping columns found: {shown}. {STATS_COLUMNS} names it twice.",
                parameters={"duplicateCols": shown},
            )
        seen |= leaves


def _may_have_bounds(field: StructField) -> bool:
    kind = field.data_type
    if isinstance(kind, PrimitiveType):
        return kind.name in _ORDERED or DECIMAL.fullmatch(kind.name) is not None
    return isinstance(kind, StructType)
