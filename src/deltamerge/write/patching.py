"""Files of a table written again without some of their rows, by PyArrow inside Spark's tasks.

The rows that stay are neither decoded into Spark's rows nor shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from deltamerge.log.actions import AddFile
from deltamerge.log.paths import decode_path
from deltamerge.scan.paths import located
from deltamerge.spark.own_python import map_in_arrow
from deltamerge.storage.store import Store, in_parallel
from deltamerge.workers import parquet_patch
from deltamerge.workers.file_systems import is_of_machine
from deltamerge.workers.files import Files
from deltamerge.workers.first_contact import StoreNotOpened
from deltamerge.workers.parquet_patch import FileForm
from deltamerge.workers.row_blocks import block_columns
from deltamerge.workers.vector_blocks import blocks_of
from deltamerge.write.data_files import WriteTarget, WrittenFiles, files_of_tasks
from deltamerge.write.layout import partition_folders

_FOLDER = "patched"


@dataclass(frozen=True)
class Patch:
    """A file to be written again, and the positions to leave out."""

    file: AddFile
    deleted: BitMap64


def patchable(store: Store, opened_by: Files, files: Sequence[AddFile]) -> frozenset[str]:
    """Return the paths in the log of the files that PyArrow can write again exactly as they are."""

    def reason(file: AddFile) -> str | None:
        path = located(store, decode_path(file.path))
        try:
            with opened_by.parquet(path) as opened:
                # PyArrow ends the process where it is asked for the metadata of an encrypted column.
                if opened_by.footer_bytes(path) > opened.metadata.serialized_size:
                    return "its footer is signed, as in files with encrypted columns"
                return parquet_patch.reason_not_to_patch(opened)
        except (OSError, pa.ArrowException) as error:
            if is_of_machine(error) or isinstance(error, (FileNotFoundError, StoreNotOpened)):
                raise
            return f"PyArrow cannot open it: {error}"

    reasons = in_parallel(reason, files)
    return frozenset(file.path for file, reason in zip(files, reasons, strict=True) if reason is None)


def patch_files(
    spark: SparkSession, opened_by: Files, patches: Sequence[Patch], target: WriteTarget, form: FileForm
) -> WrittenFiles:
    """Write `patchable` files again without some of their rows, in one job.

    The new files are in the target's folder, by partition.
    """
    paths = _new_paths(patches, target)
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        target.store.make_folder(folder)
    columns = {
        "source": [located(target.store, decode_path(patch.file.path)) for patch in patches],
        "target": [located(target.store, path) for path in paths],
        "row_id": pa.array([patch.file.base_row_id for patch in patches], pa.int64()),
        "row_commit_version": pa.array([patch.file.default_row_commit_version for patch in patches], pa.int64()),
        **block_columns(blocks_of(patch.deleted) for patch in patches),
    }
    frame = spark.createDataFrame(pa.table(columns))
    done = map_in_arrow(frame, parquet_patch.patching(opened_by, form), parquet_patch.PATCH_SCHEMA).collect()
    return files_of_tasks(target, [row.asDict() for row in done])


def _new_paths(patches: Sequence[Patch], target: WriteTarget) -> list[str]:
    columns, root = target.physical_partition_columns, f"{target.folder}/{_FOLDER}"
    folders = (partition_folders(columns, patch.file.partition_values) for patch in patches)
    return [f"{root}/{folder}kept-{number:05d}.parquet" for number, folder in enumerate(folders)]
