"""Turns the tree of a condition into a predicate that can skip files."""

from __future__ import annotations

from deltamerge.skipping import predicates
from deltamerge.sql.expression import Literal, Name, Node, Operation
from deltamerge.sql.resolution import Scope

_FLIPPED = {"=": "=", "<=>": "<=>", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGRALS = ("tinyint", "smallint", "int", "bigint")
_WILDCARDS = frozenset("%_\\")


def predicate_of(node: Node, scope: Scope) -> predicates.Predicate:
    """Return what a condition demands of a target row, `Unknown` for what is not exactly one of the tree's forms."""
    if isinstance(node, Name):
        column = _column(node, scope)
        return predicates.Comparison("=", column, True, "boolean") if column is not None else predicates.Unknown()
    if isinstance(node, Literal):
        if node.type_name in ("boolean", "void"):
            # NULL is not TRUE; under NOT it stays so, and NOT NEVER is only wider.
            return predicates.ALWAYS if node.value is True else predicates.NEVER
        return predicates.Unknown()
    if not isinstance(node, Operation):
        return predicates.Unknown()
    if node.op == "and":
        return predicates.And(tuple(predicate_of(operand, scope) for operand in node.operands))
    if node.op == "or":
        return predicates.Or(tuple(predicate_of(operand, scope) for operand in node.operands))
    if node.op == "not":
        part = predicate_of(node.operands[0], scope)
        return predicates.Unknown() if isinstance(part, predicates.Unknown) else predicates.Not(part)
    if node.op == "between":
        value, low, high = node.operands
        return predicates.And((_comparison(">=", value, low, scope), _comparison("<=", value, high, scope)))
    if node.op in _FLIPPED:
        return _comparison(node.op, node.operands[0], node.operands[1], scope)
    return _about_column(node, scope)


def _about_column(node: Operation, scope: Scope) -> predicates.Predicate:
    column = _column(node.operands[0], scope)
    if column is None:
        return predicates.Unknown()
    if node.op == "isnull":
        return predicates.IsNull(column)
    if node.op == "isnotnull":
        return predicates.IsNotNull(column)
    if node.op == "in":
        return _in_list(column, node.operands[1:])
    if node.op not in ("startswith", "like"):
        return predicates.Unknown()
    operand = node.operands[1]
    if not isinstance(operand, Literal) or not isinstance(operand.value, str):
        return predicates.Unknown()
    if node.op == "startswith":
        return predicates.StartsWith(column, operand.value)
    prefix = operand.value[:-1]
    if operand.value.endswith("%") and not _WILDCARDS & set(prefix):
        return predicates.StartsWith(column, prefix)
    return predicates.Unknown()


def _comparison(op: str, left: Node, right: Node, scope: Scope) -> predicates.Predicate:
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return _comparison(_FLIPPED[op], right, left, scope)
    column = _column(left, scope)
    if column is None or not isinstance(right, Literal):
        return predicates.Unknown()
    if right.value is None:
        # ``c <=> NULL`` is a test; every other comparison with NULL is never TRUE, also under NOT.
        return predicates.IsNull(column) if op == "<=>" else predicates.NEVER
    return predicates.Comparison(op, column, right.value, right.type_name)


def _in_list(column: predicates.ColumnRef, operands: tuple[Node, ...]) -> predicates.Predicate:
    # A NULL in the list never makes it TRUE; without it NOT IN is only wider.
    literals = [operand for operand in operands if not (isinstance(operand, Literal) and operand.value is None)]
    if not literals or not all(isinstance(operand, Literal) for operand in literals):
        return predicates.Unknown()
    values = [(operand.value, operand.type_name) for operand in literals if isinstance(operand, Literal)]
    type_name = _common_type([name for _, name in values])
    return predicates.In(column, tuple(value for value, _ in values), type_name) if type_name else predicates.Unknown()


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


def _column(node: Node, scope: Scope) -> predicates.ColumnRef | None:
    found = scope.resolve(node.parts) if isinstance(node, Name) else None
    return predicates.ColumnRef(found.path) if found is not None and found.side == "target" and found.known else None
