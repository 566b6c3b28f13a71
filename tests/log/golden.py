"""The golden tables: real logs of many writers, in a folder beside the repository."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "golden"


def manifest() -> dict[str, Any]:
    """Name of a table to what delta-spark says about it; empty where the tables are not there."""
    path = FOLDER / "manifest.json"
    return json.loads(path.read_text()) if path.exists() else {}


def require_golden_tables() -> None:
    """Skips a test where the tables are not there; in CI they must be."""
    if not (FOLDER / "manifest.json").exists():
        reason = f"the golden tables are not in {FOLDER}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
