"""The rows of a data file without statistics, by its footer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import footer_rows
from deltamerge.storage.store import open_store
from write.foreign_files import write_encrypted, write_optional_keys


def rows_of(path: Path) -> int:
    return footer_rows(open_store(str(path.parent)), AddFile(path.name, {}, 0, 0, True))


def test_footers_of_all_sizes(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for columns in (1, 2_000):
        pq.write_table(pa.table({f"c{number}": [1, 2, 3] for number in range(columns)}), path)
        assert rows_of(path) == 3
    assert pq.read_metadata(path).serialized_size > 64 << 10
    write_encrypted(path, plaintext_footer=True)
    assert rows_of(path) == 2


def test_a_file_that_pyarrow_does_not_open(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_optional_keys(path, [(1, {"a": 1}), (2, {"b": 1})])
    with pytest.raises(pa.ArrowInvalid, match="Map keys must be annotated as required"):
        pq.ParquetFile(path)
    assert rows_of(path) == 2


def test_footers_that_are_not_legible(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_encrypted(path, plaintext_footer=False)
    with pytest.raises(DeltaTableException, match=f"CANNOT_READ_FILE_FOOTER.*{path} is encrypted"):
        rows_of(path)
    for content in (
        b"",
        b"PAR1",
        b"no Parquet",
        b"PAR1\x09\x00\x00\x00PAR1",
        b"PAR1" + bytes(20) + b"PAR1",
    ):
        path.write_bytes(content)
        with pytest.raises(DeltaTableException, match=f"CANNOT_READ_FILE_FOOTER.*{path} cannot be read: "):
            rows_of(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        rows_of(path)
