"""Every script and notebook of examples/ runs to its end; what it shows it also asserts.

Most run in the tests' own session; a script, one over Spark Connect and a notebook run as users start them.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from nbformat import NotebookNode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
IN_PROCESSES_OF_THEIR_OWN = ("upsert", "spark_connect", "upsert_and_plan")


def alone(paths: list[Path], *, of_their_own: bool) -> list[Path]:
    return [path for path in paths if (path.stem in IN_PROCESSES_OF_THEIR_OWN) == of_their_own]


def environment() -> dict[str, str]:
    """The process's own, without what a running Spark has left in it."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1",
    }


@pytest.fixture
def lasting(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The session, which an example gets from its builder and does not end; a folder to write into."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("example", alone(EXAMPLES, of_their_own=False), ids=lambda path: path.stem)
def test_example(lasting: None, capsys: pytest.CaptureFixture[str], example: Path) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("notebook", alone(NOTEBOOKS, of_their_own=False), ids=lambda path: path.stem)
def test_notebook(lasting: None, notebook: Path) -> None:
    made: Any = InteractiveShell
    shell = made()
    shown: set[str] = set()
    for cell in cells_of(notebook):
        if cell.cell_type == "code":
            result = shell.run_cell(cell.source)
            result.raise_error()
            shown |= set(shell.display_formatter.format(result.result)[0])
    assert "text/html" in shown


@pytest.mark.slow
@pytest.mark.parametrize("example", alone(EXAMPLES, of_their_own=True), ids=lambda path: path.stem)
def test_example_in_a_process_of_its_own(example: Path, tmp_path: Path) -> None:
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
@pytest.mark.parametrize("notebook", alone(NOTEBOOKS, of_their_own=True), ids=lambda path: path.stem)
def test_notebook_with_its_kernel(notebook: Path, tmp_path: Path) -> None:
    cells = nbformat.read(notebook, as_version=4)
    client = NotebookClient(cells, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env={**environment(), "TMPDIR": str(tmp_path)})
    assert any("text/html" in output.get("data", {}) for cell in cells.cells for output in cell.get("outputs", []))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_no_outputs(notebook: Path) -> None:
    assert not [cell for cell in cells_of(notebook) if cell.get("outputs") or cell.get("execution_count")]


def cells_of(notebook: Path) -> list[NotebookNode]:
    cells: list[NotebookNode] = nbformat.read(notebook, as_version=4).cells
    return cells
