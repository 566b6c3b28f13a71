from __future__ import annotations

from pyroaring import BitMap64

from deltamerge.log.actions import AddFile
from deltamerge.log.features.deletion_vectors import read_deletion_vectors
from deltamerge.storage.store import open_store
from deltamerge.write.deletion_vectors import write_deletion_vectors
from storage.forwarding import Forwarding, listening


def test_a_file_that_is_written_and_reported_as_failed() -> None:
    """The store's client sends it again, and finds the one that it has sent before."""
    stored: dict[str, bytes] = {}
    answers: list[int] = []

    class Handler(Forwarding):
        def forward(self) -> None:
            content = self.body()
            if self.command == "PUT":
                is_there, is_first = self.path in stored, not answers
                answers.append(412 if is_there and "If-None-Match" in self.headers else 500 if is_first else 200)
                stored[self.path] = content
                self.answer(answers[-1], b"", {})
            else:
                found = stored[self.path]
                first, end = map(
                    int, self.headers.get("Range", f"bytes=0-{len(found) - 1}")[len("bytes=") :].split("-")
                )
                self.answer(206, found[first : end + 1], {"Content-Range": f"bytes {first}-{end}/{len(found)}"})

        def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response_only(status)
            known = {"ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
            for name, value in {**known, **headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    with listening(Handler) as port:
        options = {"endpoint": f"http://127.0.0.1:{port}", "allow_http": "true", "region": "us-east-1"}
        store = open_store("s3://b/t", {**options, "access_key_id": "k", "secret_access_key": "s"})
        file = AddFile("a.parquet", {}, 1, 1, data_change=True, stats='{"numRecords":9}')
        changes = write_deletion_vectors(store, "v", {"a": BitMap64([2, 5])}, {"a": file})
        assert answers == [500, 200]
        vector = changes.kept[0].deletion_vector
        assert vector is not None
        assert [*read_deletion_vectors(store, [vector]).values()] == [BitMap64([2, 5])]
