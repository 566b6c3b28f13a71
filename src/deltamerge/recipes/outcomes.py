"""The outcome of several merges that are one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deltamerge.merge.outcome import MergeOutcome
from deltamerge.merge.reruns import rerun_notes
from deltamerge.render.printable import count


def outcome_of_call(outcomes: Sequence[MergeOutcome], notes: Sequence[str] = ()) -> MergeOutcome:
    """Return the outcome of a merge and of those that followed it for changes of other calls.

    It is that of the first one that changed the table, with the last version, the notes and the commits that all of
    them lost to.
    """
    changed = [outcome for outcome in outcomes if outcome.version is not None]
    shown = changed[0] if changed else outcomes[0]
    lost = tuple(commit for outcome in outcomes for commit in outcome.lost_to)
    of_merges = dict.fromkeys(note for outcome in (outcomes[0], shown) for note in outcome.notes)
    return replace(
        shown,
        version=changed[-1].version if changed else None,
        notes=(*of_merges, *map(_followed, changed[1:]), *rerun_notes(lost), *notes),
        lost_to=lost,
        reconciled_with=tuple(commit for outcome in outcomes for commit in outcome.reconciled_with),
    )


def _followed(outcome: MergeOutcome) -> str:
    rows = count(sum(clause.rows for clause in outcome.clauses), "row")
    return f"Version {outcome.version} has changes that other calls logged meanwhile: {rows} changed."
