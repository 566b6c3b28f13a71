"""Every Python snippet of the README and the docs runs, from top to bottom of its page.

A snippet that needs what no test has is preceded by a line ``<!-- not run: why -->``. What a page takes for granted
stands in `GIVEN`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge import write_delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPET = re.compile(r"(<!-- not run: [^\n]+ -->\n)?^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def snippets_of(page: Path) -> Iterator[tuple[int, str]]:
    """Gives the snippets that run, each with its line."""
    text = page.read_text(encoding="utf-8")
    for found in SNIPPET.finditer(text):
        if found.group(1) is None:
            yield text.count("\n", 0, found.start(2)) + 1, found.group(2)


def customers(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """The tables that the README and the page for delta-spark's users take for granted."""
    person = "SELECT 1 AS id, 'NO' AS country, 'Ada' AS name, named_struct('city', 'Oslo') AS address"
    kept = spark.sql(
        f"{person}, TIMESTAMP'2024-01-01 00:00:00' AS changed_at, true AS active, current_date() AS created_at"
    )
    write_delta(kept, str(folder / "data" / "customers"), partition_by="country")
    updates = spark.sql(
        "SELECT 1 AS id, 'NO' AS country, 'Ada' AS name, 'Moss' AS city, current_timestamp() AS changed_at, "
        "false AS deleted"
    )
    staging = kept.selectExpr("*", "current_date() AS day", "false AS deleted", "2.5D AS price")
    staging.createOrReplaceTempView("staging")
    return {"updates": updates}


def nothing(spark: SparkSession, folder: Path) -> dict[str, Any]:
    return {}


GIVEN: dict[str, Callable[[SparkSession, Path], dict[str, Any]]] = {
    "README.md": customers,
    "from-delta-spark.md": customers,
}


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if any(snippets_of(page))], ids=lambda page: page.stem)
def test_snippets_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    names |= GIVEN.get(page.name, nothing)(spark, tmp_path)
    for line, snippet in snippets_of(page):
        # Spark's own relative paths are those of the JVM.
        here = re.sub('(?<=["`])/data/', f"{tmp_path}/data/", snippet).replace('"./', f'"{tmp_path}/')
        source = "\n" * (line - 1) + here
        with redirect_stdout(StringIO()):
            exec(compile(source, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            broken.append(link)
    assert not broken, f"{page}: {broken}"


def anchors_of(page: Path) -> set[str]:
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
