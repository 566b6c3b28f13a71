"""An expression as a tree of names, literals and the operators that are evaluated without Spark.

Everything else is `Opaque`: only the names in it are known. Each node has its SQL, verbatim, and its place in the
expression, None where it came from a Column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from deltamerge.sql.caret import Span


@dataclass(frozen=True)
class Name:
    """A column, or a field of one.

    Args:
        parts: The parts without backticks, as written; the first may be an alias.
    """

    parts: tuple[str, ...]
    text: str
    span: Span | None


@dataclass(frozen=True)
class Literal:
    """A constant.

    Args:
        type_name: Spark's name of its type; ``void`` for NULL.
    """

    value: object
    type_name: str
    text: str
    span: Span | None


@dataclass(frozen=True)
class Operation:
    """An operator with its operands.

    Args:
        op: One of ``and or not = <=> <> < <= > >= in between isnull isnotnull like startswith + - * %
            concat coalesce case year quarter month day date``; ``in`` has the tested value first and then the list,
            ``between`` the tested value, the lower and the upper bound, ``case`` by turns conditions and values, and
            then the value of ELSE, if any. ``date`` is a cast to DATE.
        prefix: Whether it was printed before its operands, as Columns print: ``=(a, b)``.
    """

    op: str
    operands: tuple[Node, ...]
    text: str
    span: Span | None
    prefix: bool = False


@dataclass(frozen=True)
class Opaque:
    """SQL that is not looked into.

    Args:
        words: Words in it that are columns only if there are columns of that name: types, units, keywords,
            parameters of lambdas.
        complete: Whether these are all; a star or a subquery makes it False.
    """

    names: tuple[Name, ...]
    words: tuple[Name, ...]
    complete: bool
    subquery: bool
    text: str
    span: Span | None


Node: TypeAlias = Name | Literal | Operation | Opaque


def unreadable(text: str, span: Span | None = None) -> Opaque:
    return Opaque((), (), complete=False, subquery=False, text=text, span=span)


def leaves(node: Node) -> Iterator[Name | Literal | Opaque]:
    """Yield what a tree is made of, from left to right."""
    if isinstance(node, Operation):
        for operand in node.operands:
            yield from leaves(operand)
    else:
        yield node


def without_operators(node: Node, ops: Collection[str]) -> Node:
    return without_operations(node, lambda operation: operation.op in ops) if ops else node


def without_operations(node: Node, is_left_out: Callable[[Operation], bool]) -> Node:
    """Return a tree in which some operations are not looked into."""
    if not isinstance(node, Operation):
        return node
    if not is_left_out(node):
        operands = tuple(without_operations(operand, is_left_out) for operand in node.operands)
        return replace(node, operands=operands)
    opaque = [leaf for leaf in leaves(node) if isinstance(leaf, Opaque)]
    return Opaque(
        names=(*(leaf for leaf in leaves(node) if isinstance(leaf, Name)), *(n for leaf in opaque for n in leaf.names)),
        words=tuple(word for leaf in opaque for word in leaf.words),
        complete=all(leaf.complete for leaf in opaque),
        subquery=any(leaf.subquery for leaf in opaque),
        text=node.text,
        span=node.span,
    )


def names_in(node: Node) -> frozenset[tuple[str, ...]]:
    """Return the parts of each name in a tree, and of each word that may be one."""
    found: set[tuple[str, ...]] = set()
    for leaf in leaves(node):
        if isinstance(leaf, Name):
            found.add(leaf.parts)
        elif isinstance(leaf, Opaque):
            found.update(name.parts for name in (*leaf.names, *leaf.words))
    return frozenset(found)


def conjuncts_of(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Operation) and node.op == "and":
        return tuple(part for operand in node.operands for part in conjuncts_of(operand))
    return (node,)
