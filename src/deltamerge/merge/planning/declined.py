"""The answer of an operator that cannot carry out its part of a plan, as it found out on the way."""

from __future__ import annotations

from deltamerge.merge.planning.plan import Alternative, DecisionName


class Declined(Exception):
    """Another operator is to be tried; nothing else means that.

    Args:
        decision: The decision that the operator belongs to.
    """

    def __init__(self, decision: DecisionName, choice: str, reason: str) -> None:
        super().__init__(reason)
        self.alternative = Alternative(decision, choice, reason)


class RowsCompete(Declined):
    """Several source rows match and change one target row.

    The join that knows the rows reports them, whichever plan the session asks for.
    """

    def __init__(self) -> None:
        super().__init__("match", "key_lookup", "several source rows match and change one target row")
