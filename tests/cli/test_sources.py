from __future__ import annotations

from pathlib import Path

import pytest

from deltamerge.cli.failures import CommandError
from deltamerge.cli.session import read_settings
from deltamerge.cli.sources import NamedPlace, read_source, read_target

from .tables import make_table


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("x.parquet", NamedPlace("source", "parquet", "x.parquet")),
        ("a b/x.CSV", NamedPlace("source", "csv", "a b/x.CSV")),
        ("x.csv.gz", NamedPlace("source", "csv", "x.csv.gz")),
        ("x.jsonl", NamedPlace("source", "json", "x.jsonl")),
        ("delta:/data/t", NamedPlace("source", "delta", "/data/t")),
        ("parquet:/data/folder", NamedPlace("source", "parquet", "/data/folder")),
        ("s3://bucket/x.parquet", NamedPlace("source", "parquet", "s3://bucket/x.parquet")),
        ("changes=x.parquet", NamedPlace("changes", "parquet", "x.parquet")),
        ("changes=delta:s3://b/t", NamedPlace("changes", "delta", "s3://b/t")),
    ],
)
def test_sources(text: str, place: NamedPlace) -> None:
    assert read_source(text) == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/data/t", NamedPlace("target", "delta", "/data/t")),
        ("t=/data/t", NamedPlace("t", "delta", "/data/t")),
        ("delta:/data/t", NamedPlace("target", "delta", "/data/t")),
        ("/data/p=1/t", NamedPlace("target", "delta", "/data/p=1/t")),
    ],
)
def test_targets(text: str, place: NamedPlace) -> None:
    assert read_target(text) == place


def test_a_folder_with_an_equals_sign_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_table(tmp_path / "month=10")
    assert read_target("month=10") == NamedPlace("target", "delta", "month=10")
    assert read_source("month=10") == NamedPlace("source", "delta", "month=10")


def test_a_delta_table_is_one_by_its_log_not_by_its_name(tmp_path: Path) -> None:
    path = str(tmp_path / "orders.parquet")
    make_table(tmp_path / "orders.parquet")
    assert read_source(path) == NamedPlace("source", "delta", path)
    assert read_source(f"parquet:{path}") == NamedPlace("source", "parquet", path)


def test_an_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="what kind of file"):
        read_source(str(tmp_path / "x"))


def test_settings() -> None:
    assert read_settings("--conf", ["a.b=c=d", " e =f"]) == {"a.b": "c=d", "e": "f"}
    with pytest.raises(CommandError, match="KEY=VALUE"):
        read_settings("--conf", ["a.b"])
