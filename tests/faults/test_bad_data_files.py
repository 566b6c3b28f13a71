"""A data file that is damaged: the error is ours and names the file, and the table is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from combinations import combinations, some
from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import DeltaError, DeltaTableException
from merge.tables import EXECUTOR, VECTORS, actions, files_below, frame, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXECUTORS = ["key_lookup", "low_shuffle", "classic"]
CHECKSUMS = "parquet.page.verify-checksum.enabled"

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "no magic": lambda content: content[:-4] + b"XXXX",
    "long footer": lambda content: content[:-8] + b"\xff\xff\xff\x7f" + content[-4:],
}


@pytest.mark.parametrize(("executor", "properties"), combinations(EXECUTORS, [VECTORS, {}]))
def test_damaged(spark: SparkSession, tmp_path: Path, executor: str, properties: dict[str, str]) -> None:
    spark.conf.set(EXECUTOR, executor)
    path = str(tmp_path / "t")
    write_delta(
        frame(spark, "id INT, v STRING", [(i, "x") for i in range(100)]).coalesce(1), path, properties=properties
    )
    (add,) = actions(path, 0, "add")
    file = Path(path, add["path"])
    content, checksum = file.read_bytes(), file.with_name(f".{file.name}.crc")
    checksum.unlink(missing_ok=True)
    file.write_bytes(b"")
    with pytest.raises(DeltaTableException, match=file.name):
        DeltaTable.forPath(spark, path).toDF().count()
    source = frame(spark, "id INT, v STRING", [(1, "new"), (200, "new")]).alias("s")
    problems = []
    for name, damage in DAMAGES.items():
        file.write_bytes(damage(content))
        before = files_below(path)
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
        try:
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
            problems.append(f"{name}: no error")
        except DeltaError as error:
            if file.name not in str(error):
                problems.append(f"{name}: the file is not named: {error!s:.300}")
        except Exception as error:
            problems.append(f"{name}: {type(error)}: {error!s:.300}")
        if files_below(path) != before:
            problems.append(f"{name}: {sorted(files_below(path) ^ before)}")
    assert not problems, "\n".join(problems)


ROWS = [(i, f"value {i * 7919}", i * 3) for i in range(2_000)]
SCHEMA = "id INT, v STRING, n BIGINT"
CODEC = "spark.sql.parquet.compression.codec"


@pytest.fixture
def plain(spark: SparkSession) -> Iterator[SparkSession]:
    """Pages without compression: whatever their bytes are, they are values."""
    spark.conf.set(CODEC, "uncompressed")
    yield spark
    spark.conf.unset(CODEC)


def upsert(spark: SparkSession, path: str, source: DataFrame | None = None) -> None:
    given = frame(spark, SCHEMA, [(1, "new", 1), (9_999, "new", 2)]) if source is None else source
    merge = DeltaTable.forPath(spark, path).alias("t").merge(given.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()


def only_file(path: str, version: int = 0) -> Path:
    (add,) = actions(path, version, "add")
    return Path(path, add["path"])


def replace_bytes(file: Path, content: bytes) -> None:
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(content)


def flipped_in(file: Path, column: int) -> bytes:
    """Returns a file's bytes with one bit of a column's values changed."""
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(column)
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    content, at = file.read_bytes(), first + chunk.total_compressed_size // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def refused(problems: list[str], what: str, name: str, path: str, do: Callable[[], object]) -> None:
    """Does something that must fail with an error that names a file, and leave the table's folder as it was."""
    before = files_below(path)
    try:
        done = do()
        problems.append(f"{what}: no error, but {done!s:.100}")
    except Exception as error:
        if name not in str(error) or (what.startswith("merge") and not isinstance(error, DeltaError)):
            problems.append(f"{what}: {type(error)}: {error!s:.500}")
    if files_below(path) != before:
        problems.append(f"{what}: {sorted(files_below(path) ^ before)}")


@pytest.mark.parametrize("kind", some(["patched", "vectors", "plain"]))
def test_flipped_bits_in_pages(plain: SparkSession, tmp_path: Path, kind: str) -> None:
    """Both Spark's pages and those that PyArrow writes have checksums, and both readers check them."""
    path, version = str(tmp_path / "t"), 0
    write_delta(frame(plain, SCHEMA, ROWS).coalesce(1), path, properties=VECTORS if kind == "vectors" else {})
    if kind == "patched":
        plain.conf.set(EXECUTOR, "key_lookup")
        source = frame(plain, SCHEMA, [(5, "", 0)]).alias("s")
        DeltaTable.forPath(plain, path).alias("t").merge(source, "t.id = s.id").whenMatchedDelete().run()
        version = 1
        assert "parquet-cpp" in pq.ParquetFile(only_file(path, version)).metadata.created_by
    file = only_file(path, version)
    content = file.read_bytes()
    problems: list[str] = []
    for column in (0, 2):
        replace_bytes(file, flipped_in(file, column))
        refused(problems, f"read {column}", file.name, path, lambda: rows(DeltaTable.forPath(plain, path).toDF()))
        # With deletion vectors an upsert of all columns reads only the key's.
        for executor in EXECUTORS if kind != "vectors" or column == 0 else ():
            plain.conf.set(EXECUTOR, executor)
            refused(problems, f"merge {column} {executor}", file.name, path, lambda: upsert(plain, path))
        replace_bytes(file, content)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_files_of_other_tables(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    """A file with the same columns and other rows is found by its size, one of other columns also by these."""
    path, other = str(tmp_path / "t"), str(tmp_path / "o")
    write_delta(frame(spark, SCHEMA, ROWS).coalesce(1), path)
    write_delta(frame(spark, SCHEMA, ROWS[:-7]).coalesce(1), other)
    strange = tmp_path / "strange"
    frame(spark, "a INT", [(1,)]).coalesce(1).write.parquet(str(strange))
    file = only_file(path)
    spark.conf.set(EXECUTOR, executor)
    problems: list[str] = []
    for name, content in {
        "another table": only_file(other).read_bytes(),
        "other columns": next(strange.glob("*.parquet")).read_bytes(),
    }.items():
        replace_bytes(file, content)
        refused(problems, f"merge, {name}", file.name, path, lambda: upsert(spark, path))
        refused(problems, f"read, {name}", file.name, path, lambda: DeltaTable.forPath(spark, path).toDF().count())
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_flipped_bits_in_deletion_vectors(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, SCHEMA, ROWS).coalesce(1), path, properties=VECTORS)
    DeltaTable.forPath(spark, path).delete("id % 7 = 1")
    (vector,) = Path(path).rglob("*.bin")
    content = vector.read_bytes()
    spark.conf.set(EXECUTOR, executor)
    source = frame(spark, SCHEMA, [(2, "new", 1), (9_999, "new", 2)])
    for at in range(0, len(content), max(1, len(content) // 3)):
        vector.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        vector.with_name(f".{vector.name}.crc").unlink(missing_ok=True)
        before = files_below(path)
        try:
            upsert(spark, path, source)
        except DeltaError as error:
            assert vector.name in str(error), at
            assert files_below(path) == before
        else:
            raise AssertionError(f"byte {at}: no error")


def test_checksums_that_are_not_to_be_checked(plain: SparkSession, tmp_path: Path) -> None:
    """A writer may have written wrong ones: by Spark's own setting Spark reads the values all the same."""
    path = str(tmp_path / "t")
    write_delta(frame(plain, SCHEMA, ROWS).coalesce(1), path)
    file = only_file(path)
    replace_bytes(file, flipped_in(file, 2))
    plain.conf.set(CHECKSUMS, "false")
    try:
        assert len(rows(DeltaTable.forPath(plain, path).toDF())) == len(ROWS)
    finally:
        plain.conf.unset(CHECKSUMS)
