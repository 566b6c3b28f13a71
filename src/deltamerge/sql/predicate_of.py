"""Turns the tree of a condition into a predicate that can skip files."""

from __future__ import annotations

from deltamerge.skipping.predicates import (
    ALWAYS,
    NEVER,
    And,
    ColumnRef,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from deltamerge.sql.expression import Literal, Name, Node, Operation
from deltamerge.sql.resolution import Scope

_FLIPPED = {"=": "=", "<=>": "<=>", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGRALS = ("tinyint", "smallint", "int", "bigint")
_WILDCARDS = frozenset("%_\\")


def predicate_of(node: Node, scope: Scope) -> Predicate:
    """Return what a condition demands of a target row, `Unknown` for what is not exactly one of the tree's forms."""
    if isinstance(node, Name):
        column = _column(node, scope)
        return Comparison("=", column, True, "boolean") if column is not None else Unknown()
    if isinstance(node, Literal):
        if node.type_name in ("boolean", "void"):
            # NULL is not TRUE; under NOT it stays so, and NOT NEVER is only wider.
            return ALWAYS if node.value is True else NEVER
        return Unknown()
    if not isinstance(node, Operation):
        return Unknown()
    if node.op == "and":
        return And(tuple(predicate_of(operand, scope) for operand in node.operands))
    if node.op == "or":
        return Or(tuple(predicate_of(operand, scope) for operand in node.operands))
    if node.op == "not":
        part = predicate_of(node.operands[0], scope)
        return Unknown() if isinstance(part, Unknown) else Not(part)
    if node.op == "between":
        value, low, high = node.operands
        return And((_comparison(">=", value, low, scope), _comparison("<=", value, high, scope)))
    if node.op in _FLIPPED:
        return _comparison(node.op, node.operands[0], node.operands[1], scope)
    return _about_column(node, scope)


def _about_column(node: Operation, scope: Scope) -> Predicate:
    column = _column(node.operands[0], scope)
    if column is None:
        return Unknown()
    if node.op == "isnull":
        return IsNull(column)
    if node.op == "isnotnull":
        return IsNotNull(column)
    if node.op == "in":
        return _in_list(column, node.operands[1:])
    if node.op not in ("startswith", "like"):
        return Unknown()
    operand = node.operands[1]
    if not isinstance(operand, Literal) or not isinstance(operand.value, str):
        return Unknown()
    if node.op == "startswith":
        return StartsWith(column, operand.value)
    prefix = operand.value[:-1]
    if operand.value.endswith("%") and not _WILDCARDS & set(prefix):
        return StartsWith(column, prefix)
    return Unknown()


def _comparison(op: str, left: Node, right: Node, scope: Scope) -> Predicate:
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return _comparison(_FLIPPED[op], right, left, scope)
    column = _column(left, scope)
    if column is None or not isinstance(right, Literal):
        return Unknown()
    if right.value is None:
        # ``c <=> NULL`` is a test; every other comparison with NULL is never TRUE, also under NOT.
        return IsNull(column) if op == "<=>" else NEVER
    return Comparison(op, column, right.value, right.type_name)


def _in_list(column: ColumnRef, operands: tuple[Node, ...]) -> Predicate:
    # A NULL in the list never makes it TRUE; without it NOT IN is only wider.
    literals = [operand for operand in operands if not (isinstance(operand, Literal) and operand.value is None)]
    if not literals or not all(isinstance(operand, Literal) for operand in literals):
        return Unknown()
    values = [(operand.value, operand.type_name) for operand in literals if isinstance(operand, Literal)]
    type_name = _common_type([name for _, name in values])
    return In(column, tuple(value for value, _ in values), type_name) if type_name else Unknown()


def _common_type(names: list[str]) -> str | None:
    distinct = set(names)
    if len(distinct) == 1:
        return names[0]
    if distinct <= set(_INTEGRALS):
        return max(distinct, key=_INTEGRALS.index)
    if all(name.startswith("decimal(") for name in distinct):
        sizes = [tuple(map(int, name[8:-1].split(","))) for name in distinct]
        scale = max(size[1] for size in sizes)
        whole = max(size[0] - size[1] for size in sizes)
        return f"decimal({whole + scale},{scale})" if whole + scale <= 38 else None
    return None


def _column(node: Node, scope: Scope) -> ColumnRef | None:
    found = scope.resolve(node.parts) if isinstance(node, Name) else None
    return ColumnRef(found.path) if found is not None and found.side == "target" and found.known else None
