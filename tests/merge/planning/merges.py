"""Merges from SQL and two schemas, and tables from a log of one commit: all that a planner sees, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, TypeAlias, cast

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    CalendarIntervalType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.merge.analysis.column_references import MergeReferences
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
)
from deltamerge.merge.limits import Limits
from deltamerge.merge.plan import Alternative, MergePlan
from deltamerge.merge.planning.context import PlanningContext, SessionFacts
from deltamerge.merge.planning.planner import make_plan
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.merge.statement import MergeStatement
from deltamerge.spark.config import MergeConf
from deltamerge.sql.merge_ast import Default, Insert, MergeClause, Star, Update
from deltamerge.sql.merge_parser import parse_merge
from deltamerge.storage.store import open_store
from deltamerge.write.align import find_field
from deltamerge.write.schema_evolution import evolved_schema
from deltamerge.write.store_assignment import StoreAssignment
from log.logs import Log, add, metadata

Columns: TypeAlias = Mapping[str, "DataType | StructField"]
"""Columns by name, each its type or, with metadata, its field."""

PEOPLE: Columns = {"id": LongType(), "n": IntegerType(), "name": StringType(), "day": DateType()}
MIB = 1 << 20

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"
COUNT = "WHEN MATCHED THEN UPDATE SET n = t.n + s.n"
COMPUTE = "WHEN MATCHED THEN UPDATE SET n = abs(t.n - s.n)"
BY_KEY = "t.id = s.id"
BY_EXPRESSION = "t.id = s.id + 1 AND s.n > 0"

_READER_FEATURES = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "variantType"})


@dataclass(frozen=True)
class File:
    """A data file of 10 MiB with 1,000 rows, whose ids are known."""

    ids: tuple[int, int]
    size: int = 10 * MIB
    rows: int | None = 1_000
    values: Mapping[str, str | None] = field(default_factory=dict)
    vector: bool = False

    def action(self, number: int) -> dict[str, Any]:
        low, high = self.ids
        stats = {"numRecords": self.rows, "minValues": {"id": low}, "maxValues": {"id": high}}
        action = add(
            f"f{number}.parquet",
            size=self.size,
            partitionValues=dict(self.values),
            stats=None if self.rows is None else json.dumps(stats),
        )
        if self.vector:
            descriptor = {"storageType": "p", "pathOrInlineDv": "/vector.bin", "offset": 1, "sizeInBytes": 34}
            action["add"]["deletionVector"] = {**descriptor, "cardinality": 1}
        return action


@dataclass(frozen=True)
class Table:
    """A table of `PEOPLE` in two files, unless other columns or files are given."""

    columns: Columns = field(default_factory=lambda: PEOPLE)
    partitions: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    files: tuple[File, ...] = (File((0, 999)), File((1_000, 1_999)))

    def snapshot(self, folder: Path) -> Snapshot:
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": sorted(_READER_FEATURES.intersection(self.features)),
            "writerFeatures": sorted(self.features),
        }
        described = metadata(
            schemaString=struct(self.columns).json(),
            partitionColumns=list(self.partitions),
            configuration=dict(self.properties),
        )
        files = (file.action(number) for number, file in enumerate(self.files))
        Log(folder).commit({"protocol": protocol}, described, *files)
        return load_snapshot(open_store(str(folder)))


PLAIN = Table()
# A column of a table that was converted from another format, whose files name it as it was named then.
CONVERTED = StructField(
    "n", IntegerType(), True, {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "n"}
)
VECTORS = Table(properties={"delta.enableDeletionVectors": "true"}, features=("deletionVectors",))


def struct(columns: Columns) -> StructType:
    return StructType(
        [kind if isinstance(kind, StructField) else StructField(name, kind) for name, kind in columns.items()]
    )


def statement_of(sql: str) -> MergeStatement:
    """Parse a MERGE of ``s`` into ``t``; no step of the planner looks at the source's frame."""
    parsed = parse_merge(sql)
    return MergeStatement(
        source=cast("DataFrame", None),
        source_name=("s",),
        source_sql="s",
        target_name=("t",),
        condition=parsed.condition,
        clauses=parsed.clauses,
        schema_evolution=parsed.schema_evolution,
    )


def merge_of(
    clauses: str,
    on: str = BY_KEY,
    target: Columns = PEOPLE,
    source: Columns | None = None,
    *,
    evolution: bool = False,
    case_sensitive: bool = False,
    source_schema: StructType | None = None,
    types: Sequence[DataType] = (),
) -> ResolvedMerge:
    """Resolve a MERGE by names alone: an assigned column takes its value, a star the column of the same name.

    Args:
        types: The types of the values that clauses assign, in their order; of the others nothing is known.
    """
    words = " WITH SCHEMA EVOLUTION" if evolution else ""
    statement = statement_of(f"MERGE{words} INTO t USING s ON {on} {clauses}")
    given = struct(target if source is None else source) if source_schema is None else source_schema
    before = after = struct(target)
    if evolution:
        used = [name for clause in statement.clauses for name in _used(clause, given)]
        after = evolved_schema(before, given, used, case_sensitive, "always")
    counts: dict[str, int] = {}
    resolved, known = [], chain(types, repeat(CalendarIntervalType()))
    for clause in statement.clauses:
        number = counts[clause.kind] = counts.get(clause.kind, -1) + 1
        outputs = _outputs(clause, given, after, evolution=evolution) if _changes_columns(clause) else ()
        resolved.append(ResolvedClause(clause, number, tuple(islice(known, len(clause.values))), outputs))
    return ResolvedMerge(
        statement=statement,
        clauses=tuple(resolved),
        target_schema=before,
        output_schema=after,
        source_schema=given,
        target_alias="t",
        assignment=StoreAssignment("ANSI", True, case_sensitive),
    )


def _changes_columns(clause: MergeClause) -> bool:
    return isinstance(clause.action, (Update, Insert))


def _used(clause: MergeClause, source: StructType) -> list[tuple[str, ...]]:
    if not isinstance(clause.action, (Update, Insert)):
        return []
    if isinstance(clause.action.assignments, Star):
        return [(name,) for name in source.names]
    return [_unqualified(assignment.target) for assignment in clause.assignments]


def _unqualified(name: tuple[str, ...]) -> tuple[str, ...]:
    return name[1:] if len(name) > 1 and name[0] == "t" else name


def _outputs(clause: MergeClause, source: StructType, schema: StructType, *, evolution: bool) -> tuple[Output, ...]:
    is_update = isinstance(clause.action, Update)
    otherwise: Output = TakeTarget() if is_update else TakeDefault()
    outputs: dict[str, Output] = dict.fromkeys(schema.names, otherwise)
    if isinstance(clause.action, (Update, Insert)) and isinstance(clause.action.assignments, Star):
        excepted = {name[-1] for name in clause.action.assignments.except_columns}
        for name in outputs:
            index = find_field(source, name, False)
            if index is not None and name not in excepted:
                outputs[name] = TakeSource(index, keep_target_fields=is_update and evolution)
    number = 0
    for assignment in clause.assignments:
        name, *fields = _unqualified(assignment.target)
        if isinstance(assignment.value, Default):
            outputs[name] = TakeDefault()
            continue
        outputs[name] = SetFields(((tuple(fields), number),)) if fields else TakeValue(number)
        number += 1
    return outputs_of_table(clause, tuple(outputs.values()), schema)


def context_of(
    folder: Path,
    clauses: str,
    on: str = BY_KEY,
    table: Table = PLAIN,
    source: Columns | None = None,
    *,
    evolution: bool = False,
    conf: Mapping[str, Any] | None = None,
    session: SessionFacts | None = None,
    limits: Limits | None = None,
    summary: SourceSummary | None = None,
    declined: Sequence[Alternative] = (),
    types: Sequence[DataType] = (),
) -> PlanningContext:
    """Return what a planner sees of a MERGE into a table that is written into a folder."""
    merge = merge_of(clauses, on, table.columns, source, evolution=evolution, types=types)
    return PlanningContext(
        merge=merge,
        references=MergeReferences(merge),
        snapshot=table.snapshot(folder),
        conf=MergeConf(**(conf or {})),
        session=session or SessionFacts(),
        limits=limits or Limits(),
        summary=summary,
        declined=tuple(declined),
    )


def plan_of(folder: Path, clauses: str, on: str = BY_KEY, table: Table = PLAIN, **more: Any) -> MergePlan:
    """Plan a MERGE; see `context_of`."""
    return make_plan(context_of(folder, clauses, on, table, **more))


Choices: TypeAlias = tuple[str, str, str, str]


def choices(plan: MergePlan) -> Choices:
    """Return what a plan chose: match, source, changed rows, unchanged rows."""
    return (
        plan.match.choice,
        plan.source.choice,
        plan.changed_rows.choice,
        plan.unchanged_rows.choice,
    )


def declined_of(plan: MergePlan) -> dict[tuple[str, str], str]:
    """Return why a plan's alternatives were declined."""
    return {
        (alternative.decision, alternative.choice): alternative.reason
        for decision in plan.decisions.values()
        for alternative in decision.declined
    }
