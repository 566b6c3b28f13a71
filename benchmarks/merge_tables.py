"""Where the tables of a benchmark are: on the local disk, in an S3 server or in HDFS."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from merge_checksum import Checksum, table_checksum
from merge_data import Layout, Source
from merge_engines import lineitem_settings
from object_store import ObjectStore, hadoop_aws, object_store
from storage.hdfs import Hdfs, cluster


class Tables(Protocol):
    """Fresh copies of tables."""

    def settings(self, engine: str) -> dict[str, str | None]:
        """Return what an engine needs to reach them."""

    def fresh(self, engine: str, layout: Layout, source: Source) -> tuple[str, str]:
        """Make a copy of a layout; return it and the source as the engine names them."""

    def checksum(self, layout: Layout) -> Checksum:
        """Sum up the copy."""

    def count(self) -> dict[str, Any]:
        """Return what was requested since the last call."""


@dataclass(frozen=True)
class LocalTables:
    """Copies in a folder.

    Args:
        folder: Where they are.
        deletion_vectors: Whether merges into them may write deletion vectors.
    """

    folder: Path
    deletion_vectors: bool

    def settings(self, engine: str) -> dict[str, str | None]:
        """Return the engine's settings; see `Tables.settings`."""
        return {} if engine == "delta-rs" else lineitem_settings(engine)

    def fresh(self, engine: str, layout: Layout, source: Source) -> tuple[str, str]:
        """Make a copy; see `Tables.fresh`."""
        layout.copy(self.folder, deletion_vectors=self.deletion_vectors)
        rows = next(source.path.glob("*.parquet")) if engine == "delta-rs" else source.path
        return str(self.folder), str(rows)

    def checksum(self, layout: Layout) -> Checksum:
        """Sum up the copy; see `Tables.checksum`."""
        return table_checksum(str(self.folder), layout.files)

    def count(self) -> dict[str, Any]:
        """Return nothing: nobody counts."""
        return {}


@dataclass(frozen=True)
class StoreTables:
    """Copies in an S3 server.

    Args:
        folder: Where a copy is made before it is uploaded.
        jars: With which Spark reads S3.
    """

    store: ObjectStore
    folder: Path
    jars: Path
    deletion_vectors: bool
    _uploaded: set[str] = field(default_factory=set)

    def settings(self, engine: str) -> dict[str, str | None]:
        """Return the engine's settings; see `Tables.settings`."""
        if engine == "delta-rs":
            return {**self.store.options()}
        return {**lineitem_settings(engine), **self.store.spark_settings(self.jars)}

    def fresh(self, engine: str, layout: Layout, source: Source) -> tuple[str, str]:
        """Make a copy; see `Tables.fresh`."""
        rows = f"sources/{layout.name}/{source.path.name}"
        if layout.name not in self._uploaded:
            layout.copy(self.folder, deletion_vectors=self.deletion_vectors)
            self.store.upload(self.folder, f"layouts/{layout.name}")
        if rows not in self._uploaded:
            self.store.upload(source.path, rows)
        self._uploaded.update((layout.name, rows))
        self.store.copy(f"layouts/{layout.name}", "target")
        if engine == "delta-rs":
            file = next(source.path.glob("*.parquet")).name
            return self.store.url("target", "s3"), self.store.url(f"{rows}/{file}", "s3")
        return self.store.url("target"), self.store.url(rows)

    def checksum(self, layout: Layout) -> Checksum:
        """Sum up the copy; see `Tables.checksum`."""
        return self.store.checksum("target", layout.files)

    def count(self) -> dict[str, Any]:
        """Return the requests and bytes since the last call."""
        return self.store.count()


@dataclass(frozen=True)
class HdfsTables:
    """Copies in HDFS.

    Args:
        folder: Where a copy is made before it is uploaded, and where one is downloaded that is to be summed up.
    """

    hdfs: Hdfs
    folder: Path
    deletion_vectors: bool
    _uploaded: set[str] = field(default_factory=set)

    def settings(self, engine: str) -> dict[str, str | None]:
        """Return the engine's settings; see `Tables.settings`."""
        if engine == "delta-rs":
            raise SystemExit("delta-rs does not write into HDFS: --engines delta-spark,deltamerge")
        return lineitem_settings(engine)

    def fresh(self, engine: str, layout: Layout, source: Source) -> tuple[str, str]:  # noqa: ARG002
        """Make a copy; see `Tables.fresh`."""
        layout.copy(self.folder, deletion_vectors=self.deletion_vectors)
        self.hdfs.upload(self.folder, "/target")
        rows = f"/{layout.name}-{source.path.name}"
        if rows not in self._uploaded:
            self.hdfs.upload(source.path, rows)
        self._uploaded.add(rows)
        return f"{self.hdfs.url}/target", self.hdfs.url + rows

    def checksum(self, layout: Layout) -> Checksum:
        """Sum up the copy; see `Tables.checksum`."""
        self.hdfs.download("/target", self.folder)
        return table_checksum(str(self.folder), layout.files)

    def count(self) -> dict[str, Any]:
        """Return nothing: nobody counts."""
        return {}


@contextmanager
def tables_in(store: str, folder: Path, *, deletion_vectors: bool) -> Iterator[Tables]:
    """Make the place for copies, and clear it at the end.

    Args:
        store: ``local``, ``s3`` or ``hdfs``.
        folder: For what is on this machine.
        deletion_vectors: Whether merges into them may write deletion vectors.
    """
    target = folder / "target"
    if store == "local":
        yield LocalTables(target, deletion_vectors)
    elif store == "hdfs":
        (folder / "hdfs").mkdir(exist_ok=True)
        with cluster(folder / "hdfs") as hdfs:
            yield HdfsTables(hdfs, target, deletion_vectors)
        shutil.rmtree(folder / "hdfs")
    else:
        with object_store(folder) as running:
            yield StoreTables(running, target, hadoop_aws(folder), deletion_vectors)
    shutil.rmtree(target)
