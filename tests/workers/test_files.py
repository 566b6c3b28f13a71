"""Which files are opened as a table's are."""

from __future__ import annotations

import pytest

from deltamerge.workers.files import Files


@pytest.mark.parametrize(
    ("url", "is_reached"),
    [
        ("abfss://lake@dev.dfs.core.windows.net/a.parquet", True),
        ("abfss://other@dev.dfs.core.windows.net/a.parquet", True),
        ("abfss://lake@prod.dfs.core.windows.net/a.parquet", False),
        ("az://lake/a.parquet", True),
    ],
)
def test_files_of_another_azure_account_are_not_reached(url: str, is_reached: bool) -> None:
    assert Files("az", {"account_name": "dev"}).reaches(url) is is_reached


@pytest.mark.parametrize(("url", "is_reached"), [("hdfs://one:8020/a", True), ("hdfs://two:8020/a", False)])
def test_files_of_another_name_node_are_not_reached(url: str, is_reached: bool) -> None:
    assert Files("hdfs", {"url": "hdfs://one:8020"}).reaches(url) is is_reached
