"""Looks at a condition without evaluating it: conjuncts, the sides they are about, keys, and what skips files.

A result is never narrower than the truth: a condition that cannot be read restricts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal as OneOf
from typing import TypeAlias

from deltamerge.exceptions import DeltaParseException
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
from deltamerge.sql.expression import Literal, Name, Node, Opaque, Operation, conjuncts_of, leaves
from deltamerge.sql.operands import NO_COLUMNS, starts_subquery
from deltamerge.sql.resolution import Scope
from deltamerge.sql.tokens import Token, tokenize

Side: TypeAlias = OneOf["target_only", "source_only", "both", "neither", "unreadable"]


_FLIPPED = {"=": "=", "<=>": "<=>", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGRALS = ("tinyint", "smallint", "int", "bigint")
_WILDCARDS = frozenset("%_\\")


@dataclass(frozen=True)
class Conjunct:
    """One of the parts that AND joins at the top.

    Args:
        text: Its SQL, verbatim (of a Column as printed).
        side: Whose columns it uses; ``unreadable`` where that is not certain.
        target_columns: The top-level columns of the target in it, in their own spelling.
        predicate: What a target row must fulfil for it; Unknown unless its side is ``target_only`` or ``neither``.
        is_key: Whether it is one of the `EquiKey`s.
        least: The column of the source that it wants to be greater than something of the target, or as great.
    """

    text: str
    side: Side
    target_columns: frozenset[str]
    source_columns: frozenset[str]
    predicate: Predicate
    is_key: bool = False
    least: str | None = None


@dataclass(frozen=True)
class EquiKey:
    """A conjunct ``target column = expression over source columns``, either way round.

    Args:
        source_path: The source's column and fields if the expression is nothing else.
        null_safe: Whether the operator is ``<=>``.
    """

    target: ColumnRef
    source_sql: str
    source_path: tuple[str, ...] | None
    null_safe: bool


@dataclass(frozen=True)
class ConditionShape:
    """The parts of a condition; it is TRUE where all conjuncts are.

    Args:
        target_predicate: What a target row must fulfil for the condition to be TRUE with any source row.
        key_nodes: The conjuncts that `equi_keys` are read from.
    """

    conjuncts: tuple[Conjunct, ...]
    target_predicate: Predicate
    equi_keys: tuple[EquiKey, ...]
    key_nodes: tuple[Node, ...] = ()


def shape_of_tree(node: Node, scope: Scope) -> ConditionShape:
    parts = conjuncts_of(node)
    keys = [(part, key) for part in parts if (key := _equi_key(part, scope)) is not None]
    conjuncts = tuple(replace(_conjunct(part, scope), is_key=any(part is node for node, _ in keys)) for part in parts)
    predicates = tuple(conjunct.predicate for conjunct in conjuncts if conjunct.side in ("target_only", "neither"))
    return ConditionShape(conjuncts, And(predicates), tuple(key for _, key in keys), tuple(part for part, _ in keys))


def contains_star(sql: str) -> bool:
    """Return whether a star in an expression means columns, as in ``struct(s.* EXCEPT (a))``, and is no product."""
    around = ["", *(token.text.upper() for token in _tokens(sql)), ""]
    return any(
        token == "*" and before in (".", "(", ",", "") and after in (")", ",", "", "EXCEPT", "REPLACE")
        for before, token, after in zip(around, around[1:], around[2:], strict=False)
    )


def contains_subquery(sql: str) -> bool:
    """Return whether an expression holds a subquery, which ON and clause conditions must not (0AKDC)."""
    tokens = _tokens(sql)
    return any(starts_subquery(tokens, index) for index in range(len(tokens)))


def _tokens(sql: str) -> tuple[Token, ...]:
    try:
        return tokenize(sql)
    except DeltaParseException:
        return ()  # Spark refuses it too, in its own words.


def tree_contains_subquery(node: Node) -> bool:
    return any(isinstance(leaf, Opaque) and leaf.subquery for leaf in leaves(node))


class _Usage:
    """The columns of a tree, and whether these are certainly all."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.target: set[str] = set()
        self.source: set[str] = set()
        self.certain = True
        self.ambiguous = False

    def add(self, node: Node) -> None:
        for leaf in leaves(node):
            if isinstance(leaf, Name):
                self.add_name(leaf, must_exist=True)
            elif isinstance(leaf, Opaque):
                self.certain &= leaf.complete
                for name in leaf.names:
                    self.add_name(name, must_exist=True)
                for name in leaf.words:
                    self.add_name(name, must_exist=self.scope.is_qualified(name.parts))

    def add_name(self, name: Name, must_exist: bool) -> None:
        found = self.scope.candidates(name.parts)
        for match in found:
            (self.target if match.side == "target" else self.source).add(match.path[0])
        if len(found) > 1:
            self.ambiguous = True
        if not found and must_exist and name.parts[0].upper() not in NO_COLUMNS:
            self.certain = False


def _conjunct(node: Node, scope: Scope) -> Conjunct:
    usage = _Usage(scope)
    usage.add(node)
    side: Side = "unreadable"
    if usage.certain and not usage.ambiguous:
        if usage.target:
            side = "both" if usage.source else "target_only"
        else:
            side = "source_only" if usage.source else "neither"
    readable = side in ("target_only", "neither")
    predicate = predicate_of(node, scope) if readable else Unknown()
    source, least = frozenset(usage.source), _least(node, scope)
    return Conjunct(node.text, side, frozenset(usage.target), source, predicate, least=least)


def _least(node: Node, scope: Scope) -> str | None:
    if not isinstance(node, Operation) or node.op not in ("<", "<=", ">", ">="):
        return None
    greater, less = node.operands if node.op in (">", ">=") else node.operands[::-1]
    found = scope.resolve(greater.parts) if isinstance(greater, Name) else None
    usage = _Usage(scope)
    usage.add(less)
    is_bound = found is not None and found.side == "source" and found.known and len(found.path) == 1
    return found.path[0] if found is not None and is_bound and not usage.source and usage.certain else None


def _equi_key(node: Node, scope: Scope) -> EquiKey | None:
    if not isinstance(node, Operation) or node.op not in ("=", "<=>"):
        return None
    for target, source in (node.operands, node.operands[::-1]):
        found = scope.resolve(target.parts) if isinstance(target, Name) else None
        if found is None or found.side != "target" or not found.known:
            continue
        usage = _Usage(scope)
        usage.add(source)
        if not usage.certain or usage.ambiguous or usage.target or not usage.source:
            continue
        if node.prefix and not isinstance(source, Name):
            # As Columns print them, expressions are no SQL.
            continue
        match = scope.resolve(source.parts) if isinstance(source, Name) else None
        path = match.path if match is not None and match.known else None
        return EquiKey(ColumnRef(found.path), source.text, path, node.op == "<=>")
    return None


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
