"""Expressions that fail the job which computes them, and say which row is at fault.

Spark passes on nothing but a message. What happened stands in it as JSON between two marks, from which the driver words
the user's error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pyspark.sql import Column

from deltamerge.spark import columns as F

_BEGIN, _END = "deltamerge-row-error:", ":end-of-row-error"


def row_error(kind: str, known: Mapping[str, str], of_row: Mapping[str, Column]) -> Column:
    """Return what fails the job that computes it, of type VOID, which can be cast to every other.

    Args:
        kind: The name by which `row_error_in` finds it.
        known: What is known beforehand.
        of_row: Strings that the row gives, such as values as JSON; NULL becomes ''.
    """
    columns = [F.coalesce(value, F.lit("")).alias(name) for name, value in of_row.items()]
    values = F.to_json(F.struct(*columns)) if columns else F.lit("{}")
    return F.raise_error(F.concat(F.lit(f"{_BEGIN}{kind}:{json.dumps(dict(known))}\n"), values, F.lit(_END)))


def row_error_in(message: str, kind: str) -> dict[str, str] | None:
    """Return what `row_error` was given, read from a failed job's message; None where the job failed otherwise."""
    marked = rf"{_BEGIN}{kind}:(\{{.*?\}})\n(\{{.*?\}}){_END}"
    found = re.search(marked, message, re.DOTALL)
    if found is None:
        return None
    known, of_row = map(json.loads, found.groups())
    return {**known, **of_row}
