"""The names that VACUUM keeps, and how it rounds the retention."""

from __future__ import annotations

import pytest

from deltamerge.commands.vacuum import names_below, whole_hours


@pytest.mark.parametrize(
    ("root", "path", "name"),
    [
        ("/t", "p=1//a.parquet", "p=1/a.parquet"),
        ("/t", "./p=1/./a.parquet", "p=1/a.parquet"),
        ("/t", "/t//p=1/a.parquet", "p=1/a.parquet"),
        ("/t", "p=a:/a.parquet", "p=a:/a.parquet"),
        ("/t", "a:/a.parquet", "a:/a.parquet"),
        ("s3://b/t", "s3a://b/t/a.parquet", "a.parquet"),
        ("s3a://b/t", "s3n://b//t/./a.parquet", "a.parquet"),
        ("s3a://b", "s3://b/a.parquet", "a.parquet"),
        ("s3a://b/t", "/t/a.parquet", "a.parquet"),
        ("abfss://c@n.dfs.core.windows.net/t", "abfs://c@n.dfs.core.windows.net/t/a.parquet", "a.parquet"),
        ("abfss://c@n.dfs.core.windows.net/t", "wasbs://c@n.blob.core.windows.net/t/a.parquet", "a.parquet"),
    ],
)
def test_kept_names(root: str, path: str, name: str) -> None:
    """However the log spells a live file, its name in a listing is kept."""
    assert name in set(names_below(root, [path]))


def test_other_places() -> None:
    """Files of the same name elsewhere keep nothing."""
    paths = ["s3://other/t/a.parquet", "s3://b/t2/a.parquet", "/u/t/a.parquet"]
    assert "a.parquet" not in set(names_below("s3://b/t", paths))


def test_whole_hours() -> None:
    hours = (0, 0.1, 0.5, 1.5, 2.5, 168, -0.1, -0.5, -2)
    assert [whole_hours(hour) for hour in hours] == [0, 1, 1, 2, 3, 168, -1, -1, -2]
