"""Each cell of the round-trip matrix is what docs/compatibility.md says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from corpus.deltamerge_engine import is_ci
from oracle.client import start_oracle
from oracle.environment import build, find
from oracle.random_merges.settings import SMALL

from .known import KNOWN, Known
from .matrix import CELLS, NOT_MADE, Cell, Matrix, verdict
from .page import PAGE, page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def matrix(_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    environment = find() or (build() if is_ci() else None)
    if environment is None:
        pytest.skip("no delta-spark: python tests/oracle/environment.py builds its environment")
    with start_oracle(environment, SMALL) as process:
        yield Matrix(_session, process, tmp_path_factory.mktemp("round_trip"))


@pytest.mark.oracle
@pytest.mark.matrix
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_cell(matrix: Matrix, cell: Cell) -> None:
    wrong = matrix.verdict(cell)
    assert wrong is None, wrong


@pytest.mark.oracle
@pytest.mark.matrix
@pytest.mark.parametrize(("feature", "engine"), NOT_MADE)
def test_who_does_not_make_a_table(matrix: Matrix, feature: str, engine: str) -> None:
    assert not matrix.makes(feature, engine), "makes it now: name it among the makers"


def test_the_page_says_what_is_known() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make matrix writes it"


def test_only_cells_are_known() -> None:
    assert {Cell(*key) for key in KNOWN} <= set(CELLS)


def test_a_cell_that_is_not_as_known_is_told() -> None:
    known = Known("no variants", "refuses: variantType")
    assert verdict(None, None) is None
    assert verdict(known, ValueError("it has no variants")) is None
    assert verdict(None, ValueError("it")) == "ValueError: it"
    assert "take it out" in (verdict(known, None) or "")
    assert "failed otherwise" in (verdict(known, ValueError("it")) or "")
