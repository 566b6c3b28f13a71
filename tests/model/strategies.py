"""Hypothesis strategies: tables, sources, clauses, properties and executors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from .language import (
    And,
    Case,
    Coalesce,
    Compare,
    Expression,
    IsNull,
    Literal,
    Name,
    Not,
    Or,
    Plus,
    Row,
    literal,
)
from .merge_model import STRUCT_FIELDS, Action, Clause, Merge

STRUCT = "STRUCT<a: INT, b: STRING>"
# Few values each, so that keys meet; the edges are among them.
VALUES: dict[str, tuple[Any, ...]] = {
    "INT": (1, 2, 3, 4, 0, -1),
    "BIGINT": (1, 2, 3, 9_000_000_000, -1),
    "STRING": ("a", "b", "B", "", "ä'€", "1"),
    "DOUBLE": (1.0, 2.5, 0.0, -0.0, float("nan"), float("-inf")),
    "DECIMAL(10,2)": (Decimal("1.00"), Decimal("2.50"), Decimal("-99999999.99"), Decimal("0.00")),
    "DATE": (date(2020, 1, 1), date(2020, 1, 2), date(1899, 12, 31), date(9999, 12, 31)),
    "TIMESTAMP": (
        datetime(2020, 1, 1, tzinfo=timezone.utc),
        datetime(2020, 1, 1, 0, 0, 0, 999, tzinfo=timezone.utc),
        datetime(1890, 3, 1, 1, 2, 3, tzinfo=timezone.utc),
    ),
    "BOOLEAN": (True, False),
}
NUMBERS = ("INT", "BIGINT", "DOUBLE")
KEYS = ("INT", "INT", "STRING", "BIGINT", "DOUBLE", "DECIMAL(10,2)", "DATE", "TIMESTAMP", "BOOLEAN")
# A value of these stands in the log as text. Delta makes an empty string in a partition NULL, so there is none.
PARTITIONS = ("INT", "STRING", "DATE", "BOOLEAN", "BIGINT", "TIMESTAMP", "DECIMAL(10,2)")

# delta-rs, which reads the change data, finds no file in a folder whose name needs escapes.
PLAIN_PARTITIONS = ("INT", "DATE", "BOOLEAN", "BIGINT", "DECIMAL(10,2)")

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
TRACKED = {"delta.enableRowTracking": "true"}
# Properties that tables may have, the more often the oftener they stand here; a new feature of tables is switched on
# here.
PROPERTIES: tuple[dict[str, str], ...] = (
    *[{}] * 3,
    *[FEED] * 3,
    *[{**FEED, "delta.dataSkippingNumIndexedCols": "1"}] * 2,
    *[VECTORS] * 3,
    *[{**VECTORS, **FEED}] * 3,
    MAPPED,
    {**MAPPED, **FEED},
    TRACKED,
    {**TRACKED, "delta.columnMapping.mode": "id"},
    {**VECTORS, **TRACKED},
    {**VECTORS, **FEED, **MAPPED, **TRACKED},
)


@dataclass(frozen=True)
class Example:
    """A merge with its tables.

    Args:
        types: The types of the columns, by name.
        partition_by: The partition columns.
        properties: The table's properties.
        files: The target's rows by write.
        deleted: Which target rows another merge deletes before this one; None for no such merge.
        source: The source's rows.
        merge: The statement.
    """

    types: dict[str, str]
    partition_by: tuple[str, ...]
    properties: dict[str, str]
    files: list[list[Row]]
    deleted: Expression | None
    source: list[Row]
    merge: Merge

    def sql(self, target: str, source: str) -> str:
        """Gives the statement."""
        lines = [f"MERGE INTO {target} AS t", f"USING {source} AS s", f"ON {self.merge.on.sql()}"]
        return "\n".join([*lines, *(clause_sql(clause) for clause in self.merge.clauses)])

    def __repr__(self) -> str:
        rows = [f"  file {i}: {rows}" for i, rows in enumerate(self.files)]
        lines = [f"{self.types} partitioned by {self.partition_by}, {self.properties}", *rows]
        lines += [] if self.deleted is None else [f"  deleted before: {self.deleted.sql()}"]
        return "\n".join(["", *lines, f"  source: {self.source}", self.sql("target", "source")])


def clause_sql(clause: Clause) -> str:
    """Gives a clause as SQL."""
    when = {
        "matched": "MATCHED",
        "not_matched": "NOT MATCHED",
        "not_matched_by_source": "NOT MATCHED BY SOURCE",
    }
    condition = f" AND {clause.condition.sql()}" if clause.condition else ""
    return f"WHEN {when[clause.kind]}{condition} THEN {_action_sql(clause)}"


def _action_sql(clause: Clause) -> str:
    if clause.action in ("delete", "do_nothing"):
        return clause.action.upper().replace("_", " ")
    if clause.assignments is None:
        excepted = f" EXCEPT ({', '.join(clause.excepted)})" if clause.excepted else ""
        return ("UPDATE SET *" if clause.action == "update" else "INSERT *") + excepted
    names = [".".join(path) for path, _ in clause.assignments]
    values = [value.sql() for _, value in clause.assignments]
    if clause.action == "update":
        return "UPDATE SET " + ", ".join(f"{n} = {v}" for n, v in zip(names, values, strict=True))
    return f"INSERT ({', '.join(names)}) VALUES ({', '.join(values)})"


def values(data_type: str) -> st.SearchStrategy[Any]:
    """Draws a value or NULL."""
    if data_type == STRUCT:
        # The order of the fields is the type's: SQL casts structs by position.
        fields = st.builds(lambda a, b: {"a": a, "b": b}, values("INT"), values("STRING"))
        return st.one_of(fields, fields, st.none())
    return st.one_of(*[st.sampled_from(VALUES[data_type])] * 4, st.none())


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """Draws a merge with its tables."""
    types = {"k": draw(st.sampled_from(KEYS)), "v": draw(st.sampled_from(list(VALUES)))}
    if draw(st.booleans()):
        types["n"] = STRUCT
    if draw(st.booleans()):
        types["w"] = draw(st.sampled_from(NUMBERS))
    properties = draw(st.sampled_from(PROPERTIES))
    partition_by: tuple[str, ...] = ()
    if draw(st.integers(0, 3)) == 0:
        plain = "delta.enableChangeDataFeed" in properties
        types["p"] = draw(st.sampled_from(PLAIN_PARTITIONS if plain else PARTITIONS))
        partition_by = ("p",)
    rows = st.fixed_dictionaries({name: _column_values(name, types) for name in types})
    files = draw(st.lists(st.lists(rows, min_size=1, max_size=4), max_size=3))
    # Most often rows go from files that the merge then meets with a vector.
    deleted = draw(_deletion(types)) if "delta.enableDeletionVectors" in properties else None
    source = draw(st.lists(rows, max_size=6))
    if draw(st.integers(0, 4)):
        source = _one_per_key(source)
    clauses = draw(_clauses(types))
    merge = Merge(draw(_on(types)), clauses)
    return Example(types, partition_by, properties, files, deleted, source, merge)


@st.composite
def skipping_examples(draw: st.DrawFn) -> Example:
    """Draws a merge that skips unchanged rows, some of whose source rows are the target's own."""
    drawn = draw(examples())
    known = [row for file in drawn.files for row in file]
    own = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
    source = _one_per_key([*drawn.source, *map(dict, own)])
    return replace(drawn, source=source, merge=replace(drawn.merge, skip_unchanged=True))


@st.composite
def _deletion(draw: st.DrawFn, types: dict[str, str]) -> Expression | None:
    drawn = draw(st.integers(0, 5))
    if drawn == 0:
        return None
    if drawn < 4:
        return Compare("<=>", Name("t", ("k",)), Literal(draw(values(types["k"])), types["k"]))
    return draw(conditions(types, ("t",)))


def _column_values(name: str, types: dict[str, str]) -> st.SearchStrategy[Any]:
    return values(types[name]).filter(_may_be_partition) if name == "p" else values(types[name])


def _may_be_partition(value: Any) -> bool:
    # delta-rs, which makes the tables, writes a partition of -99999999.99 as -99999999.-99.
    return value != "" and not (isinstance(value, Decimal) and value < 0)


def _one_per_key(source: list[Row]) -> list[Row]:
    # By text: 0.0 and -0.0 stay both, and are duplicates to the merge.
    return list({repr(row["k"]): row for row in source}.values())


@st.composite
def _on(draw: st.DrawFn, types: dict[str, str]) -> Expression:
    keys = (Name("t", ("k",)), Name("s", ("k",)))
    on: Expression = Compare(draw(st.sampled_from(("=", "=", "=", "=", "<=>", "<"))), *keys)
    if "p" in types and draw(st.booleans()):
        on = And(on, Compare("=", Name("t", ("p",)), Name("s", ("p",))))
    if draw(st.integers(0, 4)) == 0:
        on = draw(st.sampled_from((And, Or)))(on, draw(conditions(types, ("t", "s"))))
    return on


@st.composite
def _clauses(draw: st.DrawFn, types: dict[str, str]) -> tuple[Clause, ...]:
    kinds = draw(
        st.sampled_from(
            (("matched", "not_matched"),) * 4
            + (
                ("matched",),
                ("not_matched",),
                ("not_matched_by_source",),
                ("not_matched", "not_matched_by_source"),
            )
            + (("matched", "not_matched", "not_matched_by_source"),) * 2
        )
    )
    clauses: list[Clause] = []
    for kind in kinds:
        count = draw(st.sampled_from((1, 1, 2, 3)))
        clauses += [draw(_clause(kind, types, index == count - 1)) for index in range(count)]
    return tuple(clauses)


@st.composite
def _clause(draw: st.DrawFn, kind: Any, types: dict[str, str], last: bool) -> Clause:
    sides = {"matched": ("t", "s"), "not_matched": ("s",), "not_matched_by_source": ("t",)}[kind]
    condition = None if last and draw(st.booleans()) else draw(conditions(types, sides))
    actions = ("insert",) * 6 if kind == "not_matched" else ("update",) * 4 + ("delete",) * 2
    action: Action = draw(st.sampled_from((*actions, "do_nothing")))
    if action in ("delete", "do_nothing"):
        return Clause(kind, action, condition)
    if kind != "not_matched_by_source" and draw(st.booleans()):
        excepted = (
            draw(st.lists(st.sampled_from([n for n in types if n != "p"]), max_size=1)) if draw(st.booleans()) else []
        )
        return Clause(kind, action, condition, None, tuple(excepted))
    # A row without its partition's value lies in the partition of NULL; that is fine.
    names = draw(st.lists(st.sampled_from(list(types)), min_size=1, unique=True))
    assignments: list[tuple[tuple[str, ...], Expression]] = []
    for name in names:
        if types[name] == STRUCT and action == "update" and draw(st.booleans()):
            assignments.extend(
                ((name, part), draw(expressions("INT" if part == "a" else "STRING", types, sides)))
                for part in draw(st.lists(st.sampled_from(STRUCT_FIELDS), min_size=1, unique=True))
            )
        else:
            assignments.append(((name,), draw(expressions(types[name], types, sides))))
    return Clause(kind, action, condition, tuple(assignments))


def _names(data_type: str, types: dict[str, str], sides: tuple[str, ...]) -> list[Expression]:
    found: list[Expression] = []
    for side in sides:
        found += [Name(side, (name,)) for name, kind in types.items() if kind == data_type]
        if STRUCT in types.values() and data_type in ("INT", "STRING"):
            found.append(Name(side, ("n", "a" if data_type == "INT" else "b")))
    return found


@st.composite
def expressions(
    draw: st.DrawFn, data_type: str, types: dict[str, str], sides: tuple[str, ...], depth: int = 1
) -> Expression:
    """Draws an expression of a type."""
    names = _names(data_type, types, sides)
    drawn = draw(st.integers(0, 9))
    if drawn < 5 and names:
        return draw(st.sampled_from(names))
    if drawn < 7 or depth == 0:
        # An empty string would become NULL where a column of partitions takes it.
        known = draw(values(data_type).filter(lambda v: v != ""))
        return Literal(known, data_type)
    below = expressions(data_type, types, sides, depth - 1)
    if drawn == 7 and data_type in NUMBERS:
        return Plus(draw(below), draw(below))
    if drawn == 8:
        return Coalesce(draw(below), draw(below))
    return Case(draw(conditions(types, sides, 0)), draw(below), draw(below))


@st.composite
def conditions(draw: st.DrawFn, types: dict[str, str], sides: tuple[str, ...], depth: int = 2) -> Expression:
    """Draws a condition."""
    drawn = draw(st.integers(0, 11))
    if depth and drawn < 3:
        made = draw(st.sampled_from((And, Or)))
        return made(draw(conditions(types, sides, depth - 1)), draw(conditions(types, sides, depth - 1)))
    if depth and drawn == 3:
        return Not(draw(conditions(types, sides, depth - 1)))
    if drawn == 4:
        return Literal(draw(st.sampled_from((True, False, None))), "BOOLEAN")
    data_type = draw(st.sampled_from(sorted({kind for kind in types.values() if kind != STRUCT})))
    if drawn == 5:
        return IsNull(draw(st.sampled_from(_names(draw(st.sampled_from(sorted(set(types.values())))), types, sides))))
    sign = draw(st.sampled_from(("=", "<", "<=>", "=")))
    left = draw(st.sampled_from(_names(data_type, types, sides)))
    return Compare(sign, left, draw(expressions(data_type, types, sides, 0)))


def rows_query(types: dict[str, str], rows: list[Row]) -> str:
    """Gives the query that makes rows."""
    if not rows:
        return f"SELECT {', '.join(f'CAST(NULL AS {kind}) AS {name}' for name, kind in types.items())} WHERE false"
    lines = ["(" + ", ".join(literal(row[name], kind) for name, kind in types.items()) + ")" for row in rows]
    return f"SELECT * FROM VALUES {', '.join(lines)} AS v({', '.join(types)})"
