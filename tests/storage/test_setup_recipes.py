"""The settings in docs/recipes.md are those that the code reads, or the page says that only Spark does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deltamerge.storage.hadoop_options import keys_of_store

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (.*)\n((?:(?!^###).*\n)+)", PAGE, re.MULTILINE))
AUTHORITY = {"s3a": "bucket", "abfss": "container@account.dfs.core.windows.net", "gs": "bucket"}
ONLY_SPARK = {
    "fs.azure.account.auth.type",
    "fs.azure.account.auth.type.account.dfs.core.windows.net",
    "fs.azure.account.oauth.provider.type",
    "fs.gs.auth.type",
    "fs.gs.impl",
}


@pytest.mark.parametrize(
    ("section", "scheme"),
    [("S3", "s3a"), ("Azure", "abfss"), ("Google Cloud Storage", "gs"), ("EMR", "s3a"), ("Glue", "s3a")],
)
def test_settings_are_read(section: str, scheme: str) -> None:
    blocks = "".join(re.findall(r"```ini\n(.*?)```", SECTIONS[section], re.DOTALL)).replace("<account>", "account")
    settings = set(re.findall(r"spark\.hadoop\.(fs\.[\w.]+)", blocks))
    assert settings
    assert settings <= {*keys_of_store(scheme, AUTHORITY[scheme]), *ONLY_SPARK}
