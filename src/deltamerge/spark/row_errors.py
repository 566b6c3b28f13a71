"""Expressions that fail the job which computes them, and say which row is at fault.

Spark passes on nothing but a message. What happened stands in it as JSON after a mark, from which the driver words the
user's error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column

from deltamerge.spark import columns as F

_MARK = "deltamerge-row-error:"


def row_error(kind: str, known: Mapping[str, str], of_row: Mapping[str, Column]) -> Column:
    """Return what fails the job that computes it, of type VOID, which can be cast to every other.

    Args:
        kind: The name by which `row_error_in` finds it.
        of_row: Strings that the row gives, such as values as JSON; NULL becomes ''.
    """
    columns = [F.coalesce(value, F.lit("")).alias(name) for name, value in of_row.items()]
    values = F.to_json(F.struct(*columns)) if columns else F.lit("{}")
    return F.raise_error(F.concat(F.lit(f"{_MARK}{kind}:{json.dumps(dict(known))}"), values))


def row_error_in(message: str, kind: str) -> dict[str, str] | None:
    """Return what `row_error` was given, read from a failed job's message; None where the job failed otherwise."""
    decoder = json.JSONDecoder()
    for after in message.split(f"{_MARK}{kind}:")[1:]:
        known, end = decoder.raw_decode(after)
        # Where Spark shows the expression that failed, no row's values follow.
        if after[end : end + 1] == "{":
            of_row, _ = decoder.raw_decode(after, end)
            return {**known, **of_row}
    return None
