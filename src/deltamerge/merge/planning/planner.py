"""The planner: four decisions, each made by the first operator that fits.

An operator returns whether it fits from the statement, the log and the session only. What comes out later, about the
source or in a file, it reports by `Declined`; the planner is then asked again, with that operator ruled out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.plan import PLAN_NAMES, Alternative, Decision, DecisionName, MergePlan
from deltamerge.merge.planning import changed_rows, matching, sources, unchanged_rows
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.merge.planning.fit import Fits, Operator


def make_plan(context: PlanningContext) -> MergePlan:
    """Return the plan: for each decision the first operator that fits, given the decisions before it.

    Raises:
        DeltaAnalysisException: The plan that the session asks for does not fit (DELTAMERGE_EXECUTOR_NOT_AVAILABLE).
    """
    forced = context.conf.executor
    operators = [(name, fit) for name, fit in matching.operators(context) if forced in ("auto", PLAN_NAMES[name])]
    declined: list[Alternative] = []
    for match in _candidates(context, "match", operators, "", declined):
        rest = _complete(context, match.choice)
        if isinstance(rest, Alternative):
            declined.append(Alternative("match", match.choice, rest.reason))
            continue
        reason = match.reason if forced == "auto" else "spark.deltamerge.merge.executor asks for it"
        return MergePlan(replace(match, reason=reason, declined=tuple(declined)), *rest)
    verb = context.merge.statement.verb
    against = "; ".join(alternative.reason for alternative in declined) or f"no {verb} runs so"
    if forced == "auto":
        raise DeltaAnalysisException("DELTAMERGE_EXECUTOR_NOT_AVAILABLE", f"No plan fits this {verb}: {against}.")
    raise DeltaAnalysisException(
        "DELTAMERGE_EXECUTOR_NOT_AVAILABLE",
        f"spark.deltamerge.merge.executor is {forced}, but this {verb} cannot run so: {against}. Set it to auto, which "
        "chooses a plan that fits.",
    )


def _complete(context: PlanningContext, match: str) -> tuple[Decision, Decision, Decision] | Alternative:
    """Decide on source, changed rows and unchanged rows; return the last reason against it where one has no answer.

    A way to make changed rows may leave no way to treat the unchanged ones, so both are chosen together.
    """
    declined: list[Alternative] = []
    for changed in _candidates(context, "changed_rows", changed_rows.OPERATORS[match], match, declined):
        unchanged = _first(context, "unchanged_rows", unchanged_rows.OPERATORS[match], changed.choice)
        source = _first(context, "source", sources.operators(context, match), changed.choice)
        if isinstance(unchanged, Decision) and isinstance(source, Decision):
            return source, replace(changed, declined=tuple(declined)), unchanged
        against = unchanged if isinstance(unchanged, Alternative) else source
        declined.append(Alternative("changed_rows", changed.choice, against.reason))
    return declined[-1]


def _candidates(
    context: PlanningContext,
    decision: DecisionName,
    operators: Sequence[Operator],
    before: str,
    declined: list[Alternative],
) -> Iterator[Decision]:
    """Yield the operators that fit; add the others to the declined ones."""
    for name, fit in operators:
        found = _ruled_out(context, decision, name) or fit(context, before)
        if found.fits:
            yield Decision(name, found.reason)
        else:
            declined.append(Alternative(decision, name, found.reason))


def _first(
    context: PlanningContext,
    decision: DecisionName,
    operators: Sequence[Operator],
    before: str,
) -> Decision | Alternative:
    """Return the first operator that fits, or the last one's reason."""
    declined: list[Alternative] = []
    for found in _candidates(context, decision, operators, before, declined):
        return replace(found, declined=tuple(declined))
    return declined[-1]


def _ruled_out(context: PlanningContext, decision: DecisionName, choice: str) -> Fits | None:
    """Return why an operator that declined while it ran is not chosen again."""
    for alternative in context.declined:
        if (alternative.decision, alternative.choice) == (decision, choice):
            return Fits(False, alternative.reason)
    return None
