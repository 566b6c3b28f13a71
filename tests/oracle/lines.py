"""The answering side of a process that speaks JSON lines."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def answers() -> Iterator[Callable[[object], None]]:
    """Keeps standard output for the answers: what anything else prints goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)

        def answer(value: object) -> None:
            lines.write(json.dumps(value, default=str) + "\n")
            lines.flush()

        yield answer


def serve(requests: object, answer: Callable[[object], None]) -> None:
    """Answers each line of standard input by the method of ``requests`` that its ``op`` names."""
    for line in sys.stdin:
        values = json.loads(line)
        try:
            answer({"answer": getattr(requests, values.pop("op"))(**values)})
        except Exception:
            answer({"failure": traceback.format_exc()})
