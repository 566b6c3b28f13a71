"""MergeOutputGeneration: clauses into the expressions that make the merge's output.

The names follow Delta's MergeOutputGeneration. Conditions are computed once, as columns; from them comes the number
of the clause that takes a row; values are computed only where their clause takes the row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, reduce

from pyspark.sql import Column

from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.analysis.resolved_merge import (
    ResolvedClause,
    ResolvedMerge,
    SideColumns,
    TakeDefault,
    TakeGenerated,
    TakeTarget,
    assigned,
    target_value,
)
from deltamerge.merge.output.frames import Rows, own_columns, seeing_source, seeing_target
from deltamerge.spark import columns as F
from deltamerge.sql.merge_ast import ClauseKind

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


def source_row_missing(names: InternalColumns) -> Column:
    return F.col(names.source_row_present).isNull()


def target_row_missing(names: InternalColumns) -> Column:
    return F.col(names.target_row_present).isNull()


def rows_of_kind(kind: ClauseKind, names: InternalColumns) -> Column:
    """Return TRUE for the joined rows that clauses of a kind look at."""
    if kind == "matched":
        return ~source_row_missing(names) & ~target_row_missing(names)
    if kind == "not_matched":
        return target_row_missing(names)
    return source_row_missing(names)


def generate_precomputed_conditions(
    rows: Rows, clauses: Sequence[ResolvedClause], kind: ClauseKind, applies: Column, names: InternalColumns
) -> Rows:
    """Add each clause's condition as a column, and the number of the clause that takes the row.

    Conditions are evaluated for all rows of their kind. Only that of `SkipUnchanged`, in which the values of an UPDATE
    stand, is evaluated where neither an earlier clause takes the row nor the UPDATE leaves it.

    Returns:
        The rows with one BOOLEAN column a condition (``_update_condition_0_`` and so on) and one INT column for the
        kind: the number of the first clause whose condition is TRUE, NULL where there is none.
    """
    own = [clause for clause in clauses if clause.condition is not None and clause.action != "skip_unchanged"]
    rows = rows.adding([(_condition_name(clause, names), _where(applies, clause)) for clause in own])
    for place, clause in enumerate(clauses):
        if clause.action == "skip_unchanged":
            earlier, update = clauses[:place], clauses[place + 1]
            reached = _first_true(earlier, applies, names).isNull() & _first_true([update], applies, names).isNotNull()
            rows = rows.adding([(_condition_name(clause, names), _where(applies & reached, clause))])
    return rows.adding([(names.clause(kind), _first_true(clauses, applies, names))])


def _where(applies: Column, clause: ResolvedClause) -> Column:
    return F.when(applies, F.lit(True) if clause.condition is None else clause.condition.cast("boolean"))


def _condition_name(clause: ResolvedClause, names: InternalColumns) -> str:
    return names.condition(f"{clause.kind}_{clause.action}", clause.number)


def _first_true(clauses: Sequence[ResolvedClause], applies: Column, names: InternalColumns) -> Column:
    numbers = [
        (applies if clause.condition is None else F.col(_condition_name(clause, names)), F.lit(clause.number))
        for clause in clauses
    ]
    return _case(numbers, F.lit(None).cast("int"))


def _case(branches: Sequence[tuple[Column, Column]], otherwise: Column) -> Column:
    if not branches:
        return otherwise
    return reduce(lambda case, branch: case.when(*branch), branches[1:], F.when(*branches[0])).otherwise(otherwise)


def generate_clause_values(
    rows: Rows,
    clauses: Sequence[ResolvedClause],
    kind: ClauseKind,
    names: InternalColumns,
    wanted: Mapping[int, Collection[int]] | None = None,
) -> Rows:
    """Add each assigned value as a column, computed only where its clause takes the row.

    Args:
        wanted: By a clause's number the positions of the values to add; None for all.
    """
    number = F.col(names.clause(kind))
    return rows.adding(
        [
            (names.value(kind, clause.number, i), F.when(number == F.lit(clause.number), value))
            for clause in clauses
            for i, value in enumerate(clause.values)
            if wanted is None or i in wanted[clause.number]
        ]
    )


def evaluate_clauses(rows: Rows, merge: ResolvedMerge, kind: ClauseKind, *, values: bool) -> Rows:
    """Evaluate the clauses of a kind; all columns have internal names afterwards.

    Args:
        rows: For MATCHED clauses joined rows, both sides visible; for others renamed rows, of which they see one side.
        values: Whether the values that they assign are computed, too.
    """
    names, clauses, applies = merge.names, merge.of_kind(kind), rows_of_kind(kind, merge.names)
    seeing = rows
    if kind == "not_matched":
        seeing = seeing_source(rows, merge)
        applies = applies if names.target_row_present in rows.names else F.lit(True)
    elif kind == "not_matched_by_source":
        seeing = seeing_target(rows, merge)
    evaluated = generate_precomputed_conditions(seeing, clauses, kind, applies, names)
    if values:
        evaluated = generate_clause_values(evaluated, clauses, kind, names)
    return evaluated.renamed() if kind == "matched" else own_columns(evaluated)


def generate_all_action_exprs(
    merge: ResolvedMerge, clause: ResolvedClause, defaults: Callable[[int], Column]
) -> list[Column]:
    return [generate_action_expr(merge, clause, index, defaults) for index in range(len(clause.outputs))]


def target_copy(merge: ResolvedMerge, index: int) -> Column:
    return target_value(merge, index, lambda: F.col(merge.names.target(index)))


def generate_action_expr(
    merge: ResolvedMerge, clause: ResolvedClause, index: int, defaults: Callable[[int], Column]
) -> Column:
    output = clause.outputs[index]
    if isinstance(output, TakeTarget):
        return target_copy(merge, index)
    if isinstance(output, TakeDefault):
        return defaults(index)
    if isinstance(output, TakeGenerated):
        # compute_generated_columns puts the value there once the row's other columns are known.
        return F.lit(None).cast(merge.output_schema.fields[index].dataType)
    columns = SideColumns(
        target=partial(target_copy, merge),
        source=lambda position: F.col(merge.names.source(position)),
        value=lambda position: F.col(merge.names.value(*clause.key, position)),
    )
    return assigned(merge, clause, index, columns)


def generate_clause_output_exprs(
    clauses: Sequence[ResolvedClause],
    per_clause: dict[int, list[Column]],
    number: Column,
    otherwise: list[Column],
) -> list[Column]:
    """Put the clauses of one kind together: per output column one CASE over the number of the clause.

    Args:
        per_clause: For each clause that writes rows, its number and what each output column becomes.
        otherwise: What the columns are where no clause takes the row, or one that writes nothing.
    """
    if not per_clause:
        return otherwise
    if len(clauses) == 1 and clauses[0].condition is None:
        return per_clause[clauses[0].number]
    return [
        _case(
            [
                (number == F.lit(clause_number), columns[index])
                for clause_number, columns in per_clause.items()
                if columns[index] is not fallback
            ],
            fallback,
        )
        for index, fallback in enumerate(otherwise)
    ]


def generate_write_all_changes_output_cols(
    merge: ResolvedMerge, defaults: Callable[[int], Column]
) -> list[tuple[str, Column]]:
    """Return the output columns' names and CASEs for joined rows on which all clauses are evaluated.

    Rows without a source row take the BY SOURCE expressions, rows without a target row the INSERT expressions, all
    others the MATCHED ones.
    """
    names = merge.names
    width = len(merge.output_schema.fields)
    copies = [target_copy(merge, index) for index in range(width)]
    nothing = [F.lit(None).cast(field.dataType) for field in merge.output_schema.fields]

    def of(clauses: Sequence[ResolvedClause], kind: ClauseKind, otherwise: list[Column]) -> list[Column]:
        writing = {
            clause.number: [
                # The very same expression where the target's value stays, so that its CASE can be left out.
                copies[i] if isinstance(output, TakeTarget) else generate_action_expr(merge, clause, i, defaults)
                for i, output in enumerate(clause.outputs)
            ]
            for clause in clauses
            if clause.outputs
        }
        return generate_clause_output_exprs(clauses, writing, F.col(names.clause(kind)), otherwise)

    by_source = of(merge.not_matched_by_source, "not_matched_by_source", copies)
    inserted = of(merge.not_matched, "not_matched", nothing)
    matched = of(merge.matched, "matched", copies)
    columns = []
    for index in range(width):
        case = matched[index]
        if merge.not_matched:
            case = F.when(target_row_missing(names), inserted[index]).otherwise(case)
        if by_source[index] is not matched[index]:
            case = F.when(source_row_missing(names), by_source[index]).otherwise(case)
        columns.append((names.output(index), case))
    if logger.isEnabledFor(logging.DEBUG):
        shown = "\n".join(f"  {name}: {column}" for name, column in columns)
        logger.debug("writeAllChanges: join output expressions\n%s", shown)
    return columns


def row_change(merge: ResolvedMerge) -> Column:
    """Return what becomes of a joined row: ``insert``, ``update``, ``delete``, ``drop``, or NULL for a copy."""
    names = merge.names
    inserted = _change(merge.not_matched, "not_matched", names, F.lit("drop"))
    by_source = _change(merge.not_matched_by_source, "not_matched_by_source", names, F.lit(None).cast("string"))
    matched = _change(merge.matched, "matched", names, F.lit(None).cast("string"))
    return F.when(target_row_missing(names), inserted).when(source_row_missing(names), by_source).otherwise(matched)


def _change(clauses: Sequence[ResolvedClause], kind: ClauseKind, names: InternalColumns, otherwise: Column) -> Column:
    number = F.col(names.clause(kind))
    changing = [clause for clause in clauses if clause.action in ("update", "delete", "insert")]
    return _case([(number == F.lit(clause.number), F.lit(clause.action)) for clause in changing], otherwise)
