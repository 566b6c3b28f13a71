"""The matrix as a page of the documentation."""

from __future__ import annotations

from pathlib import Path

import deltalake

from oracle.environment import DELTA, SPARK

from .features import DELTA_RS, DELTA_SPARK, FEATURES, Feature
from .known import DIRECTIONS, KNOWN
from .matrix import PEERS, is_there

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"

_HEAD = f"""# What goes back and forth between engines

Each cell is a test: a small table with the feature goes from one engine to the other, and its rows must be what they \
are meant to be, for both. `make matrix` runs all of them and writes this page; it fails where a cell is no longer \
what the page has. The tables are in [features.py](../tests/round_trip/features.py), the four ways in \
[matrix.py](../tests/round_trip/matrix.py), and what is known to fail, with the error, in \
[known.py](../tests/round_trip/known.py).

The others are delta-spark {DELTA} on Spark {SPARK} and delta-rs {deltalake.__version__}.

- **We read theirs**: they make the table, write rows, merge, update and delete; `DeltaTable.toDF` reads it.
- **They read ours**: deltamerge makes the table, writes rows and merges (a row updated, one deleted, one inserted); \
they read it.
- **Merge over theirs**: a merge of deltamerge into the table that they made and changed; they read it.
- **Theirs over ours**: their merge into the table that deltamerge made and merged into; `DeltaTable.toDF` reads it.

Tables with rules (generated and identity columns, CHECK, NOT NULL, append-only) are also offered a merge that breaks \
the rule, in the last two ways; it must be refused. What change data and row ids say is compared with delta-spark in \
[test_history.py](../tests/oracle/test_history.py). Where delta-rs refuses to write, the table that it was to write is \
one of delta-spark's.
"""

_FOOT = """
✓ works. ✓¹ works; {made_by} makes the table, since delta-rs does not make such tables, and delta-rs merges into it. \
– there is no such table: deltamerge and delta-spark read compacted logs, but make none.
"""


def page() -> str:
    """Writes the page from what the cells are known to be."""
    names = [f"{peer}: {direction}" for peer in PEERS for direction in DIRECTIONS]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for feature in FEATURES:
        cells = [_shown(feature, peer, direction) for peer in PEERS for direction in DIRECTIONS]
        lines.append(f"| {feature.name} | {' | '.join(cells)} |")
    return "\n".join([_HEAD, *lines, _FOOT.format(made_by=DELTA_SPARK)])


def _shown(feature: Feature, peer: str, direction: str) -> str:
    if not is_there(feature, peer, direction):
        return "–"
    known = KNOWN.get((feature.name, peer, direction))
    if known is not None:
        return known.shown
    return "✓¹" if peer == DELTA_RS not in feature.makers and "theirs" in direction.rsplit(maxsplit=1)[-1] else "✓"
