"""What becomes of the rows that no clause changes in touched files, for a way of making the changed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltamerge.log.schema import contains_type
from deltamerge.merge.planning.context import FOREIGN_NAMES, PlanningContext
from deltamerge.merge.planning.fit import Fits, Operator, always, evolved_within, no, yes


def none(context: PlanningContext, _: str) -> Fits:
    if context.changes_target_rows:
        return no("there are clauses that update or delete")
    return yes("no clause updates or deletes, so no file is touched")


def deletion_vector(context: PlanningContext, _: str) -> Fits:
    """Changed rows are deleted by a bitmap beside the file, which stays."""
    if not context.writes_deletion_vectors:
        return no("the table does not write deletion vectors (delta.enableDeletionVectors)")
    return yes("the table writes deletion vectors, so touched files stay as they are")


def patch(context: PlanningContext, changed: str) -> Fits:
    """PyArrow copies a file without the rows that change, or with them changed."""
    merge = context.merge
    if context.session.not_opened is not None:
        return no(context.session.not_opened)
    if context.has_deletion_vectors:
        return no("files of the table have deletion vectors")
    if context.may_have_foreign_names:
        # The copy would keep their names, by which statistics do not find the columns.
        return no(FOREIGN_NAMES)
    evolved = evolved_within(merge)
    if evolved is not None:
        return no(f"the table gets new parts of column {evolved}, which some readers require in every file")
    if contains_type(context.snapshot.schema, "variant"):
        return no("the table has VARIANT columns")
    rows = "with the changed rows in their places" if changed != "spark" else "without the rows that change"
    return yes(f"PyArrow copies touched files {rows}; their other rows are not decoded into Spark's")


_OF_WHOLE_FILES = "the condition is TRUE or FALSE for all rows of a file, so no row of a removed file stays"
_REWRITE = always("Spark writes touched files again")
# Spark reads touched files again and leaves out the positions that change.
_COPY = always("Spark copies the rows that do not change, without a join")

OPERATORS: Mapping[str, Sequence[Operator]] = {
    "key_lookup": (("none", none), ("deletion_vector", deletion_vector), ("patch", patch)),
    "anti_join": (("none", none),),
    "whole_files": (("none", always(_OF_WHOLE_FILES)),),
    "join": (("none", none), ("deletion_vector", deletion_vector), ("patch", patch), ("rewrite", _COPY)),
    "join_files": (("none", none), ("deletion_vector", deletion_vector), ("rewrite", _REWRITE)),
}
"""By the way of finding the matches."""
