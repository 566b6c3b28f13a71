"""Records what delta-spark makes of the cases in ``tests/data/cases`` and ``tests/data/statements``.

    python -m oracle.record                 # all topics
    python -m oracle.record basic star      # two of them

Replaces ``expect`` of each case and statement, and ``after``; everything else in a case is written by hand and stays.
Prints each case whose expectation changed, and ends with 1 where delta-spark's message lacks a part that the case asks
for.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpus.cases import Case, load_cases, topics, write_topic
from corpus.outcome import Outcome, message_differences, outcome_from_dict
from corpus.runner import table_folder
from corpus.statements import StatementCase, load_statements, statement_topics, write_statements

from .client import LineProcess, start_oracle
from .environment import find_or_build
from .random_merges.settings import SMALL

METRICS = (
    "numSourceRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsMatchedDeleted",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsNotMatchedBySourceDeleted",
)


def run(oracle: LineProcess, case: Case, folder: Path) -> Outcome:
    """Return what delta-spark makes of a case, from a new table in a folder."""
    oracle.ask("make_table", target=dict(case.target), path=table_folder(case, str(folder)))
    values = dict(case.values)
    statement = values.get("oracle_merge")
    answer = oracle.ask("case", topic=case.topic, values=values, folder=str(folder), statement=statement)
    return outcome_from_dict(answer)


def expectation(case: Case, outcome: Outcome) -> dict[str, Any]:
    """Return the ``expect`` of a case of which delta-spark has made an outcome."""
    if outcome.error is not None:
        parts = case.values.get("expect", {}).get("message_parts", [])
        return {"error": outcome.error, "sqlstate": outcome.sqlstate, "message_parts": parts}
    rows = {"rows_check": outcome.rows_check} if "rows_check" in case.values else {"rows": outcome.rows}
    checked = {"changes_check": outcome.changes_check} if "changes_check" in case.values else {}
    expect: dict[str, Any] = {
        **rows,
        **checked,
        "schema": outcome.schema,
        "counts": dict(outcome.counts or {}),
    }
    unchecked = case.values.get("unchecked", ())
    if outcome.new_version and "new_version" not in unchecked:
        expect["metrics"] = {name: outcome.metrics[name] for name in _metrics(case)}
        if case.values.get("record_parameters"):
            expect["parameters"] = dict(sorted(_without_expression_ids(outcome).items()))
        if outcome.changes is not None and not checked:
            expect["changes"] = outcome.changes
    expect["new_version"] = outcome.new_version
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in expect.items()
        if name not in unchecked
    }


def _metrics(case: Case) -> Sequence[str]:
    # In other words a merge may have a source of other rows.
    names = METRICS[1:] if case.values.get("better") else METRICS
    return (*names, *case.values.get("extra_metrics", ()))


def _without_expression_ids(outcome: Outcome) -> dict[str, str]:
    return {name: re.sub(r"#\d+L?", "", value) for name, value in outcome.parameters.items()}


def recorded(oracle: LineProcess, case: StatementCase, folder: Path) -> dict[str, Any]:
    """Return a case of statements with what delta-spark makes of it."""
    made = oracle.ask(
        "statements", topic=case.topic, values=dict(case.values), setup=list(case.setup), folder=str(folder)
    )
    steps = [{**step, "expect": found} for step, found in zip(case.steps, made["steps"], strict=True)]
    left_out = case.values.get("unlike", ())
    after = {name: value for name, value in made["after"].items() if name not in left_out}
    return {**case.values, "steps": steps, "after": after}


def record_merges(oracle: LineProcess, topic: str, folder: Path) -> tuple[int, int]:
    """Record a topic of merges; return how many cases changed, and how many messages lack a part."""
    changed, lacking, written = 0, 0, []
    for number, case in enumerate(case for case in load_cases() if case.topic == topic):
        outcome = run(oracle, case, folder / f"{topic}-{number}")
        written.append({**case.values, "expect": expectation(case, outcome)})
        if written[-1] != case.values:
            changed += 1
            print(f"{case.name} changed", flush=True)
        asked = Case(topic, case.id, written[-1])
        if outcome.error is not None and (missing := message_differences(asked, outcome)):
            lacking += 1
            print(f"{case.name}: {'; '.join(missing)}", flush=True)
    write_topic(topic, written)
    return changed, lacking


def record_statements(oracle: LineProcess, topic: str, folder: Path) -> int:
    """Record a topic of statements; return how many cases changed."""
    written, changed = [], 0
    for number, case in enumerate(case for case in load_statements() if case.topic == topic):
        written.append(recorded(oracle, case, folder / f"{topic}-{number}"))
        if written[-1] != case.values:
            changed += 1
            print(f"{case.name} changed", flush=True)
    write_statements(topic, written)
    return changed


def main() -> int:
    """Record the topics that the command line names."""
    all_topics = [*topics(), *statement_topics()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"one of {', '.join(all_topics)}")
    chosen = parser.parse_args().topics or all_topics
    changed, lacking = 0, 0
    with (
        tempfile.TemporaryDirectory() as folder,
        start_oracle(find_or_build(), {**SMALL, "spark.sql.warehouse.dir": f"{folder}/warehouse"}) as oracle,
    ):
        for topic in chosen:
            if topic in statement_topics():
                changed += record_statements(oracle, topic, Path(folder))
            else:
                found = record_merges(oracle, topic, Path(folder))
                changed, lacking = changed + found[0], lacking + found[1]
            print(topic, flush=True)
    print(f"{len(chosen)} topics recorded, {changed} cases changed")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
