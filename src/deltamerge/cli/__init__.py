"""The command line: deltamerge merge, plan, history, detail."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line; it ends the process with 0 if the command succeeded."""
    if find_spec("typer") is None:
        sys.stderr.write("deltamerge: the command line needs typer: pip install 'deltamerge[cli]'\n")
        raise SystemExit(2)
    from deltamerge.cli.app import app  # noqa: PLC0415 it imports typer

    app()
