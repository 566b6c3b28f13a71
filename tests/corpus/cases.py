"""The cases of tests/data/cases, each as a frozen value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "cases"

# The first topics need only the core of MERGE; the others come after them by name.
FIRST_TOPICS = (
    "basic",
    "clauses",
    "star",
    "insert_only",
    "by_source",
    "duplicates",
    "cdf",
    "partitions",
    "names",
    "source_kinds",
)


@dataclass(frozen=True)
class Case:
    """One table, one source, one MERGE, and what comes of it.

    Args:
        topic: The name of the file that holds it.
        id: Its name, unique in the topic.
        values: The case as its file has it.
    """

    topic: str
    id: str
    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Names the case among all cases."""
        return f"{self.topic}/{self.id}"

    @property
    def target(self) -> Mapping[str, Any]:
        """Gives what makes the target table."""
        return self.values["target"]

    @property
    def source(self) -> Mapping[str, Any] | None:
        """Gives what makes the source, or None where the statement has its own."""
        return self.values.get("source")

    @property
    def conf(self) -> Mapping[str, str]:
        """Gives the session settings during the merge."""
        return self.values.get("conf", {})

    @property
    def views(self) -> Mapping[str, str]:
        """Gives queries by the name of the temporary view that they make."""
        return self.values.get("views", {})

    @property
    def merge(self) -> str:
        """Gives the statement, with its placeholders."""
        return self.values["merge"]

    @property
    def read(self) -> list[str]:
        """Gives the expressions that read the table."""
        return self.values.get("read", ["*"])

    @property
    def expect(self) -> Mapping[str, Any]:
        """Gives what the merge must do."""
        return self.values["expect"]


def load_cases() -> Iterator[Case]:
    """Read all cases, the core topics first."""
    for topic in topics():
        for values in json.loads(topic_file(topic).read_text(encoding="utf-8")):
            yield Case(topic, values["id"], values)


def topics() -> list[str]:
    """Return the names of the topics, the core ones first."""
    names = (path.stem for path in FOLDER.glob("*.json"))
    return sorted(names, key=lambda t: (FIRST_TOPICS.index(t) if t in FIRST_TOPICS else 99, t))


def topic_file(topic: str) -> Path:
    """Return the file of a topic."""
    return FOLDER / f"{topic}.json"


def write_topic(topic: str, cases: Sequence[Mapping[str, Any]]) -> None:
    """Write a topic's file: a line for each part of a case."""
    blocks = (
        ",\n ".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in case.items()) for case in cases
    )
    content = ",\n".join(f"{{{block}}}" for block in blocks)
    topic_file(topic).write_text(f"[\n{content}\n]\n", encoding="utf-8")
