"""From the parsed statement to its meaning for one snapshot: names, stars, types, schema evolution.

Spark resolves every expression, each clause family on frames that see just what the family may see; no job runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.analysis import analysis_errors
from deltamerge.merge.analysis.resolved_merge import (
    Output,
    ResolvedClause,
    ResolvedMerge,
    SetFields,
    TakeDefault,
    TakeSource,
    TakeTarget,
    TakeValue,
    outputs_of_table,
    type_at,
)
from deltamerge.merge.analysis.spark_analysis import Analysis, Sides, analyse, sides_of
from deltamerge.merge.statement import TARGET_ALIAS, MergeStatement
from deltamerge.spark import columns as F
from deltamerge.spark.config import KEYS, MergeConf
from deltamerge.sql.merge_ast import (
    KIND_AS_SQL,
    Assignment,
    Default,
    Expression,
    Insert,
    MergeClause,
    Star,
    Update,
)
from deltamerge.sql.names import quote
from deltamerge.write.align import align, check_same_fields, find_field, same_name
from deltamerge.write.schema_evolution import evolved_schema, new_void, refuse_void
from deltamerge.write.store_assignment import StoreAssignment, first_lossy


def resolve(
    spark: SparkSession,
    statement: MergeStatement,
    target_schema: StructType,
    conf: MergeConf,
    widening: str,
    partition_columns: tuple[str, ...],
) -> ResolvedMerge:
    evolves = statement.schema_evolution or conf.schema_auto_merge
    if not target_schema.fields and conf.empty_schema_target_check and not evolves:
        raise DeltaAnalysisException(
            "DELTA_MERGE_INTO_EMPTY_SCHEMA_TARGET",
            "Cannot MERGE INTO a table with no columns. Give the target columns, or let its schema evolve to the "
            "source's: MERGE WITH SCHEMA EVOLUTION, withSchemaEvolution(), or "
            f"{KEYS['schema_auto_merge']} = true.",
        )
    target_alias = statement.target_alias or TARGET_ALIAS
    sides = sides_of(spark, statement, target_schema, target_alias)
    merge = _Resolver(statement, sides, target_alias, conf, widening).resolve()
    return replace(merge, partition_columns=partition_columns)


def _conflict(paths: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return two paths of which one is the other or within it; None where there are none."""
    by_first: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for path in paths:
        for known in by_first[path[0]]:
            shorter = min(len(known), len(path))
            if known[:shorter] == path[:shorter]:
                return known, path
        by_first[path[0]].append(path)
    return None


class _Resolver:
    def __init__(
        self, statement: MergeStatement, sides: Sides, target_alias: str, conf: MergeConf, widening: str
    ) -> None:
        self.statement = statement
        self.sides = sides
        self.target_alias = target_alias
        self.conf = conf
        self.case_sensitive = conf.case_sensitive
        self.evolution = statement.schema_evolution or conf.schema_auto_merge
        self.widening = widening
        self.structs_by_name = conf.resolve_update_structs_by_name
        self.assignment = StoreAssignment(
            conf.merge_assignment_policy, conf.ansi_enabled, conf.case_sensitive, self.structs_by_name
        )
        self._assignable: set[tuple[str, str]] = set()
        self._source_places: dict[str, list[int]] = defaultdict(list)
        for place, name in enumerate(sides.source_schema.names):
            self._source_places[name.lower()].append(place)

    def resolve(self) -> ResolvedMerge:
        analysis = Analysis(self.statement, self.sides, self.conf.double_quoted_identifiers)
        mistyped = analysis.check_conditions()
        for clause in self.statement.clauses:
            self._check_known(clause)
        output_schema = self._output_schema()
        if mistyped is not None:
            raise mistyped
        for clause in self.statement.clauses:
            self._check_paths(clause, output_schema)
        for clause in self.statement.clauses:
            self._check_star(clause, output_schema)
        typed = {kind: analysis.typed_values(kind) for kind in KIND_AS_SQL}
        counters: dict[str, int] = {}
        clauses = []
        for clause in self.statement.clauses:
            number = counters.get(clause.kind, 0)
            counters[clause.kind] = number + 1
            clauses.append(self._clause(clause, number, typed[clause.kind][number], output_schema))
        return ResolvedMerge(
            statement=self.statement,
            clauses=tuple(clauses),
            target_schema=self.sides.target_schema,
            output_schema=output_schema,
            source_schema=self.sides.source_schema,
            target_alias=self.target_alias,
            assignment=self.assignment,
            double_quoted_identifiers=self.conf.double_quoted_identifiers,
        )

    # Assignments

    def _paths(self, clause: MergeClause) -> tuple[tuple[str, ...], ...]:
        return tuple(self._without_alias(a.target) for a in clause.assignments)

    def _without_alias(self, name: tuple[str, ...]) -> tuple[str, ...]:
        if len(name) > 1 and same_name(name[0], self.target_alias, self.case_sensitive):
            known = find_field(self.sides.target_schema, name[1], self.case_sensitive) is not None
            if known or find_field(self.sides.target_schema, name[0], self.case_sensitive) is None:
                return name[1:]
        return name

    def _output_schema(self) -> StructType:
        target = self.sides.target_schema
        if not self.evolution:
            return target
        used: list[tuple[str, ...]] = []
        for clause in self.statement.clauses:
            if clause.kind == "not_matched_by_source":
                continue
            assignments = _assignments(clause)
            if isinstance(assignments, Star):
                excepted = self._excepted(assignments)
                used += [(f.name,) for f in self.sides.source_schema.fields if f.name.lower() not in excepted]
            else:
                used += self._paths(clause)
        evolved = evolved_schema(target, self.sides.source_schema, used, self.case_sensitive, self.widening)
        refuse_void(new_void(target, evolved))
        return evolved

    def _check_paths(self, clause: MergeClause, schema: StructType) -> None:
        paths, spelled = self._paths(clause), []
        for path in paths:
            spelled.append(self._spelled(path, clause, schema))
            if isinstance(clause.action, Insert) and len(path) > 1:
                raise analysis_errors.nested_field_in_insert(path, clause.to_sql())
        for assignment, path in zip(clause.assignments, paths, strict=True):
            if isinstance(assignment.value, Default) and len(path) > 1:
                raise analysis_errors.default_of_field(path, schema, clause.to_sql())
        if isinstance(clause.action, Insert):
            duplicates = [path for path, count in Counter(spelled).items() if count > 1]
            if duplicates:
                raise analysis_errors.duplicate_insert_columns(duplicates[0], clause.to_sql())
            return
        conflict = _conflict(spelled)
        if conflict is not None:
            raise analysis_errors.conflicting_assignments(*conflict, clause.to_sql())

    def _check_known(self, clause: MergeClause) -> None:
        """Refuse names that no evolution can add, before any types are compared, as delta-spark does."""
        sides = (self.sides.target_schema, self.sides.source_schema)
        for path in self._paths(clause):
            if all(find_field(schema, path[0], self.case_sensitive) is None for schema in sides):
                raise self._unknown(path, 0, sides[0], clause)

    def _unknown(
        self, path: tuple[str, ...], depth: int, within: StructType, clause: MergeClause
    ) -> DeltaAnalysisException:
        where, is_merge = clause.to_sql(), self.statement.has_source
        return analysis_errors.unknown_target_column(path, depth, within, where, self.statement.sql, is_merge=is_merge)

    def _spelled(self, path: tuple[str, ...], clause: MergeClause, schema: StructType) -> tuple[str, ...]:
        """Return a path as the table spells it; refuse one that leads to nothing."""
        spelled: list[str] = []
        data_type: DataType = schema
        for depth, part in enumerate(path):
            if not isinstance(data_type, StructType):
                raise analysis_errors.unsettable_field(path, depth, data_type, clause.to_sql())
            index = find_field(data_type, part, self.case_sensitive)
            if index is None:
                raise self._unknown(path, depth, data_type, clause)
            spelled.append(data_type.fields[index].name)
            data_type = data_type.fields[index].dataType
        return tuple(spelled)

    # Clauses

    def _clause(self, clause: MergeClause, number: int, types: list[DataType], schema: StructType) -> ResolvedClause:
        assignments = _assignments(clause)
        if assignments is None:
            return ResolvedClause(clause, number)
        if isinstance(assignments, Star):
            outputs = outputs_of_table(clause, self._star_outputs(clause, assignments, schema), schema)
            return ResolvedClause(clause, number, outputs=outputs)
        assigned = self._assigned_outputs(clause, assignments, types, schema)
        outputs = outputs_of_table(clause, assigned, schema)
        return ResolvedClause(clause, number, tuple(types), outputs)

    def _excepted(self, star: Star) -> set[str]:
        return {self._without_alias(name)[0].lower() for name in star.except_columns}

    def _check_star(self, clause: MergeClause, schema: StructType) -> None:
        """Look up a star's columns: a name that is missing comes before any type that does not fit."""
        star = _assignments(clause)
        if not isinstance(star, Star):
            return
        for name in star.except_columns:
            path = self._without_alias(name)
            if find_field(schema, path[0], self.case_sensitive) is None:
                raise self._unknown(path, 0, schema, clause)
        excepted = self._excepted(star)
        for field in schema.fields:
            wanted = field.name.lower() not in excepted and not self.evolution
            if wanted and self._source_column(field.name, clause) is None:
                raise analysis_errors.missing_star_column(field.name, self.sides.source_schema, clause.to_sql())
        if self.evolution and isinstance(clause.action, Update):
            # What evolution has not added differs from a column of the table only in case.
            for field in self.sides.source_schema.fields:
                is_set = field.name.lower() not in excepted
                if is_set and find_field(schema, field.name, self.case_sensitive) is None:
                    raise analysis_errors.missing_set_column(field.name, schema, clause.to_sql())

    def _star_outputs(self, clause: MergeClause, star: Star, schema: StructType) -> tuple[Output, ...]:
        excepted = self._excepted(star)
        is_update = isinstance(clause.action, Update)
        otherwise: Output = TakeTarget() if is_update else TakeDefault()
        outputs: list[Output] = []
        for field in schema.fields:
            if field.name.lower() in excepted:
                outputs.append(otherwise)
                continue
            index = self._source_column(field.name, clause)
            if index is None:
                outputs.append(otherwise)
                continue
            given = self.sides.source_schema.fields[index].dataType
            self._check_assignable(given, field.dataType, field.name, clause)
            outputs.append(TakeSource(index, keep_target_fields=is_update and self.evolution))
        return tuple(outputs)

    def _source_column(self, name: str, clause: MergeClause) -> int | None:
        names = self.sides.source_schema.names
        found = [i for i in self._source_places[name.lower()] if same_name(names[i], name, self.case_sensitive)]
        if len(found) > 1:
            shown = ", ".join(f"`{names[i]}`" for i in found)
            raise DeltaAnalysisException(
                "AMBIGUOUS_REFERENCE",
                f"Reference `{name}` is ambiguous, could be: [{shown}] of the source. Give the source's columns "
                f"different names. In: {clause.to_sql()}",
                parameters={"name": f"`{name}`"},
            )
        return found[0] if found else None

    def _assigned_outputs(
        self,
        clause: MergeClause,
        assignments: tuple[Assignment, ...],
        types: list[DataType],
        schema: StructType,
    ) -> tuple[Output, ...]:
        whole: dict[str, Output] = {}
        fields: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        next_value = 0
        spelled = (self._spelled(path, clause, schema) for path in self._paths(clause))
        for assignment, path in zip(assignments, spelled, strict=True):
            if isinstance(assignment.value, Default):
                whole[path[0]] = TakeDefault()
                continue
            self._check_assignable(types[next_value], type_at(schema, path), ".".join(path), clause)
            if len(path) == 1:
                whole[path[0]] = TakeValue(next_value)
            else:
                fields.setdefault(path[0], []).append((path[1:], next_value))
            next_value += 1
        otherwise: Output = TakeTarget() if isinstance(clause.action, Update) else TakeDefault()
        return tuple(
            SetFields(tuple(fields[f.name])) if f.name in fields else whole.get(f.name, otherwise)
            for f in schema.fields
        )

    def _check_assignable(self, given: DataType, wanted: DataType, column: str, clause: MergeClause) -> None:
        lossy = None
        if self.assignment.policy == "STRICT":
            lossy = first_lossy(given, wanted, structs_by_name=self.structs_by_name)
        if lossy is not None:
            raise analysis_errors.no_up_cast(column, lossy, clause.to_sql())
        if self.structs_by_name:
            check_same_fields(
                given,
                wanted,
                column,
                clause.to_sql(),
                self.case_sensitive,
                allow_missing_struct_field=self.evolution,
            )
        pair = (given.json(), wanted.json())
        if pair in self._assignable or given == wanted:
            return
        frame = self.sides.other.select(F.lit(None).cast(given).alias(column))
        value = F.col(quote(column))
        error = _error_of(frame, align(value, given, wanted, self.assignment))
        if error is None:
            self._assignable.add(pair)
            return
        if self.assignment.policy == "ANSI" and analysis_errors.is_of_cast(error):
            legacy = align(value, given, wanted, replace(self.assignment, policy="LEGACY"))
            if _error_of(frame, legacy) is None:
                raise analysis_errors.needs_legacy_policy(error, column, clause.to_sql())
        raise analysis_errors.analysis_error(error, Expression(column), clause.to_sql(), self.statement.sql, None)


def _error_of(frame: DataFrame, value: Column) -> PySparkException | None:
    """Return why Spark does not take a value; None where it does."""
    try:
        analyse(lambda: frame.select(value))
    except PySparkException as error:
        return error
    return None


def _assignments(clause: MergeClause) -> tuple[Assignment, ...] | Star | None:
    return clause.action.assignments if isinstance(clause.action, (Update, Insert)) else None
