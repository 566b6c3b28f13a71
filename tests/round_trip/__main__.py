"""The round-trip matrix.

    python -m round_trip

runs every cell, prints what is not as known, and writes docs/compatibility.md where all of it is. ``--feature plain``
runs the cells of one feature (and writes nothing), ``--show`` prints every failure, known ones too. It ends with 1
where a cell is not as known, or the page said something else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oracle.sessions import both_sessions

from .features import FEATURES
from .matrix import CELLS, NOT_MADE, Matrix
from .page import PAGE, page


def told_of(matrix: Matrix, name: str, *, known_too: bool) -> list[str]:
    """Runs the cells of a feature.

    Args:
        matrix: The matrix.
        name: The feature.
        known_too: Whether to print failures that are known.

    Returns:
        What is not as known.
    """
    start = time.monotonic()
    cells = [cell for cell in CELLS if cell.feature == name]
    wrong = [f"{cell}: {told}" for cell in cells if (told := matrix.verdict(cell)) is not None]
    wrong += [
        f"{name}: {engine} makes such tables now"
        for feature, engine in NOT_MADE
        if feature == name and matrix.makes(name, engine)
    ]
    known = [f"{cell}: {failure}" for cell in cells if (failure := matrix.failure(cell)) is not None]
    shown = [*(f"known: {text}" for text in known if known_too), *wrong]
    print("\n".join([*shown, f"{name}: {len(cells)} cells, {time.monotonic() - start:.1f} s"]), flush=True)
    return wrong


def main() -> int:
    """Runs the cells and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feature", action="append", default=[], choices=[f.name for f in FEATURES])
    parser.add_argument("--show", action="store_true", help="print every failure, known ones too")
    arguments = parser.parse_args()
    chosen = arguments.feature or [feature.name for feature in FEATURES]
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        both_sessions(Path(folder)) as (spark, oracle),
        # While one feature waits for delta-spark, another one uses deltamerge.
        ThreadPoolExecutor(3) as pool,
    ):
        matrix = Matrix(spark, oracle, Path(folder, "tables"))
        told = pool.map(lambda name: told_of(matrix, name, known_too=arguments.show), chosen)
        wrong = [text for texts in told for text in texts]
    print(f"{len(CELLS)} cells in {time.monotonic() - start:.0f} s")
    print(f"{len(wrong)} are not as known")
    if wrong or arguments.feature:
        return 1 if wrong else 0
    said = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    print(page())
    if said == page():
        return 0
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE} said something else; it is written anew")
    return 1


if __name__ == "__main__":
    sys.exit(main())
