"""A data file that is damaged: the error is ours and names the file, and the table is as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import DeltaError, DeltaTableException
from merge.tables import EXECUTOR, VECTORS, actions, files_below, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "no magic": lambda content: content[:-4] + b"XXXX",
    "long footer": lambda content: content[:-8] + b"\xff\xff\xff\x7f" + content[-4:],
}


@pytest.mark.parametrize("executor", ["key_lookup", "low_shuffle", "classic"])
@pytest.mark.parametrize("properties", [VECTORS, {}], ids=["vectors", "plain"])
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
