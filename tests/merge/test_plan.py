"""What a merge would do: the forecast is what the merge then does, and nothing is written for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from deltamerge import DeltaMergeBuilder, DeltaTable, MergePlanReport, merge_sql, plan_sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException, DeltaError

from .tables import EXECUTOR, VECTORS, frame, people

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.sessions

Clauses: TypeAlias = Callable[[DeltaMergeBuilder], DeltaMergeBuilder]
SCHEMA = "id INT, name STRING, age INT"
CHANGES = [(2, "bea", 41), (3, None, 51), (4, "dan", 60), (5, "eve", 70)]


def upsert(merge: DeltaMergeBuilder) -> DeltaMergeBuilder:
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()


KINDS: dict[str, tuple[Clauses, dict[str, str]]] = {
    "upsert": (upsert, {}),
    "conditions": (
        lambda m: (
            m.whenMatchedDelete("s.name IS NULL")
            .whenMatchedUpdate("s.age > t.age", {"age": "s.age"})
            .whenNotMatchedInsertAll("s.age < 65")
        ),
        {},
    ),
    "counter": (
        lambda m: m.whenMatchedUpdate(None, {"age": "t.age + s.age"}).whenNotMatchedInsertAll(),
        {},
    ),
    "insert only": (lambda m: m.whenNotMatchedInsertAll(), {}),
    "delete only": (lambda m: m.whenMatchedDelete(), {}),
    "by source": (
        lambda m: upsert(m).whenNotMatchedBySourceDelete("t.age < 35").whenNotMatchedBySourceDelete(),
        {},
    ),
    "by source update": (lambda m: upsert(m).whenNotMatchedBySourceUpdate(None, {"age": "0"}), {}),
    "do nothing": (lambda m: m.whenMatchedDoNothing("s.id = 2").whenMatchedUpdateAll(), {}),
    "deletion vectors": (upsert, VECTORS),
    "change data": (upsert, {"delta.enableChangeDataFeed": "true"}),
    "row tracking": (upsert, {"delta.enableRowTracking": "true"}),
    "constraint": (upsert, {"delta.constraints.positive": "age > 0"}),
}


def merge_of(
    spark: SparkSession, path: str, clauses: Clauses = upsert, source: DataFrame | None = None
) -> DeltaMergeBuilder:
    rows = frame(spark, SCHEMA, CHANGES) if source is None else source
    return clauses(DeltaTable.forPath(spark, path).alias("t").merge(rows.alias("s"), "t.id = s.id"))


def contents(path: Path) -> dict[str, tuple[int, int]]:
    """Return every file and folder below, with its size and time of change."""
    return {
        str(found.relative_to(path)): (found.stat().st_size, found.stat().st_mtime_ns)
        for found in (path, *path.rglob("*"))
    }


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    everything = [path, *path.rglob("*")]
    modes = {found: found.stat().st_mode for found in everything}
    for found in everything:
        found.chmod(0o555 if found.is_dir() else 0o444)
    try:
        yield
    finally:
        for found, mode in modes.items():
            found.chmod(mode)


@pytest.mark.parametrize("analyze", [False, True])
@pytest.mark.parametrize("kind", ["upsert", "counter", "by source", "deletion vectors", "change data"])
def test_nothing_is_written(spark: SparkSession, tmp_path: Path, kind: str, analyze: bool) -> None:
    clauses, properties = KINDS[kind]
    path = people(spark, tmp_path / "t", properties=properties)
    before = contents(tmp_path)
    with read_only(Path(path)):
        merge_of(spark, path, clauses).plan(analyze)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_the_forecast_is_what_the_merge_then_does(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    clauses, properties = KINDS[kind]
    path = people(spark, tmp_path / "t", properties=properties)
    merge = merge_of(spark, path, clauses)
    planned = merge.plan(analyze=True)
    report = merge.run()
    forecast = planned.forecast
    assert forecast is not None
    assert forecast.failure is None
    assert [c.rows for c in forecast.clauses] == [c.rows for c in report.clauses]
    assert [c.text for c in forecast.clauses] == [c.text for c in report.clauses]
    assert forecast.source_rows == report.metrics["numSourceRows"]
    assert planned.version == report.read_version
    assert (forecast.bytes_to_write > 0) == (report.metrics["numTargetFilesAdded"] > 0)


@pytest.mark.parametrize(
    ("kind", "executor"),
    [
        ("upsert", "auto"),
        ("upsert", "classic"),
        ("upsert", "low_shuffle"),
        ("upsert", "key_lookup"),
        ("insert only", "insert_only"),
        ("deletion vectors", "auto"),
        ("by source update", "auto"),
    ],
)
def test_the_plan_is_the_one_that_runs(spark: SparkSession, tmp_path: Path, kind: str, executor: str) -> None:
    clauses, properties = KINDS[kind]
    path = people(spark, tmp_path / "t", properties=properties)
    spark.conf.set(EXECUTOR, executor)
    merge = merge_of(spark, path, clauses)
    planned, ran = merge.plan().plan, merge.run().plan
    assert ran is not None
    assert planned.name == ran.name
    for name, decision in planned.decisions.items():
        assert decision.choice == ran.decisions[name].choice
        assert not decision.done
    assert ran.source.done["rows"] == 4


def test_without_analyze_the_source_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    failing = spark.sql(
        "SELECT CAST(id AS INT) AS id, 'a' AS name, CAST(raise_error('it was read') AS INT) AS age FROM range(3)"
    )
    planned = merge_of(spark, path, source=failing).plan()
    assert planned.forecast is None
    assert planned.explanation.files == 2
    forecast = merge_of(spark, path, source=failing).plan(analyze=True).forecast
    assert forecast is not None
    assert forecast.failure is not None
    assert "it was read" in forecast.failure


@pytest.mark.parametrize(
    ("rows", "properties", "error"),
    [
        ([(1, "x", 1), (1, "y", 2)], {}, "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"),
        ([(1, "x", -1)], {"delta.constraints.positive": "age > 0"}, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
        ([(9, "x", -1)], {"delta.constraints.positive": "age > 0"}, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
        ([(1, "x", 1)], {"delta.appendOnly": "true"}, "DELTA_CANNOT_MODIFY_APPEND_ONLY"),
    ],
)
def test_a_failure_is_foretold(
    spark: SparkSession,
    tmp_path: Path,
    rows: list[tuple[int, str, int]],
    properties: dict[str, str],
    error: str,
) -> None:
    path = people(spark, tmp_path / "t", properties=properties)
    merge = merge_of(spark, path, source=frame(spark, SCHEMA, rows))
    forecast = merge.plan(analyze=True).forecast
    assert forecast is not None
    assert forecast.failure is not None
    assert error in forecast.failure
    with pytest.raises(DeltaError) as raised:
        merge.run()
    assert raised.value.getCondition() == error


def test_a_source_that_reads_the_target(spark: SparkSession, tmp_path: Path) -> None:
    """The frame is read as of the version that is merged into, as `run` reads it."""
    path = people(spark, tmp_path / "t")
    source = DeltaTable.forPath(spark, path).toDF().where("id >= 3")
    write_delta(frame(spark, SCHEMA, [(4, "dee", 60)]), path, mode="append")
    merge = merge_of(spark, path, source=source)
    plan = merge.plan(analyze=True)
    assert plan.explanation.forecast is not None
    assert [clause.rows for clause in plan.explanation.forecast.clauses] == [2, 0]
    assert merge.run().metrics["numTargetRowsUpdated"] == 2


def test_a_transaction_that_the_table_has(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set("spark.databricks.delta.write.txnAppId", "app")
    spark.conf.set("spark.databricks.delta.write.txnVersion", "1")
    try:
        merge = merge_of(spark, path)
        merge.execute()
        (first, *_) = merge.plan().explanation.warnings
    finally:
        for name in ("AppId", "Version"):
            spark.conf.unset(f"spark.databricks.delta.write.txn{name}")
    assert first == "The table already holds the application transaction app 1: the merge would do nothing."


def test_null_and_repeated_keys(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    source = frame(spark, SCHEMA, [(None, "a", 1), (7, "b", 1), (7, "c", 1), (8, "d", 1)])
    forecast = merge_of(spark, path, source=source).plan(analyze=True).forecast
    assert forecast is not None
    assert (forecast.source_rows, forecast.null_keys, forecast.repeated_keys) == (4, 1, 1)


@pytest.mark.parametrize(
    ("condition", "properties", "words"),
    [
        ("t.id = s.id", {"delta.dataSkippingNumIndexedCols": "0"}, "id has no statistics"),
        ("CAST(t.id AS STRING) = CAST(s.id AS STRING)", {}, "t.key = s.key"),
        ("t.id > s.id", {}, "t.key = s.key"),
    ],
)
def test_warnings(spark: SparkSession, tmp_path: Path, condition: str, properties: dict[str, str], words: str) -> None:
    path = people(spark, tmp_path / "t", properties=properties)
    source = frame(spark, SCHEMA, CHANGES).alias("s")
    planned = upsert(DeltaTable.forPath(spark, path).alias("t").merge(source, condition)).plan()
    assert any(words in warning for warning in planned.warnings), planned.warnings


def test_a_good_merge_has_no_warnings(spark: SparkSession, tmp_path: Path) -> None:
    planned = merge_of(spark, people(spark, tmp_path / "t")).plan()
    assert planned.warnings == ()
    assert planned.features == ()
    assert planned.conflicts


def test_a_by_source_clause_without_a_condition_reads_the_whole_table(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    planned = merge_of(spark, path, lambda m: m.whenNotMatchedBySourceDelete()).plan()
    assert any("BY SOURCE" in warning for warning in planned.warnings)
    assert planned.explanation.files_to_read == planned.explanation.files == 2


def test_conditions_on_the_target_leave_files_out(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    source = frame(spark, SCHEMA, CHANGES).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id AND t.id > 2")
    explanation = upsert(merge).plan().explanation
    assert (explanation.files_to_read, explanation.files) == (1, 2)
    assert explanation.bytes_to_read < explanation.bytes
    assert "id > 2" in explanation.read_predicate


@pytest.mark.parametrize("executor", ["insert_only", "key_lookup", "low_shuffle"])
def test_a_plan_that_does_not_fit_is_an_error(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set(EXECUTOR, executor)
    spark.conf.set("spark.databricks.delta.merge.materializeSource", "none")
    for run in (DeltaMergeBuilder.plan, DeltaMergeBuilder.run):
        with pytest.raises(DeltaAnalysisException, match=f"executor is {executor}, but") as raised:
            run(merge_of(spark, path))
        assert raised.value.getCondition() == "DELTAMERGE_EXECUTOR_NOT_AVAILABLE"


@pytest.mark.parametrize(
    ("before", "analyze", "analyzed"),
    [("", False, False), ("", True, True), ("EXPLAIN ", False, False), ("explain analyze\n", False, True)],
)
def test_a_statement_in_sql(spark: SparkSession, tmp_path: Path, before: str, analyze: bool, analyzed: bool) -> None:
    path = people(spark, tmp_path / "t")
    frame(spark, SCHEMA, CHANGES).createOrReplaceTempView("plan_changes")
    sql = (
        f"{before}MERGE INTO people t USING plan_changes s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    planned = plan_sql(spark, sql, {"people": path}, analyze=analyze)
    assert planned.explanation.statement == sql
    rows = None if planned.forecast is None else [clause.rows for clause in planned.forecast.clauses]
    assert rows == ([2, 2] if analyzed else None)
    if before:
        with pytest.raises(DeltaAnalysisException, match="use plan_sql"):
            merge_sql(spark, sql, {"people": path})


def test_the_report_of_a_plan(spark: SparkSession, tmp_path: Path) -> None:
    planned = merge_of(spark, people(spark, tmp_path / "t")).plan(analyze=True)
    assert isinstance(planned, MergePlanReport)
    assert "4 rows would change. Nothing was written; version 1 was read." in str(planned)
    assert planned._repr_html_() == planned.to_html()
    assert json.loads(planned.to_json()) == planned.to_dict()
    assert planned.to_dict()["plan"]["name"] == planned.plan.name


def test_an_empty_table_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, SCHEMA, []), path)
    planned = merge_of(spark, path).plan(analyze=True)
    assert planned.forecast is not None
    assert [clause.rows for clause in planned.forecast.clauses] == [0, 4]


def test_how_much_a_step_has_to_do(spark: SparkSession, tmp_path: Path) -> None:
    class Watch:
        def __init__(self) -> None:
            self.running = ""
            self.measured: dict[str, tuple[int, int]] = {}
            self.advanced: list[tuple[str, int, int]] = []

        def step(self, name: str, description: str) -> None:
            self.running = name

        def measure(self, files: int, size: int) -> None:
            self.measured[self.running] = (files, size)

        def advance(self, done: int, of: int) -> None:
            self.advanced.append((self.running, done, of))

    watch = Watch()
    metrics = merge_of(spark, people(spark, tmp_path / "t")).run(progress=watch).metrics
    found = (metrics["numTargetFilesAfterSkipping"], metrics["numTargetBytesAfterSkipping"])
    touched = (metrics["numTargetFilesRemoved"], metrics["numTargetBytesRemoved"])
    assert watch.measured == {"find_touched_files": found, "write_all_changes": touched}
    written = metrics["numTargetFilesAdded"]
    assert watch.advanced == [("write_all_changes", number + 1, written) for number in range(written)]


def test_steps_are_reported_as_they_begin(spark: SparkSession, tmp_path: Path) -> None:
    class Watch:
        def __init__(self) -> None:
            self.names: list[str] = []

        def step(self, name: str, description: str) -> None:
            self.names.append(name)

    quick, whole = Watch(), Watch()
    merge = merge_of(spark, people(spark, tmp_path / "t"))
    merge.plan(progress=quick)
    merge.plan(analyze=True, progress=whole)
    assert quick.names == ["snapshot", "resolve"]
    assert "find_touched_files" in whole.names
    assert "commit" not in whole.names
