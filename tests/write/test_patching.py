"""Which files PyArrow can write again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.log.actions import AddFile
from deltamerge.storage.store import open_store
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.write.patching import patchable
from write.foreign_files import write_encrypted, write_optional_keys


def test_files_with_encrypted_columns(tmp_path: Path) -> None:
    """Their footer is legible, but PyArrow ends the process where it is asked for an encrypted column's metadata."""
    write_encrypted(tmp_path / "encrypted.parquet", plaintext_footer=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "plain.parquet")
    files = [AddFile(name, {}, 0, 0, True) for name in ("encrypted.parquet", "plain.parquet")]
    assert patchable(open_store(str(tmp_path)), LOCAL_FILES, files) == {"plain.parquet"}


def test_files_that_pyarrow_does_not_open(tmp_path: Path) -> None:
    """Spark copies them; one that is missing is an error."""
    write_encrypted(tmp_path / "encrypted.parquet", plaintext_footer=False)
    write_optional_keys(tmp_path / "keys.parquet", [(1, {"a": 1})])
    store = open_store(str(tmp_path))
    files = [AddFile(name, {}, 0, 0, True) for name in ("encrypted.parquet", "keys.parquet")]
    assert patchable(store, LOCAL_FILES, files) == frozenset()
    with pytest.raises(FileNotFoundError):
        patchable(store, LOCAL_FILES, [AddFile("missing.parquet", {}, 0, 0, True)])
