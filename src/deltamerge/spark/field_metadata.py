"""What of the metadata of a table's fields its frames have, and a new table made of such a frame keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from pyspark.sql.types import StructField

from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE

MetadataOf: TypeAlias = Callable[[StructField], dict[str, Any]]
"""Returns what a field in a type has of the metadata of a table's field."""

# Ids and names in files, expressions of generated columns and identities, types before, the place of a table.
_OF_ONE_TABLE = ("delta.", "deltamerge.", "parquet.")
# A default, and the value of a column in files from before it was added.
_DEFAULTS = frozenset({"CURRENT_DEFAULT", "EXISTS_DEFAULT"})


def frame_metadata(field: StructField) -> dict[str, Any]:
    """Return a field's metadata without what has a meaning only in its own table: the comment and the users' own keys.

    The length of CHAR and VARCHAR stays, by which Spark pads strings that CHAR is compared with; other keys of Spark
    begin with ``__``, too. A column that kept ``__metadata_col``, which the fields of ``_metadata`` have, would be
    hidden in a new table.
    """
    return {key: value for key, value in field.metadata.items() if key == CHAR_VARCHAR_TYPE or not _is_internal(key)}


def all_metadata(field: StructField) -> dict[str, Any]:
    return field.metadata


def no_metadata(_: StructField) -> dict[str, Any]:
    return {}


def _is_internal(key: str) -> bool:
    return key in _DEFAULTS or key.startswith(("__", *_OF_ONE_TABLE))
