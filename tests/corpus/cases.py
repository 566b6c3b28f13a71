"""The cases: where they lie, and each as a frozen value."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("DELTAMERGE_CASES") or Path(__file__).parents[3] / "shared" / "cases")

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


def load_cases(folder: Path = FOLDER) -> Iterator[Case]:
    """Reads all cases, the core topics first; none where the folder is missing."""
    topics = {path.stem: path for path in sorted(folder.glob("*.json"))}
    for topic in sorted(topics, key=lambda t: (FIRST_TOPICS.index(t) if t in FIRST_TOPICS else 99, t)):
        for values in json.loads(topics[topic].read_text(encoding="utf-8")):
            yield Case(topic, values["id"], values)
