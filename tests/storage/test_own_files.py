"""Files that a link shows of another folder are no files of a table: nobody deletes them with it."""

from __future__ import annotations

from pathlib import Path

from deltamerge.storage.local_store import LocalStore
from deltamerge.storage.store import own_files


def test_a_link_to_a_folder_elsewhere(tmp_path: Path) -> None:
    elsewhere, table = tmp_path / "elsewhere" / "deep", tmp_path / "t"
    for folder in (elsewhere, table / "part=1"):
        folder.mkdir(parents=True)
        (folder / "x.parquet").write_bytes(b"1")
    (table / "out").symlink_to(tmp_path / "elsewhere")
    (table / "in").symlink_to(table / "part=1")
    store = LocalStore(str(table))
    assert {file.path for file in store.list()} == {"in/x.parquet", "out/deep/x.parquet", "part=1/x.parquet"}
    assert {file.path for file in own_files(store)} == {"in/x.parquet", "part=1/x.parquet"}


def test_a_table_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.parquet").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert [file.path for file in own_files(LocalStore(str(tmp_path / "link")))] == ["x.parquet"]
