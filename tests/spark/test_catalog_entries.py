"""What Spark shows of a table, which has texts of users in it."""

from __future__ import annotations

import pytest
from pyspark.sql import Row

from deltamerge.spark.catalog import _entry as entry

SHOWN = """Catalog: spark_catalog
Database: db
Table: orders
Type: {type}
Provider: delta
Comment: of orders
Table: see wiki
Provider: ACME
Location: Berlin
Schema: the star
Table Properties: [note=a
Table: b]
{location}
"""


@pytest.mark.parametrize("kind", ["EXTERNAL", "VIEW"])
def test_texts_that_look_like_details(kind: str) -> None:
    location = "" if kind == "VIEW" else "Location: file:/data/orders"
    information = SHOWN.format(type=kind, location=location)
    found = entry(Row(tableName="orders", information=information, isTemporary=False))
    assert (found.details["Table"], found.details["Type"], found.provider) == ("orders", kind, "delta")
    assert found.location == (None if kind == "VIEW" else "file:/data/orders")
