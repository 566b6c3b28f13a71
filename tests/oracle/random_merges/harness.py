"""Runs a random merge by both engines and compares what came of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpus.cases import Case
from corpus.deltamerge_engine import Deltamerge
from corpus.outcome import Outcome, commit_actions, commits, outcome_from_dict, schema_string
from corpus.runner import run_case, settings, table_folder

from ..client import LineProcess, RequestFailed
from .explained import explain
from .merge import RandomMerge
from .neutral import ROW_IDS, Numbered, identity_columns, neutral, row_ids, wrong_numbers
from .plans import AUTO, PLANS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_AVAILABLE = "DELTAMERGE_EXECUTOR_NOT_AVAILABLE"


@dataclass(frozen=True)
class Difference:
    """Something that is not the same.

    Args:
        what: What differs: ``rows``, ``error`` and so on.
        ours: What deltamerge has.
        theirs: What delta-spark has.
    """

    what: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.what}:\n  deltamerge:  {_shown(self.ours)}\n  delta-spark: {_shown(self.theirs)}"


def _shown(value: Any) -> str:
    return "\n               ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Comparison:
    """What two engines made of one merge.

    Args:
        merge: The merge.
        ours: deltamerge's outcome.
        theirs: delta-spark's.
        differences: What differs and has no explanation.
        explained: The explanations of what differs besides.
    """

    merge: RandomMerge
    ours: Outcome
    theirs: Outcome
    differences: tuple[Difference, ...]
    explained: tuple[str, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """Names what differs, for the shrinker to keep to it."""
        return frozenset(f"{d.what}: {d.ours} / {d.theirs}" if d.what == "error" else d.what for d in self.differences)


class BothEngines:
    """deltamerge in this process and delta-spark in its own.

    Args:
        spark: This process's session.
        oracle: delta-spark.
        folder: Where tables go; each is taken away after its merge.
    """

    def __init__(self, spark: SparkSession, oracle: LineProcess, folder: Path) -> None:
        self._spark = spark
        self._oracle = oracle
        self._folder = folder
        self._engine = Deltamerge(folder / "made")
        self._made: dict[str, Path | str] = {}
        (folder / "made").mkdir(parents=True, exist_ok=True)

    def compare(self, merge: RandomMerge) -> Comparison:
        """Runs a merge by both and compares: by its own plan, or by the best one where that does not fit.

        Raises:
            RequestFailed: delta-spark could not make the table, or did something that has no error class.
        """
        return next(self.compare_each(merge, (merge.plan, AUTO)))

    def compare_each(self, merge: RandomMerge, plans: Iterable[str]) -> Iterator[Comparison]:
        """Runs a merge by delta-spark and by each of some plans that fits, and compares.

        Raises:
            RequestFailed: delta-spark could not make the table, or did something that has no error class.
        """
        made, ours, theirs = (self._folder / name for name in ("table", "ours", "theirs"))
        for folder in (made, theirs):
            shutil.rmtree(folder, ignore_errors=True)
        case = merge.case()
        table = table_folder(case, str(made))
        self._make_table(merge, Path(table))
        shutil.copytree(made, theirs)
        actions = [action for version in commits(table) for action in commit_actions(table, version)]
        ids = row_ids(actions)
        numbered = (*identity_columns(json.loads(schema_string(table))), *ids)
        if ids:
            case = replace(case, values={**case.values, "read": ["*", *ROW_IDS]})
        with ThreadPoolExecutor(1) as beside:
            answer = beside.submit(self._run_theirs, case, theirs)
            for plan in plans:
                shutil.rmtree(ours, ignore_errors=True)
                shutil.copytree(made, ours)
                got = self._run_ours(plan, case, ours)
                if got.error != NOT_AVAILABLE:
                    wanted = answer.result()
                    schemas = [json.loads(schema_string(table_folder(case, str(each)))) for each in (ours, theirs)]
                    yield self._compared(replace(merge, plan=plan), got, wanted, numbered, schemas)

    @staticmethod
    def _compared(
        merge: RandomMerge, got: Outcome, wanted: Outcome, numbered: Sequence[Numbered], schemas: Sequence[Any]
    ) -> Comparison:
        wrong = wrong_numbers(got, numbered, schemas[0])
        got, wanted = neutral(got, numbered), neutral(wanted, numbered)
        differences, explained = compare_outcomes(merge, got, wanted, *map(_comparable, schemas))
        if wrong:
            differences += (Difference("numbers", wrong, ()),)
        return Comparison(merge, got, wanted, differences, explained)

    def _make_table(self, merge: RandomMerge, path: Path) -> None:
        if merge.table.made_by == "deltamerge":
            self._engine.make_table(self._spark, merge.target(), str(path))
            return
        key = json.dumps(merge.target(), sort_keys=True)
        if key not in self._made:
            made = self._folder / "made" / f"oracle{len(self._made)}"
            # What cannot be made is remembered too: the merges that share the table need not try again.
            try:
                self._oracle.ask("make_table", target=merge.target(), path=str(made))
                self._made[key] = made
            except RequestFailed as error:
                self._made[key] = str(error)
        made_before = self._made[key]
        if isinstance(made_before, str):
            raise RequestFailed(made_before)
        shutil.copytree(made_before, path)

    def _run_ours(self, plan: str, case: Case, folder: Path) -> Outcome:
        with settings(self._spark, PLANS[plan]):
            try:
                return run_case(self._engine, self._spark, case, str(folder))
            except Exception as error:
                return Outcome(error=f"no error class, {type(error).__name__}", message=str(error))

    def _run_theirs(self, case: Case, folder: Path) -> Outcome:
        try:
            answer = self._oracle.ask("case", topic=case.topic, values=dict(case.values), folder=str(folder))
        except RequestFailed as error:
            return Outcome(error="no error class", message=str(error)[-1500:])
        return outcome_from_dict(answer)


def _comparable(schema: Any) -> Any:
    """Gives a schema without what each engine chooses: new columns' physical names, new rows' numbers."""

    def without_choices(field: dict[str, Any]) -> dict[str, Any]:
        chosen = ("delta.columnMapping.physicalName", "delta.identity.highWaterMark")
        return {name: value for name, value in field.items() if name not in chosen}

    return json.loads(json.dumps(schema), object_hook=without_choices)


def compare_outcomes(
    merge: RandomMerge, ours: Outcome, theirs: Outcome, our_schema: Any, their_schema: Any
) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    """Compares two outcomes.

    Returns:
        What differs without an explanation, and the explanations of what differs besides.
    """
    found = [
        difference
        for difference in _differences(ours, theirs, our_schema, their_schema)
        if difference.ours != difference.theirs
    ]
    if ours.error and ours.new_version:
        found.append(Difference("version", "made by a failed merge", None))
    reasons = [explain(merge, ours, theirs, difference.what) for difference in found]
    unexplained = tuple(d for d, reason in zip(found, reasons, strict=True) if reason is None)
    return unexplained, tuple(sorted({reason for reason in reasons if reason is not None}))


def _differences(ours: Outcome, theirs: Outcome, our_schema: Any, their_schema: Any) -> list[Difference]:
    if ours.error or theirs.error:
        found = [Difference("error", ours.error, theirs.error)]
        if ours.error == theirs.error:
            found.append(Difference("sqlstate", ours.sqlstate, theirs.sqlstate))
        return found
    found = [
        Difference("rows", ours.rows, theirs.rows),
        Difference("schema", *(json.dumps(schema, sort_keys=True) for schema in (our_schema, their_schema))),
        Difference("counts", _pairs(ours.counts), _pairs(theirs.counts)),
        Difference("version", ours.new_version, theirs.new_version),
    ]
    if ours.new_version and theirs.new_version:
        names = [
            name
            for name in theirs.metrics
            if (name.startswith("numTargetRows") and name != "numTargetRowsCopied") or name == "numSourceRows"
        ]
        found.append(
            Difference(
                "metrics",
                tuple((name, ours.metrics.get(name)) for name in names),
                tuple((name, theirs.metrics[name]) for name in names),
            )
        )
        found.append(Difference("changes", ours.changes, theirs.changes))
    return found


def _pairs(values: Any) -> Any:
    return None if values is None else tuple(sorted(values.items()))
