"""Values as JSON that loses nothing of them."""

from __future__ import annotations

from pyspark.sql import Column

from deltamerge.spark import columns as F

# By default Spark writes times to milliseconds, in the session's time zone.
_EXACT = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def exact_json(row: Column) -> Column:
    """Return a struct as JSON, of which no two different structs have the same, in any session."""
    return F.to_json(row, _EXACT)
