"""Columns of a frame that names below it qualify, as those of ``a.alias("a").join(b.alias("b"), …)``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from deltamerge.spark import columns as F
from deltamerge.spark.session import is_connect
from deltamerge.sql.merge_ast import NameParts
from deltamerge.sql.names import parse_table_name, quote_name
from deltamerge.sql.relations import folded
from deltamerge.sql.tokens import name_end, tokenize

# Leaves of Connect's plans.
_WITHOUT_NAMES = frozenset(
    {"CachedLocalRelation", "ChunkedCachedLocalRelation", "DataSource", "LocalRelation", "Range"}
)


@dataclass(frozen=True)
class QualifiedColumn:
    """A column of a frame.

    Args:
        qualifier: What may stand before its name, or the last parts of it; no parts for nothing.
        place: Which of the frame's columns it is.
    """

    qualifier: NameParts
    name: str
    place: int


def qualified_columns(frame: DataFrame) -> tuple[QualifiedColumn, ...]:
    """Return the columns of a frame; over Connect those that have a qualifier and whose name no other one has."""
    return tuple(_of_connect(frame) if is_connect(frame.sparkSession) else _of_plan(frame))


def qualifiers_of(frame: DataFrame, columns: Iterable[QualifiedColumn]) -> frozenset[NameParts] | None:
    """Return what may qualify columns of a frame, in lower case: what some of its columns have.

    Over Connect also what a node above hides; None where a query of SQL in the plan may have others.
    """
    if not is_connect(frame.sparkSession):
        return frozenset(folded(column.qualifier) for column in columns if column.qualifier)
    connect: Any = frame
    names = list(_names_below(connect._plan))
    return None if None in names else frozenset(folded(name) for name in names if name is not None)


def _of_plan(frame: DataFrame) -> Iterator[QualifiedColumn]:
    jvm: Any = frame.sparkSession.sparkContext._jvm
    output: Any = frame._jdf.queryExecution().analyzed().output()
    # One call for all of them: named_struct('id', a.id, …)
    tokens = tokenize(jvm.org.apache.spark.sql.catalyst.expressions.CreateStruct.apply(output).sql())
    start, place = 4, 0
    while start < len(tokens):
        end = name_end(tokens, start)
        *qualifier, name = (token.name for token in tokens[start:end:2])
        yield QualifiedColumn(tuple(qualifier), name, place)
        # A comma, the next one's name as a string, and a comma.
        start, place = end + 3, place + 1


def _of_connect(frame: DataFrame) -> Iterator[QualifiedColumn]:
    connect: Any = frame
    names = folded(frame.schema.names)
    known = dict.fromkeys(name for name in _names_below(connect._plan) if name is not None)
    qualifiers = [each for each in known if each[-1].lower() not in names]
    found = [(qualifier, name) for qualifier in qualifiers for name in _named_by(frame, qualifier)]
    # A join USING columns hides one side's: there a name is of both.
    times = Counter(name.lower() for _, name in found)
    for qualifier, name in found:
        if times[name.lower()] == names.count(name.lower()) == 1:
            yield QualifiedColumn(qualifier, name, names.index(name.lower()))


def _named_by(frame: DataFrame, qualifier: NameParts) -> Sequence[str]:
    try:
        return frame.select(f"{quote_name(qualifier)}.*").schema.names
    except AnalysisException:
        # A node above has other columns, of which Spark knows and the client does not.
        return ()


def _names_below(plan: Any) -> Iterator[NameParts | None]:  # noqa: ANN401
    """Yield the names of frames and tables in a plan; None for what does not show them, such as a query of SQL."""
    # A join has its left side by two names, and several nodes may have one below.
    pending, seen = [plan], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        kind = type(node).__name__
        children = [child for child in (getattr(node, name, None) for name in ("right", "left", "_child")) if child]
        if kind == "SubqueryAlias":
            yield (str(node._alias),)
        elif kind == "Read":
            yield parse_table_name(node.table_name)
        elif children:
            pending += children
        elif kind not in _WITHOUT_NAMES:
            yield None


def with_copies(frame: DataFrame, names: Mapping[int, str]) -> DataFrame:
    """Return a frame of classic Spark with some columns once more, under other names, by their places."""
    jvm: Any = frame.sparkSession.sparkContext._jvm
    output: Any = frame._jdf.queryExecution().analyzed().output()
    to_column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    made = type(F.lit(1))
    return frame.select("*", *(made(to_column(output.apply(place))).alias(name) for place, name in names.items()))
