"""Values in the place of a statement's parameters: ``:name`` and ``?``."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.sql.caret import Span
from deltamerge.sql.relations import replace_references
from deltamerge.sql.tokens import Kind, Token, tokenize


def bind_parameters(sql: str, args: Mapping[str, Any] | Sequence[Any], to_sql: Callable[[object], str]) -> str:
    tokens = tokenize(sql)
    replaced: dict[Span, str] = {}
    place = 0
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if token.text == "?" and not isinstance(args, Mapping):
            if place >= len(args):
                raise _unbound(f"_{place}")
            replaced[token.span] = to_sql(args[place])
            place += 1
        elif (
            token.text == ":"
            and isinstance(args, Mapping)
            and following is not None
            and following.kind is Kind.WORD
            and following.span.start == token.span.end
            and (index == 0 or tokens[index - 1].span.end != token.span.start or _may_precede(tokens[index - 1]))
        ):
            if following.text not in args:
                raise _unbound(following.text)
            replaced[Span(token.span.start, following.span.end)] = to_sql(args[following.text])
    return replace_references(sql, replaced)


def _may_precede(token: Token) -> bool:
    """Return whether a parameter may be right behind a token: behind a value a colon begins a path in a VARIANT."""
    return token.kind is Kind.SYMBOL and token.text not in (")", "]")


def literal(value: object) -> str:
    """Return a value as a literal of Spark's SQL."""
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if isinstance(value, (list, tuple)):
        return f"array({', '.join(map(literal, value))})"
    if isinstance(value, (Real, Decimal)):
        number = _number(value)
        # After a minus a second one would begin a comment.
        return f"({number})" if number.startswith("-") else number
    if isinstance(value, str):
        # Whether Spark takes a backslash for one depends on a setting, and `${name}` in SQL is a setting's value.
        is_plain = not ("'" in value or "\\" in value or "${" in value)
        return f"'{value}'" if is_plain else f"CAST(X'{value.encode().hex()}' AS STRING)"
    if isinstance(value, (bytes, bytearray)):
        return f"X'{value.hex()}'"
    if isinstance(value, dt.datetime):
        # Without a time zone it is in Python's local one, as in PySpark.
        return f"TIMESTAMP'{value.astimezone(dt.timezone.utc).isoformat(' ')}'"
    if isinstance(value, dt.date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, dt.timedelta):
        return _interval(value)
    if isinstance(value, dt.time):
        return f"TIME'{value.isoformat()}'"
    raise DeltaAnalysisException(
        "UNSUPPORTED_FEATURE.LITERAL_TYPE",
        f"A parameter's value is a string, a number, a time, a list of these, or a Column of literals such as "
        f"F.create_map(F.lit('a'), F.lit(1)). Found {value!r} of type {type(value).__name__}.",
        parameters={"value": str(value), "type": type(value).__name__},
    )


def _interval(value: dt.timedelta) -> str:
    sign, value = ("-", -value) if value < dt.timedelta() else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    time = dt.time(minutes // 60, minutes % 60, seconds, value.microseconds)
    return f"INTERVAL '{sign}{value.days} {time.isoformat()}' DAY TO SECOND"


def _number(value: Real | Decimal) -> str:
    """Return a number's literal; NumPy's are subclasses of Python's, and print otherwise."""
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, Integral):
        return f"{int(value)}L" if abs(int(value)) >= 2**31 else str(int(value))
    return f"{float(value)!r}D" if math.isfinite(value) else f"DOUBLE('{float(value)}')"


def _unbound(name: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "UNBOUND_SQL_PARAMETER",
        f"Found the unbound parameter: {name}. Please, fix `args` and provide a mapping of the parameter to a literal.",
        parameters={"name": name},
    )
