"""Which files PyArrow can write again."""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from deltamerge.log.actions import AddFile
from deltamerge.storage.store import open_store
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.write.patching import patchable


class Keys(pe.KmsClient):  # type: ignore[misc]
    """Keeps keys as they are."""

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped_key)


def test_files_with_encrypted_columns(tmp_path: Path) -> None:
    """Their footer is legible, but PyArrow ends the process where it is asked for an encrypted column's metadata."""
    rows = pa.table({"id": [1, 2], "secret": ["a", "b"]})
    configuration = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["secret"]}, plaintext_footer=True)
    properties = pe.CryptoFactory(lambda _: Keys()).file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    pq.write_table(rows, tmp_path / "encrypted.parquet", encryption_properties=properties)
    pq.write_table(rows, tmp_path / "plain.parquet")
    files = [AddFile(name, {}, 0, 0, True) for name in ("encrypted.parquet", "plain.parquet")]
    assert patchable(open_store(str(tmp_path)), LOCAL_FILES, files) == {"plain.parquet"}
