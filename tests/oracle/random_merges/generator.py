"""Makes a merge of a seed; ``TABLE_SHARED_BY`` seeds after another share a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from random import Random

from corpus.sql import quote

from .expressions import Expressions, visible
from .kinds import (
    BIGINT,
    BOOLEAN,
    CLUSTERING,
    DATE,
    INT,
    KEYS,
    NUMBERS,
    PARTITIONS,
    STRING,
    TEXTS,
    Array,
    Field,
    Kind,
    Scalar,
    Struct,
    kind,
    scalar,
    struct,
    value,
)
from .merge import Clause, Column, Expr, RandomMerge, RandomSource, RandomTable, Row, Side
from .plans import PLANS
from .properties import FEATURES

TABLE_SHARED_BY = 4
# How many tables have a generated column, an identity column, columns to be clustered by.
GENERATED = 0.12
IDENTITY = 0.12
CLUSTERED = 0.08
NAMES = ("v", "w", "Name", "x", "größe", "select", "dot.ted")
NEW_NAMES = ("extra", "newS", "more")

_CONF: tuple[tuple[str, str, float], ...] = (
    ("spark.sql.storeAssignmentPolicy", "LEGACY", 0.06),
    ("spark.sql.storeAssignmentPolicy", "STRICT", 0.02),
    ("spark.sql.ansi.enabled", "false", 0.06),
    ("spark.sql.caseSensitive", "true", 0.05),
    ("spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled", "false", 0.06),
    ("spark.databricks.delta.merge.optimizeMatchedOnlyMerge.enabled", "false", 0.06),
    ("spark.databricks.delta.merge.repartitionBeforeWrite.enabled", "false", 0.06),
    ("spark.databricks.delta.merge.materializeSource", "none", 0.06),
    ("spark.sql.session.timeZone", "America/New_York", 0.06),
)


def random_merge(seed: int, forced: Collection[str] = ()) -> RandomMerge:
    """Makes the merge of a seed; tables have the features that are named besides their own."""
    table = random_table(Random(f"table {seed // TABLE_SHARED_BY}"), forced)
    random = Random(f"merge {seed}")
    evolution = random.random() < 0.3
    source = _source(random, table, evolution)
    conf = {key: setting for key, setting, share in _CONF if random.random() < share}
    clauses = _clauses(random, table, source, evolution)
    by_words = evolution and random.random() < 0.8
    if evolution and not by_words:
        conf["spark.databricks.delta.schema.autoMerge.enabled"] = "true"
    plan = list(PLANS)[seed % len(PLANS)]
    return RandomMerge(seed, table, source, _on(random, table, source), clauses, by_words, conf, plan)


# The table


def random_table(random: Random, forced: Collection[str] = ()) -> RandomTable:
    """Makes a table; the features that are named are on."""
    columns = [Column("id", scalar(random, KEYS))]
    columns += [Column(name, kind(random)) for name in random.sample(NAMES, random.randint(1, 4))]
    if random.random() < 0.25:
        columns.append(Column("s", struct(random, 2)))
    partition_by: list[str] = []
    if random.random() < 0.3:
        for name in random.sample(("p", "q"), random.choice((1, 1, 2))):
            columns.append(Column(name, scalar(random, PARTITIONS)))
            partition_by.append(name)
    random.shuffle(columns)
    if all(c.name in partition_by for c in columns):
        partition_by = []
    shares = {feature: 1.0 if feature.name in forced else feature.share for feature in FEATURES}
    wanted = [feature.properties for feature, share in shares.items() if random.random() < share]
    # A property has one value: that of the last feature that sets it.
    properties = list(dict(pair for pairs in wanted for pair in pairs).items())
    columns, more = _options(random, columns, partition_by)
    if random.random() < GENERATED:
        columns.append(_generated(random, columns))
    if random.random() < IDENTITY:
        columns.insert(random.randint(0, len(columns)), _identity(random))
    clustered_by: tuple[str, ...] = ()
    if random.random() < CLUSTERED and not partition_by and _has_all_statistics(properties):
        fitting = [c.name for c in columns if isinstance(c.kind, Scalar) and c.kind.sql in CLUSTERING]
        clustered_by = tuple(random.sample(fitting, min(len(fitting), random.choice((1, 2)))))
    table = RandomTable(
        tuple(columns),
        (),
        tuple(partition_by),
        tuple(properties + more),
        clustered_by=clustered_by,
        made_by=random.choice(("deltamerge", "delta-spark")),
    )
    writes = tuple(_rows(random, table.written, random.randint(1, 4)) for _ in range(random.choice((0, 1, 2, 3, 3))))
    table = replace(table, writes=writes, deleted=_deleted(random, table))
    return _with_constraint(random, table)


def _deleted(random: Random, table: RandomTable) -> str | None:
    """Chooses rows to delete, so that the merge meets files with deletion vectors."""
    properties = dict(table.properties)
    if "delta.enableDeletionVectors" not in properties or "delta.appendOnly" in properties:
        return None
    key = next(c for c in table.columns if c.name == "id").kind
    ways = (f"id <=> {value(random, key)}", f"id >= {value(random, key, nulls=0)}", "id IS NULL")
    return random.choice(ways) if random.random() < 0.6 else None


def _generated(random: Random, columns: Sequence[Column]) -> Column:
    """Makes a generated column of a column that is there."""
    kinds = {c.name: c.kind.sql for c in columns if isinstance(c.kind, Scalar)}
    ways = [(STRING, "CAST(id AS STRING)"), (BOOLEAN, "id IS NULL")]
    for name, sql in kinds.items():
        if sql in ("TINYINT", "SMALLINT", "INT"):
            ways.append((BIGINT, f"CAST({quote(name)} AS BIGINT) * 2"))
        if sql in ("DATE", "TIMESTAMP"):
            ways.append((INT, f"year({quote(name)})"))
        if sql == "TIMESTAMP":
            ways.append((DATE, f"CAST({quote(name)} AS DATE)"))
        if sql == "STRING":
            ways.append((STRING, f"upper(substring({quote(name)}, 1, 1))"))
    made, expression = random.choice(ways)
    return Column("g", made, f"GENERATED ALWAYS AS ({expression})")


def _identity(random: Random) -> Column:
    when = random.choice(("ALWAYS", "ALWAYS", "BY DEFAULT"))
    numbers = random.choice(("", " (START WITH 10 INCREMENT BY 5)", " (START WITH -3 INCREMENT BY -1)"))
    return Column("i", BIGINT, f"GENERATED {when} AS IDENTITY{numbers}")


def _has_all_statistics(properties: Sequence[tuple[str, str]]) -> bool:
    return "delta.dataSkippingNumIndexedCols" not in dict(properties)


def _options(
    random: Random, columns: list[Column], partition_by: Sequence[str]
) -> tuple[list[Column], list[tuple[str, str]]]:
    properties = []
    made = []
    for column in columns:
        drawn = random.random()
        if drawn < 0.06 and column.name not in partition_by:
            # An empty string in a partition is NULL: where that may not be, delta-spark makes tables it cannot read.
            made.append(replace(column, options="NOT NULL"))
        elif drawn < 0.13 and column.is_scalar and column.name not in partition_by:
            made.append(replace(column, options=f"DEFAULT {value(random, column.kind, nulls=0)}"))
            properties = [("delta.feature.allowColumnDefaults", "supported")]
        elif drawn < 0.16:
            made.append(replace(column, options="COMMENT 'what it is'"))
        else:
            made.append(column)
    return made, properties


def _with_constraint(random: Random, table: RandomTable) -> RandomTable:
    numbers = [c for c in table.written if isinstance(c.kind, Scalar) and c.kind.sql in NUMBERS]
    if not numbers or random.random() > 0.12:
        return table
    column = random.choice(numbers)
    place = table.written.index(column)
    condition = random.choice((f"`{column.name}` > -100", f"`{column.name}` < 100 OR `{column.name}` IS NULL"))
    high = {"127", "70000", "300", "32767", "9000000000", "9223372036854775807L", "2147483647", "99999"}
    fitting = tuple(
        tuple(
            row
            for row in rows
            if row[place] != "NULL"
            and row[place] not in high
            and "E" not in row[place]
            and "NaN" not in row[place]
            and "999" not in row[place]
            and "Inf" not in row[place]
            and "1234" not in row[place]
        )
        for rows in table.writes
    )
    return replace(
        table,
        writes=tuple(rows for rows in fitting if rows),
        constraints=(("small", condition),),
        constraint_columns=(column.name,),
    )


def _rows(random: Random, columns: Sequence[Column], count: int) -> tuple[Row, ...]:
    return tuple(
        tuple(value(random, c.kind, nulls=0.0 if "NOT NULL" in c.options else 0.12) for c in columns)
        for _ in range(count)
    )


# The source


def _source(random: Random, table: RandomTable, evolution: bool) -> RandomSource:
    columns = [Column(c.name, c.kind, "") for c in table.columns]
    strange = 0.5 if evolution else 0.12
    made: list[Column] = []
    for column in columns:
        drawn = random.random()
        if drawn < strange * 0.2 and column.name != "id":
            continue
        if column.name in ("g", "i") and drawn < 0.7:
            continue
        drawn_kind = _similar(random, column.kind, evolution) if drawn < strange * 0.5 else column.kind
        name = column.name.swapcase() if random.random() < 0.05 else column.name
        made.append(replace(column, kind=drawn_kind, name=name))
    made.extend(Column(name, kind(random)) for name in NEW_NAMES if random.random() < (0.3 if evolution else 0.1))
    if random.random() < 0.4:
        random.shuffle(made)
    rows = list(_rows(random, made, random.choice((0, 1, 3, 4, 6, 8))))
    place = next(i for i, c in enumerate(made) if c.name.lower() == "id")
    if random.random() < 0.85:
        # Duplicates are legal in few merges, so most sources have none.
        once = {row[place]: row for row in rows if row[place] != "NULL"}
        rows = [*once.values(), *[row for row in rows if row[place] == "NULL"]]
    written_as = random.choices((None, "parquet", "delta"), (0.92, 0.05, 0.03))[0]
    return RandomSource(tuple(made), tuple(rows), written_as)


def _similar(random: Random, wanted: Kind, evolution: bool) -> Kind:
    """Gives a type that may be assigned to another."""
    if isinstance(wanted, Struct):
        fields = [
            Field(f.name, _similar(random, f.kind, evolution) if random.random() < 0.2 else f.kind)
            for f in wanted.fields
        ]
        drawn = random.random()
        if drawn < 0.35:
            random.shuffle(fields)
        if drawn < 0.6 and evolution:
            fields.insert(random.randint(0, len(fields)), Field("z", scalar(random, ("INT", "STRING"))))
        if 0.3 < drawn < 0.75 and len(fields) > 1:
            fields.pop(random.randrange(len(fields)))
        if drawn > 0.95:
            fields[0] = replace(fields[0], name=fields[0].name.swapcase())
        return Struct(tuple(fields))
    if isinstance(wanted, Array):
        return Array(_similar(random, wanted.element, evolution))
    if isinstance(wanted, Scalar):
        for family in (NUMBERS, TEXTS, ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")):
            if wanted.sql in family and random.random() < 0.85:
                return scalar(random, family)
        return scalar(random)
    return wanted


# The statement


def _on(random: Random, table: RandomTable, source: RandomSource) -> tuple[Expr, ...]:
    key = next(c.name for c in source.columns if c.name.lower() == "id")
    both: frozenset[tuple[Side, str]] = frozenset({("t", "id"), ("s", key)})
    drawn = random.random()
    if drawn < 0.75:
        parts = [Expr(f"t.id = s.`{key}`", both)]
    elif drawn < 0.9:
        parts = [Expr(f"t.id <=> s.`{key}`", both)]
    elif drawn < 0.93:
        parts = [Expr(f"s.`{key}` = t.id AND (t.id IS NOT NULL OR true)", both)]
    elif drawn < 0.96:
        parts = [Expr(f"(t.id = s.`{key}` OR t.id IS NULL)", both)]
    else:
        parts = [Expr(random.choice(("false", "true", f"t.id < s.`{key}`")), both)]
    for name in table.partition_by:
        if any(c.name == name for c in source.columns) and random.random() < 0.4:
            parts.append(Expr(f"t.`{name}` = s.`{name}`", frozenset({("t", name), ("s", name)})))
    if random.random() < 0.15:
        side = random.choice((visible("t", table.columns), visible("s", source.columns)))
        parts.append(Expressions(random, side).condition(1))
    return tuple(parts)


def _clauses(random: Random, table: RandomTable, source: RandomSource, evolution: bool) -> tuple[Clause, ...]:
    target_side, source_side = visible("t", table.columns), visible("s", source.columns)
    matched = Expressions(random, [*source_side, *source_side, *target_side])
    inserting = Expressions(random, source_side)
    by_source = Expressions(random, target_side)
    counts = random.choices(
        (
            (1, 1, 0),
            (2, 1, 0),
            (1, 0, 0),
            (2, 0, 0),
            (0, 1, 0),
            (0, 2, 0),
            (1, 1, 1),
            (0, 0, 1),
            (0, 1, 1),
            (2, 2, 2),
            (1, 0, 1),
            (0, 0, 2),
        ),
        (30, 12, 8, 6, 8, 4, 12, 4, 4, 6, 3, 3),
    )[0]
    clauses: list[Clause] = []
    for index in range(counts[0]):
        action = random.choices(("update", "update_all", "delete"), (45, 35, 20))[0]
        clauses.append(_clause(random, "matched", action, matched, table, source, index == counts[0] - 1, evolution))
    for index in range(counts[1]):
        action = random.choices(("insert", "insert_all"), (45, 55))[0]
        clauses.append(
            _clause(random, "not_matched", action, inserting, table, source, index == counts[1] - 1, evolution)
        )
    for index in range(counts[2]):
        action = random.choice(("update", "delete"))
        last = index == counts[2] - 1
        clauses.append(_clause(random, "not_matched_by_source", action, by_source, table, source, last, False))
    return tuple(clauses)


def _clause(
    random: Random,
    when: str,
    action: str,
    scope: Expressions,
    table: RandomTable,
    source: RandomSource,
    last: bool,
    evolution: bool,
) -> Clause:
    condition = None if last and random.random() < 0.55 else scope.condition()
    return Clause(when, action, condition, _assignments(random, action, scope, table, source, evolution))


def _assignments(
    random: Random, action: str, scope: Expressions, table: RandomTable, source: RandomSource, evolution: bool
) -> tuple[tuple[tuple[str, ...], Expr], ...]:
    if action not in ("update", "insert"):
        return ()
    names = {c.name.lower() for c in table.columns}
    new = [c for c in source.columns if c.name.lower() not in names]
    columns = [c for c in table.columns if random.random() < (0.85 if action == "insert" else 0.45)]
    if "id" not in [c.name for c in columns] and action == "insert":
        columns += [c for c in table.columns if c.name == "id"]
    # Values for identity columns are errors, but where a column by default is inserted.
    columns = [c for c in columns if not c.is_identity or random.random() < _given(c, action)]
    columns = columns or [random.choice(table.written)]
    if random.random() < 0.3:
        random.shuffle(columns)
    made: list[tuple[tuple[str, ...], Expr]] = []
    for column in columns:
        if action == "update" and isinstance(column.kind, Struct) and random.random() < 0.5:
            made += [((column.name, *path), v) for path, v in _fields(random, column.kind, scope)]
        else:
            made.append((_spelled(random, column.name), _of_same_name(random, column, scope)))
    if evolution and new and random.random() < 0.5:
        column = random.choice(new)
        made.append(((column.name,), _of_same_name(random, column, scope)))
    return tuple(made)


def _given(column: Column, action: str) -> float:
    """Gives the share of clauses that may give an identity column a value and do."""
    return 0.5 if action == "insert" and "BY DEFAULT" in column.options else 0.06


def _spelled(random: Random, name: str) -> tuple[str, ...]:
    return (name.upper(),) if random.random() < 0.02 else (name,)


def _of_same_name(random: Random, column: Column, scope: Expressions) -> Expr:
    named = [v for v in scope.seen if v.column.lower() == column.name.lower() and v.side == "s" and "`." not in v.text]
    return random.choice(named).expr() if named and random.random() < 0.55 else scope.value(column.kind)


def _fields(random: Random, kind: Struct, scope: Expressions) -> list[tuple[tuple[str, ...], Expr]]:
    made: list[tuple[tuple[str, ...], Expr]] = []
    for field in random.sample(kind.fields, random.randint(1, len(kind.fields))):
        if isinstance(field.kind, Struct) and random.random() < 0.5:
            made += [((field.name, *path), v) for path, v in _fields(random, field.kind, scope)]
        else:
            made.append(((field.name,), scope.value(field.kind)))
    return made
