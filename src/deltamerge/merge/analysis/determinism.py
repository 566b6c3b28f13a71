"""Whether what decides over target rows has the same value each time that it is evaluated."""

from __future__ import annotations

from deltamerge.merge.analysis.column_references import expression_tree
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.statement import Expression
from deltamerge.sql.expression import Literal, Name, leaves

# Spark takes these words for functions where there is no column of the name.
_TIMES = frozenset({"current_date", "current_time", "current_timestamp", "localtimestamp"})


def is_repeatable(merge: ResolvedMerge) -> bool:
    """Tells whether ON and the conditions on target rows only compare columns and literals.

    A function may be a user's that answers otherwise at a second call, or one that tells the time.

    Args:
        merge: The merge.
    """
    clauses = (*merge.matched, *merge.not_matched_by_source)
    conditions = [c.clause.condition for c in clauses if c.clause.condition is not None]
    quoted = merge.double_quoted_identifiers
    return all(_is_repeatable(condition, quoted) for condition in (merge.statement.condition, *conditions))


def _is_repeatable(condition: Expression, quoted: bool) -> bool:
    tree = expression_tree(condition, quoted)
    return all(
        isinstance(leaf, Literal)
        or (isinstance(leaf, Name) and (len(leaf.parts) > 1 or leaf.parts[0].lower() not in _TIMES))
        for leaf in leaves(tree)
    )
