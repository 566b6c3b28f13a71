"""What the reports of a merge and of its plan have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from os import PathLike
from pathlib import Path
from typing import Any

from deltamerge.merge.outcome import MergeExplanation, MergeOutcome
from deltamerge.render.html import to_html, to_page
from deltamerge.render.json import to_dict, to_json
from deltamerge.render.terminal import render_terminal, to_text


class Page(ABC):
    """A report that prints as plain text and that notebooks show as HTML."""

    @property
    @abstractmethod
    def _data(self) -> MergeOutcome | MergeExplanation: ...

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values.

        Returns:
            The content of `to_json`: dictionaries, lists, strings and numbers.
        """
        return to_dict(self._data)

    def to_json(self) -> str:
        """Return the report as JSON.

        Returns:
            One JSON object.
        """
        return to_json(self._data)

    def to_html(self) -> str:
        """Return the report as an HTML fragment, as notebooks show it.

        Returns:
            An HTML fragment.
        """
        return to_html(self._data)

    def save_html(self, path: str | PathLike[str]) -> None:
        """Save the report as a standalone HTML page, in the light or dark colours of the reader's system.

        Args:
            path: A local file; an existing one is replaced.

        Raises:
            OSError: The file cannot be written.
        """
        Path(path).write_text(to_page(self._data), encoding="utf-8")

    def __str__(self) -> str:
        return to_text(render_terminal(self._data))

    def _repr_html_(self) -> str:
        return to_html(self._data)
