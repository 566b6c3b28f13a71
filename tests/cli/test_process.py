"""The command as a process, with a Spark of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .tables import UPSERT, make_source, make_table, rows_of


@pytest.mark.slow
def test_a_process_of_its_own(tmp_path: Path) -> None:
    """Spark's start says nothing that is not asked for, and the session ends with the command.

    That nobody reads the report, as behind ``| head``, is no error of a merge that is done.
    """
    table = make_table(tmp_path / "t")
    source = make_source(tmp_path / "s.parquet", [3, 4])
    command = [sys.executable, "-m", "deltamerge.cli", "merge", "--target", table, "--source", source]
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [*map(str, command), "--sql", UPSERT],
        stdout=writes,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "the report was not printed: [Errno 32] Broken pipe" in done.stderr
    assert [line.split("s  ")[-1] for line in done.stderr.splitlines()][:2] == [
        "starting Spark",
        "loading the table's log",
    ]
    assert rows_of(table)[4] == "new 4"
