"""Looks at a condition without evaluating it: conjuncts, the sides they are about, keys, and what skips files.

Whatever is said here is never narrower than the truth: a condition that cannot be read restricts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias

from deltamerge.exceptions import DeltaParseException
from deltamerge.skipping.predicates import And, ColumnRef, Predicate, Unknown
from deltamerge.sql.caret import Span
from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.expression import Name, Node, Opaque, Operation, conjuncts_of, leaves
from deltamerge.sql.operand_names import NO_COLUMNS, VARIABLE, opaque_names, starts_subquery
from deltamerge.sql.predicate_of import predicate_of
from deltamerge.sql.resolution import Scope
from deltamerge.sql.tokens import tokenize

Side: TypeAlias = OneOf["target_only", "source_only", "both", "neither", "unreadable"]


@dataclass(frozen=True)
class Conjunct:
    """One of the parts that AND joins at the top.

    Args:
        text: It, verbatim (of a Column as printed).
        span: Its place in the condition's text; None where there is no text.
        side: Whose columns it uses; ``unreadable`` where that is not certain.
        target_columns: The top-level columns of the target in it, in their own spelling.
        source_columns: The same of the source.
        predicate: What a target row must fulfil for it; Unknown unless its side is ``target_only`` or ``neither``.
    """

    text: str
    span: Span | None
    side: Side
    target_columns: frozenset[str]
    source_columns: frozenset[str]
    predicate: Predicate


@dataclass(frozen=True)
class EquiKey:
    """A conjunct ``target column = expression over source columns``, either way round.

    Args:
        target: The target's column or nested field.
        source_text: The source's expression, verbatim.
        source_columns: The top-level source columns in it.
        source_path: The source's column and fields where the expression is nothing else.
        null_safe: Whether the operator is ``<=>``.
        span: The place of the conjunct in the condition's text.
    """

    target: ColumnRef
    source_text: str
    source_columns: frozenset[str]
    source_path: tuple[str, ...] | None
    null_safe: bool
    span: Span | None


@dataclass(frozen=True)
class ConditionShape:
    """What a condition looks like.

    Args:
        conjuncts: Its parts in their order; the condition is TRUE where all of them are.
        target_predicate: What a target row must fulfil for the condition to be TRUE with any source row.
        equi_keys: The equalities between the sides.
    """

    conjuncts: tuple[Conjunct, ...]
    target_predicate: Predicate
    equi_keys: tuple[EquiKey, ...]


def shape_of(text: str, scope: Scope, double_quoted_identifiers: bool = False) -> ConditionShape:
    """Looks at the text of a condition.

    Args:
        text: ON's condition or a clause's.
        scope: What names can mean in it.
        double_quoted_identifiers: ``spark.sql.ansi.doubleQuotedIdentifiers``.

    Returns:
        Its shape; never an error, since Spark is who judges the text.
    """
    return shape_of_tree(read_condition(text, double_quoted_identifiers), scope)


def shape_of_tree(node: Node, scope: Scope) -> ConditionShape:
    """Looks at a condition that is read already; see `shape_of`.

    Args:
        node: From `read_condition`, or from `deltamerge.spark.classic_columns`.
        scope: What names can mean in it.
    """
    parts = conjuncts_of(node)
    conjuncts = tuple(_conjunct(part, scope) for part in parts)
    predicates = tuple(
        conjunct.predicate for conjunct in conjuncts if conjunct.side in ("target_only", "neither")
    )
    keys = tuple(key for part in parts if (key := _equi_key(part, scope)) is not None)
    return ConditionShape(conjuncts, And(predicates), keys)


def source_columns_in(
    text: str, scope: Scope, double_quoted_identifiers: bool = False
) -> frozenset[str] | None:
    """Finds the source columns that an expression uses.

    Args:
        text: A condition or a value.
        scope: What names can mean in it.
        double_quoted_identifiers: ``spark.sql.ansi.doubleQuotedIdentifiers``.

    Returns:
        Top-level columns of the source in their own spelling, rather too many than too few; None where that cannot
        be said (``s.*``, a subquery, a name that is not resolved here).
    """
    if VARIABLE in text:
        return None
    try:
        tokens = tokenize(text)
    except DeltaParseException:
        return None
    found = opaque_names(text, tokens, double_quoted_identifiers)
    usage = _Usage(scope)
    usage.add(Opaque(found.names, found.words, found.complete, found.subquery, text, None))
    return frozenset(usage.source) if usage.certain else None


def contains_subquery(text: str) -> bool:
    """Says whether an expression holds a subquery, which ON and clause conditions must not (0AKDC).

    Args:
        text: A condition.

    Returns:
        Whether it does; False for text that cannot be split into tokens.
    """
    try:
        tokens = tokenize(text)
    except DeltaParseException:
        return False
    return any(starts_subquery(tokens, index) for index in range(len(tokens)))


def tree_contains_subquery(node: Node) -> bool:
    """Says whether a condition that is read already holds a subquery."""
    return any(isinstance(leaf, Opaque) and leaf.subquery for leaf in leaves(node))


class _Usage:
    """Collects the columns of a tree, and whether these are certainly all."""

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
    return Conjunct(node.text, node.span, side, frozenset(usage.target), frozenset(usage.source), predicate)


def _equi_key(node: Node, scope: Scope) -> EquiKey | None:
    if not isinstance(node, Operation) or node.op not in ("=", "<=>"):
        return None
    for target, source in _both_ways(node):
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
        columns = frozenset(usage.source)
        return EquiKey(ColumnRef(found.path), source.text, columns, path, node.op == "<=>", node.span)
    return None


def _both_ways(node: Operation) -> Iterator[tuple[Node, Node]]:
    left, right = node.operands
    yield left, right
    yield right, left
