"""Every script and notebook of examples/ runs to its end, in a process of its own; what it shows it also asserts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def environment() -> dict[str, str]:
    """The process's own, without what a running Spark has left in it."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1",
    }


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(notebook: Path, tmp_path: Path) -> None:
    cells = nbformat.read(notebook, as_version=4)
    client = NotebookClient(cells, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env={**environment(), "TMPDIR": str(tmp_path)})
    assert any("text/html" in output.get("data", {}) for cell in cells.cells for output in cell.get("outputs", []))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_no_outputs(notebook: Path) -> None:
    cells = nbformat.read(notebook, as_version=4).cells
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
