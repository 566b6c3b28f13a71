"""Numbers that engines give to new rows as they like: identity values and row ids.

Each engine's numbers must be right for themselves; what is compared is only whether a row has a new one. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corpus.outcome import Outcome

ROW_IDS = ("_metadata.row_id", "_metadata.row_commit_version")
ROW_ID = "row_id"
NEW = "a new number"


@dataclass(frozen=True)
class Numbered:
    """A column of numbers that the table gives.

    Args:
        name: Its name.
        start: The first number.
        step: What lies between two.
        mark: The last number before the merge; None where there is none yet.
        unique: Whether all numbers are the table's own.
        logged: Whether the log's schema has the mark.
    """

    name: str
    start: int
    step: int
    mark: int | None
    unique: bool
    logged: bool = True

    def is_new(self, number: int) -> bool:
        """Tells whether the merge may have given a number."""
        beyond = self.mark is None or (number - self.mark) * self.step > 0
        return beyond and (number - self.start) % self.step == 0

    def is_within(self, number: int, mark: int | None) -> bool:
        """Tells whether a number is not beyond a mark."""
        return mark is not None and (mark - number) * self.step >= 0


def identity_columns(schema: Mapping[str, Any]) -> tuple[Numbered, ...]:
    """Gives the identity columns of a schema, as the log has it."""
    return tuple(
        Numbered(
            name=field["name"],
            start=field["metadata"]["delta.identity.start"],
            step=field["metadata"]["delta.identity.step"],
            mark=field["metadata"].get("delta.identity.highWaterMark"),
            unique=not field["metadata"].get("delta.identity.allowExplicitInsert"),
        )
        for field in schema["fields"]
        if "delta.identity.start" in field["metadata"]
    )


def row_ids(actions: Iterable[Mapping[str, Any]]) -> tuple[Numbered, ...]:
    """Gives the row ids of a table with the actions of its log, none without row tracking."""
    mark, tracked = None, False
    for action in actions:
        if "metaData" in action:
            tracked = action["metaData"]["configuration"].get("delta.enableRowTracking") == "true"
        if action.get("domainMetadata", {}).get("domain") == "delta.rowTracking":
            mark = json.loads(action["domainMetadata"]["configuration"])["rowIdHighWaterMark"]
    return (Numbered(ROW_ID, 0, 1, mark, True, logged=False),) if tracked else ()


def neutral(outcome: Outcome, numbered: Sequence[Numbered]) -> Outcome:
    """Gives an outcome without the numbers that its engine chose."""
    if not numbered:
        return outcome
    changes = None if outcome.changes is None else _neutral_lines(outcome.changes, numbered)
    return replace(outcome, rows=_neutral_lines(outcome.rows, numbered), changes=changes)


def _neutral_lines(lines: Sequence[str], numbered: Sequence[Numbered]) -> tuple[str, ...]:
    made = []
    for line in lines:
        # Numbers that are no whole ones stay as they are written.
        row = json.loads(line, parse_float=str)
        for column in numbered:
            number = row.get(column.name)
            if number is not None and column.is_new(number):
                row[column.name] = NEW
        made.append(json.dumps(row, ensure_ascii=False))
    return tuple(sorted(made))


def wrong_numbers(outcome: Outcome, numbered: Sequence[Numbered], schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Says which numbers of an outcome cannot be.

    Args:
        outcome: The outcome, with its numbers.
        numbered: The columns with numbers.
        schema: The log's schema after the merge.
    """
    if outcome.error:
        return ()
    rows = [json.loads(line) for line in outcome.rows]
    marks = {column.name: column.mark for column in identity_columns(schema)}
    found = []
    for column in numbered:
        numbers = [row.get(column.name) for row in rows]
        if None in numbers and column.unique:
            found.append(f"{column.name} is NULL")
        known = [number for number in numbers if number is not None]
        if column.unique and len(set(known)) < len(known):
            found.append(f"{column.name} is not unique: {sorted(known)}")
        if column.unique and column.logged:
            mark = marks[column.name]
            beyond = [number for number in known if not column.is_within(number, mark)]
            found += [f"{column.name} is beyond its high water mark {mark}: {beyond}"] if beyond else []
    return tuple(found)
