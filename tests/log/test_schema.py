from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamerge.exceptions import DeltaLogCorruptException
from deltamerge.log.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
    schema_to_json,
    simple_string,
)

PRIMITIVE = st.sampled_from(
    ["string", "long", "integer", "decimal(10,2)", "timestamp_ntz", "variant", "void", "date"]
).map(PrimitiveType)
NAMES = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=5)
METADATA = st.dictionaries(NAMES, st.integers() | st.text(st.characters(blacklist_categories=["Cs"])))


def structs(children: Any) -> Any:
    fields = st.builds(StructField, NAMES, children, st.booleans(), METADATA)
    return st.lists(fields, max_size=3).map(tuple).map(StructType)


TYPES = st.recursive(
    PRIMITIVE,
    lambda inner: (
        st.builds(ArrayType, inner, st.booleans()) | st.builds(MapType, inner, inner, st.booleans()) | structs(inner)
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(structs(TYPES))
def test_json_round_trip(schema: StructType) -> None:
    assert parse_schema(schema_to_json(schema)) == schema


def test_nested_fields_and_their_names() -> None:
    text = json.dumps(
        {
            "type": "struct",
            "fields": [
                {
                    "name": "a",
                    "type": {
                        "type": "array",
                        "elementType": {
                            "type": "struct",
                            "fields": [{"name": "b", "type": "integer", "nullable": True, "metadata": {"k": 1}}],
                        },
                        "containsNull": True,
                    },
                    "nullable": False,
                    "metadata": {},
                },
                {
                    "name": "M",
                    "type": {
                        "type": "map",
                        "keyType": "string",
                        "valueType": "long",
                        "valueContainsNull": False,
                    },
                    "nullable": True,
                    "metadata": {},
                },
            ],
        },
        separators=(",", ":"),
    )
    schema = parse_schema(text)
    assert schema_to_json(schema) == text
    assert simple_string(schema) == "struct<a:array<struct<b:int>>,M:map<string,bigint>>"
    assert [path for path, _ in schema.walk()] == [("a",), ("a", "element", "b"), ("M",)]
    assert schema.find("m") == schema.fields[1]
    assert hash(schema) == hash(parse_schema(text))


def test_no_schema_means_no_columns() -> None:
    assert parse_schema(None) == StructType()


@pytest.mark.parametrize("text", ["{", '"string"', '{"type":"row","fields":[]}', '{"type":"struct"}', "[]"])
def test_damaged_schema(text: str) -> None:
    with pytest.raises(DeltaLogCorruptException, match="schema"):
        parse_schema(text)


def test_types_of_applications_are_kept() -> None:
    """A column of Spark ML's vectors, as delta-spark writes it."""
    vector = {
        "type": "udt",
        "class": "org.apache.spark.ml.linalg.VectorUDT",
        "sqlType": {"type": "struct", "fields": []},
    }
    content = {"type": "struct", "fields": [{"name": "v", "type": vector, "nullable": True, "metadata": {}}]}
    schema = parse_schema(json.dumps(content))
    assert json.loads(schema_to_json(schema)) == content
    assert simple_string(schema) == "struct<v:org.apache.spark.ml.linalg.VectorUDT>"
