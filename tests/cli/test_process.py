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
    """Spark's start says nothing that is not asked for, and the session ends with the command."""
    table = make_table(tmp_path / "t")
    source = make_source(tmp_path / "s.parquet", [3, 4])
    command = [sys.executable, "-m", "deltamerge.cli", "merge", "--target", table, "--source", source]
    done = subprocess.run(
        [*map(str, command), "--sql", UPSERT],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "2 rows changed" in done.stdout
    assert [line.split("s  ")[-1] for line in done.stderr.splitlines()][:2] == [
        "starting Spark",
        "loading the table's log",
    ]
    assert rows_of(table)[4] == "new 4"
