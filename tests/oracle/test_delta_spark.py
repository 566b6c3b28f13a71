"""delta-spark reads what deltamerge wrote, and merges over it to the same rows; and the other way round."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from combinations import ALL
from corpus.cases import Case, load_cases
from corpus.deltamerge_engine import Deltamerge
from corpus.expected_failures import reason
from corpus.outcome import Outcome, differences, outcome_from_dict
from corpus.runner import run_case, table_folder

from .client import LineProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oracle

CASES = {case.name: case for case in load_cases()}
# One of each kind of table, clause and change.
MERGED_TWICE = (
    "basic/upsert",
    "basic/null-safe-equality",
    "clauses/complex-on-with-all",
    "star/update-insert-star",
    "insert_only/several-clauses",
    "by_source/update-and-delete",
    "duplicates/unconditional-delete",
    "cdf/all-three",
    "cdf/nested-columns",
    "partitions/special-characters",
    "partitions/partition-order-differs",
    "partitions/update-partition-column",
    "names/reserved-words",
    "names/path-with-odd-characters-partitioned",
    "source_kinds/self-merge",
    "structs/by-name-star",
    "timestamps_and_types/timestamps-as-keys",
    "timestamps_and_types/variant",
    "column_mapping/id-mode-upsert",
    "column_mapping/field-comments",
    "type_widening/struct-field",
    "type_widening/int-to-double",
    "type_widening/decimal-grows",
    "generated_identity_default/generated-star-evolution",
    "generated_identity_default/generated-several-clauses",
    "generated_identity_default/identity-by-default-explicit",
    "generated_identity_default/default-omitted",
)
# These tables need statements that deltamerge does not have.
MADE_BY_DELTA_SPARK = tuple(case.name for case in CASES.values() if case.target.get("setup_sql"))


def parameters(names: tuple[str, ...]) -> list[object]:
    def marks(name: str) -> list[pytest.MarkDecorator]:
        missing = reason(name)
        return [pytest.mark.xfail(reason=missing, strict=True)] if missing else []

    return [pytest.param(CASES[n], id=n.replace("/", "-"), marks=marks(n)) for n in names]


def again(oracle: LineProcess, case: Case, folder: Path) -> Outcome:
    values = dict(case.values)
    return outcome_from_dict(oracle.ask("case", topic=case.topic, values=values, folder=str(folder)))


def comparable(outcome: Outcome) -> Outcome:
    """Leaves out what differs between engines by right: wording, times, sizes."""
    counted = {k: v for k, v in outcome.metrics.items() if k.startswith("numTargetRows") or k == "numSourceRows"}
    counted.pop("numTargetRowsCopied", None)
    return replace(outcome, message="", metrics=counted, reported_metrics=None, parameters={})


@pytest.mark.parametrize("case", parameters(MERGED_TWICE if ALL else MERGED_TWICE[::2]))
def test_merge_over_a_merge(case: Case, oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    engine = Deltamerge(tmp_path / "made")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    engine.make_table(spark, case.target, table_folder(case, str(ours)))
    first = run_case(engine, spark, case, str(ours))
    assert not differences(case, first)
    read = oracle.ask("read", path=table_folder(case, str(ours)))
    assert tuple(read["rows"]) == first.rows
    assert read["schema"] == first.schema
    shutil.copytree(table_folder(case, str(ours)), table_folder(case, str(theirs)))
    shutil.rmtree(ours / "source-delta", ignore_errors=True)
    assert comparable(run_case(engine, spark, case, str(ours))) == comparable(again(oracle, case, theirs))


@pytest.mark.parametrize("case", parameters(MADE_BY_DELTA_SPARK))
def test_merge_into_a_table_of_delta_spark(
    case: Case, oracle: LineProcess, spark: SparkSession, tmp_path: Path
) -> None:
    oracle.ask("make_table", target=dict(case.target), path=table_folder(case, str(tmp_path)))
    found = differences(case, run_case(Deltamerge(tmp_path / "made"), spark, case, str(tmp_path)))
    assert not found, "\n".join(found)
