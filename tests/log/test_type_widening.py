"""Type widening without Spark: which types may become which, and how the schema records it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deltamerge.exceptions import DeltaUnsupportedFeatureException
from deltamerge.log.features.type_widening import (
    can_widen,
    check_type_changes,
    widening_mode,
    with_type_changes,
)
from deltamerge.log.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
    schema_to_json,
)

# What delta-spark's merges widened of all pairs of these types; a star stands where same_family_type does not.
DECIMALS = "decimal(10,0)* decimal(12,2)* decimal(20,0)* decimal(24,4)* decimal(38,0)* decimal(38,18)*"
WIDENED = {
    "byte": f"short integer long double* {DECIMALS}",
    "short": f"integer long double* {DECIMALS}",
    "integer": f"long double* {DECIMALS}",
    "long": "decimal(20,0)* decimal(24,4)* decimal(38,0)* decimal(38,18)*",
    "float": "double",
    "decimal(5,2)": "decimal(12,2) decimal(12,4) decimal(24,4) decimal(38,18)",
    "decimal(10,0)": "decimal(12,2) decimal(20,0) decimal(24,4) decimal(38,0) decimal(38,18)",
    "decimal(12,2)": "decimal(24,4) decimal(38,18)",
    "decimal(12,4)": "decimal(24,4) decimal(38,18)",
    "decimal(6,4)": "decimal(12,4) decimal(24,4) decimal(38,18)",
    "decimal(20,0)": "decimal(24,4) decimal(38,0) decimal(38,18)",
    "decimal(24,4)": "decimal(38,18)",
}
TYPES = [
    "byte", "short", "integer", "long", "float", "double", "decimal(5,2)", "decimal(10,0)", "decimal(12,2)",
    "decimal(12,4)", "decimal(6,4)", "decimal(20,0)", "decimal(24,4)", "decimal(38,0)", "decimal(38,18)",
]  # fmt: skip


@pytest.mark.parametrize("before", TYPES)
def test_types_widen_as_delta_spark_widens_them(before: str) -> None:
    told = WIDENED.get(before, "").split()
    always = {name.rstrip("*") for name in told}
    assert {after for after in TYPES if can_widen(before, after)} == always
    same_family = {name for name in told if not name.endswith("*")}
    assert {after for after in TYPES if can_widen(before, after, "same_family_type")} == same_family
    assert not any(can_widen(before, after, "never") for after in TYPES)


def test_dates_widen_to_timestamps_without_zone_only() -> None:
    assert can_widen("date", "timestamp_ntz")
    assert not can_widen("date", "timestamp")
    assert not can_widen("timestamp_ntz", "date")
    assert not can_widen("integer", "string")


def test_a_table_widens_only_where_it_and_its_protocol_say_so() -> None:
    on = {"delta.enableTypeWidening": "true"}
    assert widening_mode(on, {"typeWidening"}, "always") == "always"
    assert widening_mode(on, {"typeWidening-preview"}, "same_family_type") == "same_family_type"
    assert widening_mode(on, {"appendOnly"}, "always") == "never"
    assert widening_mode({}, {"typeWidening"}, "always") == "never"


def schema(**types: Any) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in types.items()))


INT, LONG, SHORT = PrimitiveType("integer"), PrimitiveType("long"), PrimitiveType("short")


def test_changes_are_recorded_at_the_nearest_field() -> None:
    def deep(kind: PrimitiveType) -> ArrayType:
        return ArrayType(schema(a=MapType(kind, ArrayType(kind))))

    before = schema(a=INT, x=deep(INT), s=schema(b=SHORT), same=INT)
    after = schema(a=LONG, x=deep(LONG), s=schema(b=INT, c=INT), same=INT, new=INT)
    found = dict(with_type_changes(before, after, None).walk())
    changes = {path: field.metadata["delta.typeChanges"] for path, field in found.items() if field.metadata}
    whole = {"toType": "long", "fromType": "integer"}
    assert changes == {
        ("a",): [whole],
        ("x", "element", "a"): [{**whole, "fieldPath": "key"}, {**whole, "fieldPath": "value.element"}],
        ("s", "b"): [{"toType": "integer", "fromType": "short"}],
    }


def test_a_second_change_comes_after_the_first() -> None:
    once = with_type_changes(schema(a=SHORT), schema(a=INT), 3)
    wider = json.loads(schema_to_json(once))
    wider["fields"][0]["type"] = "long"
    twice = with_type_changes(once, parse_schema(json.dumps(wider)), 4)
    assert twice.fields[0].metadata["delta.typeChanges"] == [
        {"toType": "integer", "fromType": "short", "tableVersion": 3},
        {"toType": "long", "fromType": "integer", "tableVersion": 4},
    ]
    check_type_changes(twice)


def test_an_unknown_change_is_refused() -> None:
    text = schema_to_json(
        with_type_changes(schema(x=schema(a=ArrayType(INT))), schema(x=schema(a=ArrayType(LONG))), None)
    )
    changed = parse_schema(text.replace('"fromType":"integer"', '"fromType":"string"'))
    with pytest.raises(
        DeltaUnsupportedFeatureException, match=r"x\.a\.element was changed from string to long"
    ) as caught:
        check_type_changes(changed)
    assert caught.value.getErrorClass() == "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"
