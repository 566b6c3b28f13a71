"""One column of each type, literals close to its values: bounds are as tight as they may be, and no tighter."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltamerge.log.actions import AddFile
from deltamerge.log.file_table import FileTable
from deltamerge.log.schema import StructType
from deltamerge.skipping.collect_statistics import parquet_statistics, truncate_max_string
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.skipping.predicates import ColumnRef, Comparison, In, InRanges, Not, Predicate, StartsWith
from deltamerge.skipping.pruning import files_that_may_match
from skipping.rows import KINDS, ZONE, Kind, evaluate, schema_of

X = ColumnRef(("x",))
OPS = ["=", "<=>", "<>", "<", "<=", ">", ">="]


def own_statistics(values: Sequence[Any], kind: Kind, schema: StructType) -> str:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"x": pa.array(values, kind.arrow)}), buffer)
    return parquet_statistics(pq.read_metadata(buffer), schema, IndexedColumns.of(schema, (), {}))


def foreign_statistics(values: Sequence[Any], kind: Kind, schema: StructType) -> str:
    """Gives statistics as careless writers do: NaN passed over, timestamps in a local time zone."""
    present = [value for value in values if value is not None and value == value]
    bounds = ""
    if present and kind.name not in ("boolean", "binary"):
        low, high = min(present, key=in_order), max(present, key=in_order)
        if isinstance(low, str):
            low, high = low[:32], truncate_max_string(high, 32)
        bounds = f'"minValues":{{"x":{as_json(low, kind)}}},"maxValues":{{"x":{as_json(high, kind)}}},'
    return f'{{"numRecords":{len(values)},{bounds}"nullCount":{{"x":{values.count(None)}}}}}'


def in_order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def as_json(value: Any, kind: Kind) -> str:
    if kind.name == "timestamp":
        local = value.astimezone(ZoneInfo(ZONE))
        # Java prints no seconds of an offset.
        seconds = int(local.utcoffset().total_seconds())
        hours, minutes = divmod(abs(seconds) // 60, 60)
        offset = f"{'-' if seconds < 0 else '+'}{hours:02}:{minutes:02}"
        value = local.replace(tzinfo=None).isoformat(timespec="milliseconds") + offset
    elif isinstance(value, datetime):
        value = value.isoformat(timespec="milliseconds")
    elif isinstance(value, date):
        value = value.isoformat()
    elif isinstance(value, float) and math.isinf(value):
        value = "Infinity" if value > 0 else "-Infinity"
    elif isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value)


def near(value: Decimal | float) -> list[Decimal | float]:
    """Gives values that equal a value or just do not."""
    if isinstance(value, float):
        around = [math.nextafter(value, math.inf), math.nextafter(value, -math.inf)]
        return [value, -value, *around, math.nan]
    if isinstance(value, datetime):
        return [value, value + timedelta(microseconds=1), value - timedelta(microseconds=1)]
    if isinstance(value, date):
        return [value, value + timedelta(days=1), value - timedelta(days=1)]
    if isinstance(value, str):
        return [value, value + "a", value[:32], value[:-1], value[:32] + "\U0010ffff"]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9:
        return [value, value + 1, value - 1]
    return [value]


# What a literal of the column's own type is called; a FLOAT's neighbours are DOUBLEs.
OWN_TYPE = {"integer": "int", "long": "bigint", "byte": "int", "float": "double"}


@st.composite
def cases(draw: st.DrawFn, kind: Kind) -> tuple[list[Any], Predicate]:
    values = draw(st.lists(kind.values | st.just(None), min_size=1, max_size=3))
    present: list[Any] = [value for value in values if value is not None]
    if bool(present) and draw(st.booleans()):
        literal_type = OWN_TYPE.get(kind.name, kind.name)
        literals = st.sampled_from([item for value in present for item in near(value)])
    else:
        literal_type, literals = draw(st.sampled_from(kind.literals))
    shape = draw(st.integers(0, 4))
    if shape == 0:
        predicate: Predicate = In(X, tuple(draw(st.lists(literals, min_size=1, max_size=2))), literal_type)
    elif shape == 1 and kind.name != "binary":
        one = draw(literals)
        predicate = InRanges(X, ((one, one),), False, literal_type)
    elif shape == 2 and kind.name == "string" and present:
        predicate = StartsWith(X, draw(st.sampled_from(present))[: draw(st.integers(0, 40))])
    else:
        predicate = Comparison(draw(st.sampled_from(OPS)), X, draw(literals), literal_type)
    return values, Not(predicate) if draw(st.integers(0, 3)) == 0 else predicate


@pytest.mark.parametrize("statistics", [own_statistics, foreign_statistics])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_matching_row_is_skipped(kind: Kind, statistics: Callable[..., Any]) -> None:
    schema = schema_of({("x",): kind})

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases(kind))
    def check(case: tuple[list[int | None], Predicate]) -> None:
        values, predicate = case
        files = FileTable.from_add_files([AddFile("f", {}, 1, 1, stats=statistics(values, kind, schema))])
        (kept,) = files_that_may_match(predicate, files, schema, [], ZONE)
        if not kept:
            matching = [row for row in values if evaluate(predicate, {"x": row}, {("x",): kind.name}) is True]
            assert matching == []

    check()
