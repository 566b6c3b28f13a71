"""Pushes NOT down to the leaves by three-valued logic, so that skipping never negates a "may"."""

from __future__ import annotations

from deltamerge.skipping.predicates import (
    NEVER,
    And,
    Comparison,
    In,
    InRanges,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)

NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
# Beyond this many values NOT IN only says that the column is not NULL.
MAX_NOT_IN = 32


def push_not_down(predicate: Predicate) -> Predicate:
    """Return a predicate without `Not` that is TRUE at least for every row that this one is TRUE for.

    NOT is pushed into comparisons by De Morgan's rules; NULL stays neither TRUE nor FALSE, so ``NOT (x = NULL)`` is
    never TRUE.
    """
    if isinstance(predicate, And):
        return And(tuple(push_not_down(part) for part in predicate.parts))
    if isinstance(predicate, Or):
        return Or(tuple(push_not_down(part) for part in predicate.parts))
    if isinstance(predicate, Not):
        return _negate(predicate.part)
    return predicate


def _negate(predicate: Predicate) -> Predicate:
    if isinstance(predicate, Not):
        return push_not_down(predicate.part)
    if isinstance(predicate, And):
        return Or(tuple(_negate(part) for part in predicate.parts))
    if isinstance(predicate, Or):
        return And(tuple(_negate(part) for part in predicate.parts))
    if isinstance(predicate, Comparison):
        return _negate_comparison(predicate)
    if isinstance(predicate, In):
        return _negate_in(predicate)
    if isinstance(predicate, IsNull):
        return IsNotNull(predicate.column)
    if isinstance(predicate, IsNotNull):
        return IsNull(predicate.column)
    if isinstance(predicate, StartsWith):
        return IsNotNull(predicate.column)
    if isinstance(predicate, InRanges):
        return Unknown()
    return predicate


def _negate_comparison(predicate: Comparison) -> Predicate:
    if predicate.op == "<=>":
        if predicate.value is None:
            return IsNotNull(predicate.column)
        differs = Comparison("<>", predicate.column, predicate.value, predicate.type_name)
        return Or((differs, IsNull(predicate.column)))
    if predicate.value is None:
        return NEVER
    op = NEGATED.get(predicate.op)
    if op is None:
        return Unknown()
    return Comparison(op, predicate.column, predicate.value, predicate.type_name)


def _negate_in(predicate: In) -> Predicate:
    if any(value is None for value in predicate.values):
        return NEVER
    if not predicate.values:
        return And(())
    if len(predicate.values) > MAX_NOT_IN:
        return IsNotNull(predicate.column)
    return And(
        tuple(Comparison("<>", predicate.column, value, predicate.type_name) for value in predicate.values)
    )
