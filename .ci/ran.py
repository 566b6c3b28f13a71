"""Looks at pytest's reports: an error where a test was skipped, or where there is none at all."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def problems(report: Path) -> list[str]:
    """Lists what a report says was not run.

    Args:
        report: A JUnit XML file of pytest's; it may be missing.
    """
    if not report.exists():
        return [f"{report.stem}: pytest wrote no report"]
    cases = list(ElementTree.parse(report).iter("testcase"))
    if not cases:
        return [f"{report.stem}: no test ran"]
    return [
        f"{report.stem}: {case.get('classname')}.{case.get('name')} was skipped: {skip.get('message')}"
        for case in cases
        for skip in case.iter("skipped")
        # Tests that are known to fail are skipped only in this format's words: they ran.
        if skip.get("type") != "pytest.xfail"
    ]


def main() -> int:
    """Prints what was not run; gives the exit code."""
    found = [problem for name in sys.argv[1:] for problem in problems(Path(name))]
    print("\n".join(found) or "No test was skipped.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
