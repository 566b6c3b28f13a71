"""Merges that a recipe runs beside the user's own, into tables that it keeps itself."""

from __future__ import annotations

from deltamerge.api.merge_builder import DeltaMergeBuilder
from deltamerge.merge.command import MergeIntoCommand
from deltamerge.merge.outcome import MergeOutcome
from deltamerge.merge.run_merge import run_merge
from deltamerge.txn.application import NO_TRANSACTION


def run_without_transaction(builder: DeltaMergeBuilder) -> MergeOutcome:
    """Run a merge that changes nothing the second time, so that it needs no transaction.

    The session's transaction is for the user's own table: here it would be used up, or rows would be left out because
    the session has written others under the same number.
    """
    return run_merge(MergeIntoCommand(builder.table, builder.statement, transaction=NO_TRANSACTION))
