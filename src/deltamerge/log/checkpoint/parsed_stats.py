"""Statistics that a checkpoint holds only as structs (`stats_parsed`), as the JSON that commits hold.

Source: Delta protocol, "Per-file Statistics": NULL fields are left out, dates and timestamps are ISO strings,
timestamps to the millisecond as delta-spark writes them would lose precision, so microseconds are kept.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.log.arrays import EMPTY, repeat, scalar, strings


def stats_to_json(structs: pa.Array) -> pa.Array:
    """Return the statistics of many files as JSON, NULL where the struct is, column by column rather than row by row.

    `structs` are such as ``struct<numRecords, minValues, maxValues, nullCount>``.
    """
    count = len(structs)
    parts = []
    for index in range(structs.type.num_fields):
        name = json.dumps(structs.type.field(index).name, ensure_ascii=False)
        value = _value(pc.struct_field(structs, [index]))
        parts.append(pc.coalesce(pc.binary_join_element_wise(scalar(f",{name}:"), value, EMPTY), EMPTY))
    empty = repeat("", count)
    # Every part begins with a comma, the first of them is one too many.
    body = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*parts, EMPTY) if parts else empty, 1)
    whole = pc.binary_join_element_wise(scalar("{"), body, scalar("}"), EMPTY)
    return pc.if_else(pc.is_valid(structs), whole, pa.nulls(count, pa.string()))


def _value(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_struct(kind):
        return stats_to_json(values)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return pc.cast(values, pa.string())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(values), pc.cast(values, pa.string()), _special_float(values))
    if pa.types.is_date(kind):
        return _quoted(pc.cast(values, pa.string()))
    if pa.types.is_timestamp(kind):
        local = values if kind.unit == "us" else pc.cast(values, pa.timestamp("us", kind.tz), safe=False)
        naive = pc.cast(local, pa.timestamp("us")) if kind.tz else local
        local_time = pc.replace_substring(pc.cast(naive, pa.string()), " ", "T")
        return _quoted(pc.binary_join_element_wise(local_time, scalar("Z"), EMPTY) if kind.tz else local_time)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _string(values)
    # Lists, maps and binary have no minimum and no maximum; whatever is stored is not used.
    return pa.nulls(len(values), pa.string())


def _special_float(values: pa.Array) -> pa.Array:
    negative = pc.equal(pc.sign(values), pc.negate(pc.abs(pc.sign(values))))
    sign = pc.if_else(negative, scalar('"-Infinity"'), scalar('"Infinity"'))
    return pc.if_else(pc.is_nan(values), scalar('"NaN"'), sign)


def _string(values: pa.Array) -> pa.Array:
    values = pc.cast(values, pa.string())
    special = pc.match_substring_regex(values, r'[\x00-\x1f"\\]')
    if pc.any(special).as_py():
        escaped = [json.dumps(value, ensure_ascii=False)[1:-1] for value in values.filter(special).to_pylist()]
        values = pc.replace_with_mask(values, special, strings(escaped))
    return _quoted(values)


def _quoted(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(scalar('"'), values, scalar('"'), EMPTY)
