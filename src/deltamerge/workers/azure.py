"""Azure by PyArrow, whose errors show the URL of a request with the signature of a SAS token."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from deltamerge.workers.signed_urls import errors_without_queries

_SERVICE = re.compile(r"(?:^|(?<=\.))(?:blob|dfs)(?=\.)")


def of_service(domain: str, service: str) -> str:
    """Return the part of an account's host behind its name, with the service ``blob`` or ``dfs`` in it."""
    return _SERVICE.sub(service, domain, count=1)


class AzureSystem:
    """What `files` asks of PyArrow's file system; its errors have no signature.

    Args:
        options: The arguments of PyArrow's file system.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        with errors_without_queries():
            self._system = pafs.AzureFileSystem(**options)

    def open_input_file(self, path: str) -> AzureInput:
        with errors_without_queries():
            return AzureInput(self._system.open_input_file(path))

    def open_output_stream(self, path: str) -> Any:  # noqa: ANN401
        with errors_without_queries():
            return pa.PythonFile(_AzureOutput(self._system.open_output_stream(path)), mode="w")

    def get_file_info(self, asked: Any) -> Any:  # noqa: ANN401
        with errors_without_queries():
            return self._system.get_file_info(asked)

    def delete_file(self, path: str) -> None:
        with errors_without_queries():
            self._system.delete_file(path)


class AzureInput:
    """A file that threads read at once, by ranges."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file

    def read_at(self, length: int, start: int) -> bytes:
        with errors_without_queries():
            return bytes(self._file.read_at(length, start))

    def read_buffer(self) -> pa.Buffer:
        with errors_without_queries():
            return self._file.read_buffer()

    def __enter__(self) -> AzureInput:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _AzureOutput(io.RawIOBase):
    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._stream.tell())

    def write(self, data: Any) -> int:  # noqa: ANN401
        with errors_without_queries():
            self._stream.write(data)
        return memoryview(data).nbytes

    def close(self) -> None:
        if not self.closed:
            super().close()
            with errors_without_queries():
                self._stream.close()
