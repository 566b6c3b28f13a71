"""The keys that ON equates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.types import ByteType, DataType, DecimalType, IntegerType, LongType, ShortType

from deltamerge.merge.analysis.resolved_merge import ResolvedMerge, type_at
from deltamerge.scan.file_types import is_exact
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark import columns as F
from deltamerge.sql.conditions import ConditionShape, EquiKey

# Equal values of these types, and of decimals, are equal for Arrow and for Spark alike.
PLAIN_KEY_TYPES = frozenset(
    {"tinyint", "smallint", "int", "bigint", "string", "date", "boolean", "binary", "timestamp", "timestamp_ntz"}
)
INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_MOST_DIGITS = 38


@dataclass(frozen=True)
class JoinKey:
    """A conjunct of ON that equates a target column with an expression over the source."""

    key: EquiKey
    given: DataType
    wanted: DataType


@dataclass(frozen=True)
class JoinKeys:
    """What ON requires of a source row.

    Args:
        say_all: Whether ON requires nothing else, so that rows with the same keys match the same rows.
    """

    keys: tuple[JoinKey, ...]
    say_all: bool


@dataclass(frozen=True)
class PlainKeys:
    """Keys that are columns of the target, or fields, which Arrow compares as Spark does with values of source rows.

    Args:
        source: For each the position of the source's column that it equals; None where Spark computes it of the row.
        compared: For each the type in which both sides are compared.
    """

    keys: tuple[JoinKey, ...] = ()
    source: tuple[int | None, ...] = ()
    compared: tuple[DataType, ...] = ()

    @property
    def target(self) -> tuple[tuple[str, ...], ...]:
        """Their paths: a column's name, then names of struct fields."""
        return tuple(key.key.target.path for key in self.keys)

    @property
    def are_computed(self) -> bool:
        return None in self.source


@dataclass(frozen=True)
class NoPlainKeys:
    """Why ON has no plain keys.

    Args:
        is_cast: Whether it is that Spark casts one side of a comparison.
    """

    reason: str
    is_cast: bool = False


def plain_keys(merge: ResolvedMerge, on: ConditionShape, types: Mapping[str, DataType]) -> PlainKeys | NoPlainKeys:
    """Return the keys by which Arrow finds the matches, or what in ON is against that.

    Args:
        types: As from `types_of_expressions`.
    """
    if not on.equi_keys:
        return NoPlainKeys("ON equates no column of the target with one of the source")
    sources, compared, keys = [], [], []
    for key in on.equi_keys:
        given = types.get(key.source_sql) if key.source_path is None else type_at(merge.source_schema, key.source_path)
        name, column = ".".join(key.target.path), merge.target_schema[key.target.path[0]]
        wanted = type_at(merge.target_schema, key.target.path)
        if given is None or (key.source_path is None and _guards(on)):
            return NoPlainKeys(
                f"ON compares {name} with an expression, which may fail for source rows that ON rules out"
            )
        if CHAR_VARCHAR_TYPE in (column.metadata or {}):
            return NoPlainKeys(f"the key {name} is {column.metadata[CHAR_VARCHAR_TYPE]}, which Spark may pad")
        if len(key.target.path) > 1 and not is_exact(column.dataType):
            return NoPlainKeys(f"ON compares a field of {column.name}, which has fields without a type in Arrow")
        kind = _compared_as(name, wanted, given)
        if isinstance(kind, NoPlainKeys):
            return kind
        compared.append(kind)
        path = key.source_path or ()
        sources.append(merge.source_schema.names.index(path[0]) if len(path) == 1 else None)
        keys.append(JoinKey(key, given, wanted))
    found = PlainKeys(tuple(keys), tuple(sources), tuple(compared))
    if len(set(found.target)) < len(keys):
        return NoPlainKeys("ON equates a column of the target twice")
    return found


def _compared_as(name: str, data_type: DataType, given: DataType) -> DataType | NoPlainKeys:
    """Return the type in which Arrow compares a column with values of the source as Spark does."""
    wanted, of_source = data_type.simpleString(), given.simpleString()
    common = _common_type(data_type, given)
    if common is not None:
        return common
    if wanted == of_source:
        return NoPlainKeys(f"the key {name} is of type {wanted}, which Arrow does not compare as Spark does")
    reason = f"the key {name} is {wanted} in the target and {of_source} in the source"
    return NoPlainKeys(reason, is_cast=True)


def _common_type(target: DataType, source: DataType) -> DataType | None:
    """Return the type that Spark casts both sides of a comparison to; None where Arrow would not see the same."""
    if isinstance(target, INTEGERS) and isinstance(source, INTEGERS):
        return max((target, source), key=lambda kind: INTEGERS.index(type(kind)))
    if isinstance(target, DecimalType) and isinstance(source, DecimalType):
        scale = max(target.scale, source.scale)
        digits = max(target.precision - target.scale, source.precision - source.scale) + scale
        return DecimalType(digits, scale) if digits <= _MOST_DIGITS else None
    name = target.simpleString()
    return target if name == source.simpleString() and name in PLAIN_KEY_TYPES else None


def join_keys(merge: ResolvedMerge, on: ConditionShape) -> JoinKeys:
    """Return the keys that ON equates, with their types, in one analysis by Spark."""
    keys = _guarded_keys(merge, on)
    others = sum(conjunct.side != "target_only" for conjunct in on.conjuncts) - len(on.equi_keys)
    if not keys:
        return JoinKeys((), say_all=False)
    given = _types(merge, [key.source_sql for key in keys])
    found = tuple(
        JoinKey(key, data_type, type_at(merge.target_schema, key.target.path))
        for key, data_type in zip(keys, given, strict=True)
    )
    return JoinKeys(found, say_all=not others)


def types_of_expressions(merge: ResolvedMerge, on: ConditionShape) -> dict[str, DataType]:
    """Return by its SQL the type of each key that is no column of the source, in one analysis by Spark."""
    expressions = list(dict.fromkeys(key.source_sql for key in on.equi_keys if key.source_path is None))
    return dict(zip(expressions, _types(merge, expressions), strict=True)) if expressions else {}


def _types(merge: ResolvedMerge, expressions: Sequence[str]) -> list[DataType]:
    columns = [F.expr(sql).alias(f"k{i}") for i, sql in enumerate(expressions)]
    frame = merge.statement.under_source_alias(merge.statement.source)
    return [field.dataType for field in frame.select(*columns).schema.fields]


def _guards(on: ConditionShape) -> list[str]:
    """Return what ON requires of only the source's row."""
    return [conjunct.text for conjunct in on.conjuncts if conjunct.side in ("source_only", "neither")]


def _guarded_keys(merge: ResolvedMerge, on: ConditionShape) -> list[EquiKey]:
    """Return the keys, computed ones only for rows that may match: for others they may fail."""
    if not _guards(on):
        return list(on.equi_keys)
    guard = guard_of(merge, on)
    if guard is None:
        return [key for key in on.equi_keys if key.source_path is not None]
    return [
        key if key.source_path is not None else replace(key, source_sql=f"CASE WHEN {guard} THEN {key.source_sql}\nEND")
        for key in on.equi_keys
    ]


def guard_of(merge: ResolvedMerge, on: ConditionShape) -> str | None:
    """Return what ON requires of only the source's row, as SQL; None where it is nothing, or a Column's."""
    guards = _guards(on)
    # What a Column prints is not what it was made from. SQL may end in a comment.
    is_sql = merge.statement.condition.column is None
    return " AND ".join(f"({guard}\n)" for guard in guards) if guards and is_sql else None


def names_of_keys(keys: Sequence[EquiKey]) -> list[str]:
    """Name the keys as the user knows them: by the source's columns, or by the whole expression."""
    columns = [key.source_sql if key.source_path is None else key.source_path[-1] for key in keys]
    are_distinct = len({name.lower() for name in columns}) == len(columns)
    return columns if are_distinct else [f"{i}: {key.source_sql}" for i, key in enumerate(keys)]
