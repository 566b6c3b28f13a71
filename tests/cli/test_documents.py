"""What the README and the pages beside it say is true where a test can tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge import DeltaTable, exceptions, write_delta
from deltamerge.cli.failures import ExitCode
from deltamerge.merge.plan import PLAN_NAMES
from deltamerge.merge.planning import changed_rows, sources, unchanged_rows
from deltamerge.spark.config import KEYS, PREFIX, AutoCompactConf, CommandConf, MergeConf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("name", KEYS)
def test_every_key_is_explained(name: str) -> None:
    assert f"`{KEYS[name].removeprefix(PREFIX)}`" in CONFIGURATION


def test_the_defaults_are_those_of_the_code() -> None:
    kinds = (MergeConf, CommandConf, AutoCompactConf)
    by_key = {setting.metadata["key"]: setting.default for kind in kinds for setting in fields(kind)}
    rows = re.findall(r"^\| `([\w.]+)` \| `(\w+)` \|", CONFIGURATION, re.MULTILINE)
    assert len(rows) > 10
    for key, default in rows:
        assert str(by_key[PREFIX + key]).lower() == default.lower()


def test_every_exception_is_explained() -> None:
    parents = {"DeltaTableException", "DeltaError"}
    for name in set(exceptions.__all__) - parents:
        assert f"`{name}`" in ERRORS


def test_the_exit_codes() -> None:
    for code in ExitCode:
        assert re.search(rf"\b{code.value} [a-z]", README)


def test_links_lead_somewhere() -> None:
    for page in (
        ROOT / "README.md",
        *(ROOT / "docs" / f"{n}.md" for n in ("configuration", "errors", "plan")),
    ):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists()


def test_every_choice_of_a_plan_is_explained() -> None:
    page = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    operators: tuple[Mapping[str, Sequence[tuple[str, object]]], ...] = (
        sources.OPERATORS,
        changed_rows.OPERATORS,
        unchanged_rows.OPERATORS,
    )
    choices = {name for by_match in operators for tried in by_match.values() for name, _ in tried}
    for choice in choices | set(PLAN_NAMES) | set(PLAN_NAMES.values()):
        assert f"`{choice}`" in page


@pytest.mark.slow
def test_the_plan_of_the_first_example(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    block = BLOCKS[0].replace("spark = SparkSession.builder.getOrCreate()\n", "").partition("report = ")[0]
    exec(block + next(text for text in BLOCKS if ".plan(" in text), {"spark": spark})
    shown = next(text for text in re.findall(r"```text\n(.*?)```", README, re.DOTALL) if "Plan of" in text)
    assert _before_sizes(capsys.readouterr().out) == _before_sizes(shown)


def _before_sizes(page: str) -> list[str]:
    """Return a page's words up to the sizes, which are the machine's, without the numbers of Spark's columns."""
    return re.sub(r"#\d+", "#", page.partition("To read")[0]).replace("│", "").split()


@pytest.mark.slow
def test_the_first_example(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    block = BLOCKS[0].replace("SparkSession.builder.getOrCreate()", "spark")
    exec(block.replace("spark = spark\n", ""), {"spark": spark})
    shown = re.findall(r"```text\n(.*?)```", README, re.DOTALL)[0]
    # The sizes and times are the machine's.
    assert capsys.readouterr().out.splitlines()[:12] == shown.splitlines()[:12]


@pytest.mark.slow
def test_the_other_examples(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "customers")
    columns = "1 AS id, 'NO' AS country, 'a' AS name, struct('x' AS city) AS address, true AS active"
    times = "timestamp'2020-01-01' AS changed_at, timestamp'2020-01-01' AS created_at"
    write_delta(spark.sql(f"SELECT {columns}, {times}"), path)
    updates = f"SELECT {columns}, timestamp'2021-01-01' AS changed_at, now() AS created_at, 'y' AS city"
    frame = spark.sql(f"{updates}, false AS deleted")
    names: dict[str, Any] = {"spark": spark, "updates": frame}
    builder, sql = (block.replace("/data/customers", path) for block in BLOCKS[1:3])
    exec(builder, names)
    row = DeltaTable.forPath(spark, path).toDF().collect()[0]
    assert (row.name, row.address.city, row.created_at.year) == ("a", "y", 2020)
    frame.selectExpr("*", "current_date() AS day").createOrReplaceTempView("staging")
    exec(sql, names)
    assert names["report"].version == 2
