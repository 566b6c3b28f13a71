"""Conditions in SQL that need no Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date

from pyspark.sql.types import DataType, DateType, IntegralType, StringType, StructField, StructType

from deltamerge.data_source.request import Request
from deltamerge.data_source.shapes import char_lengths
from deltamerge.merge.analysis.arrow_conditions import Columns, arrow_condition
from deltamerge.skipping.timestamps import parse_date
from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.expression import Literal, Name, Node, Opaque, Operation
from deltamerge.workers.conditions import Condition

_DIGITS = re.compile("-?[0-9]{1,9}")


def condition_of(sql: str, schema: StructType, table: StructType, request: Request) -> Condition | None:
    """Return a condition over columns by their positions.

    None where Arrow does not evaluate it as Spark does, or it names other columns.
    """
    lengths = {name.lower(): length for name, length in char_lengths(table).items()}
    by_name = {field.name.lower(): index for index, field in enumerate(schema.fields)}

    def column(name: Name) -> int | None:
        return by_name.get(name.parts[0].lower()) if len(name.parts) == 1 else None

    def kind(node: Node) -> _Kind | None:
        index = column(node) if isinstance(node, Name) else None
        if index is None:
            return None
        return _Kind(schema.fields[index].dataType, lengths.get(schema.fields[index].name.lower(), 0))

    node = _with_cast_strings(read_condition(sql, request.conf.double_quoted_identifiers), kind)
    fields = [StructField(field.name, field.dataType) for field in schema.fields]
    return arrow_condition(node, Columns(column, fields))


@dataclass(frozen=True)
class _Kind:
    """A column's type; of CHAR its length."""

    type: DataType
    length: int


def _with_cast_strings(node: Node, kind: Callable[[Node], _Kind | None]) -> Node:
    """Return a condition with strings as what Spark casts them to, where a column is compared with them."""
    if not isinstance(node, Operation):
        return node
    if node.op in ("and", "or", "not"):
        return replace(node, operands=tuple(_with_cast_strings(operand, kind) for operand in node.operands))
    kinds = {found for operand in node.operands if (found := kind(operand)) is not None}
    if any(found.length for found in kinds) and (len(kinds) > 1 or node.op in ("like", "startswith")):
        # Spark pads what is compared with CHAR, also the shorter of two columns, but no pattern.
        return Opaque((), (), complete=False, subquery=False, text=node.text, span=node.span)
    if len(kinds) != 1:
        return node
    (of_column,) = kinds
    return replace(node, operands=tuple(_cast(operand, of_column) for operand in node.operands))


def _cast(node: Node, wanted: _Kind) -> Node:
    if not (isinstance(node, Literal) and isinstance(node.value, str)):
        return node
    if isinstance(wanted.type, StringType):
        return replace(node, value=node.value.rstrip(" ").ljust(wanted.length)) if wanted.length else node
    if isinstance(wanted.type, DateType) and parse_date(node.value) is not None:
        return replace(node, value=date.fromisoformat(node.value), type_name="date")
    if isinstance(wanted.type, IntegralType) and _DIGITS.fullmatch(node.value):
        return replace(node, value=int(node.value), type_name="bigint")
    return node
