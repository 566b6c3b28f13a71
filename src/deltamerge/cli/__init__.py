"""deltamerge on the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command that the process was given.

    Raises:
        SystemExit: Always; its code is 0 where the command did what it was asked for.
    """
    try:
        import typer  # noqa: F401
    except ImportError:
        print("deltamerge: the command line needs typer: pip install 'deltamerge[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    from deltamerge.cli.app import run

    run()
