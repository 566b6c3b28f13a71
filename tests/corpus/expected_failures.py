"""The cases that need what is not implemented yet, by the name of what is missing.

A name is ``topic/id``, with ``*`` for any text. A case listed here must fail: when it passes, take it out.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

EXPECTED_FAILURES: dict[str, tuple[str, ...]] = {
    "deletion vectors": (
        "deletion_vectors/*",
        "column_mapping/vectors-and-mapping",
        "names/path-with-odd-characters-partitioned",
    ),
    "identity columns": ("generated_identity_default/identity-*",),
    "row tracking": ("row_tracking/*",),
}


def reason(name: str) -> str | None:
    """Gives the name of what a case lacks, or None where it must pass."""
    for missing, patterns in EXPECTED_FAILURES.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            return missing
    return None
