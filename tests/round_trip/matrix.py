"""The matrix's cells: the four ways of a table between deltamerge and another engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from corpus.canonical import canonical_lines
from oracle.client import LineProcess

from .engines import Deltamerge, DeltaRsEngine, DeltaSpark, Engine
from .features import DELTA_RS, DELTA_SPARK, DELTAMERGE, FEATURES, Feature
from .known import DIRECTIONS, KNOWN, OVER_OURS, OVER_THEIRS, READ_OURS, READ_THEIRS, Known
from .tables import (
    Row,
    after_changes,
    after_merge,
    expected_query,
    foreseen,
    lacking_evidence,
    merges,
    rows_at_first,
    violating_merge,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEERS = (DELTA_SPARK, DELTA_RS)


class RowsDiffer(AssertionError):
    """A table does not hold what it must."""


class NotRefused(AssertionError):
    """A merge that had to be refused went through."""


@dataclass(frozen=True, order=True)
class Cell:
    """A cell.

    Args:
        feature: The feature's name.
        peer: The other engine.
        direction: Which way the table goes.
    """

    feature: str
    peer: str
    direction: str

    def __str__(self) -> str:
        return f"{self.feature} / {self.peer} / {self.direction}"


def is_there(feature: Feature, peer: str, direction: str) -> bool:
    """Tells whether there is a table to try: somebody must be able to make it."""
    if direction in (READ_OURS, OVER_OURS):
        return DELTAMERGE in feature.makers
    return not {peer, DELTA_SPARK}.isdisjoint(feature.makers)


CELLS = tuple(
    Cell(feature.name, peer, direction)
    for feature in FEATURES
    for peer in PEERS
    for direction in DIRECTIONS
    if is_there(feature, peer, direction)
)
NOT_MADE = tuple(
    (feature.name, peer) for feature in FEATURES for peer in (DELTAMERGE, *PEERS) if peer not in feature.makers
)
"""Who is said not to make which tables."""


def verdict(known: Known | None, failure: Exception | None) -> str | None:
    """Says what is wrong about a cell; None where it is as it is known to be.

    Args:
        known: What is known to go wrong.
        failure: What went wrong.
    """
    if failure is None:
        return None if known is None else f"works, though it is listed as {known.shown!r}: take it out"
    if known is not None and known.tells(failure):
        return None
    told = f"{type(failure).__name__}: {failure}"
    return told if known is None else f"is listed as {known.shown!r}, but failed otherwise: {told}"


def _failure_of(step: Callable[[], None]) -> Exception | None:
    try:
        step()
    except Exception as error:
        return error
    return None


@dataclass
class Matrix:
    """Runs cells. The two cells of a table that goes on come from one run, and so does a table for both peers.

    Args:
        spark: deltamerge's session.
        oracle: delta-spark.
        folder: Where tables go.
    """

    spark: SparkSession
    oracle: LineProcess
    folder: Path
    _made: dict[tuple[str, str], Path | Exception] = field(default_factory=dict)
    _failures: dict[Cell, Exception | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ours = Deltamerge(self.spark)
        self.folder.mkdir(parents=True, exist_ok=True)
        theirs = (DeltaSpark(self.oracle), DeltaRsEngine(self.spark, self.folder))
        self._engines: dict[str, Engine] = {engine.name: engine for engine in (self._ours, *theirs)}

    def failure(self, cell: Cell) -> Exception | None:
        """Runs a cell; gives what went wrong."""
        if cell not in self._failures:
            feature = next(feature for feature in FEATURES if feature.name == cell.feature)
            peer = self._engines[cell.peer]
            if cell.direction in (READ_THEIRS, OVER_THEIRS):
                self._run(feature, peer, (READ_THEIRS, OVER_THEIRS), self._theirs(feature, peer))
            else:
                self._run(feature, peer, (READ_OURS, OVER_OURS), self._of_ours(feature, peer))
        return self._failures[cell]

    def verdict(self, cell: Cell) -> str | None:
        """Runs a cell; says what is not as it is known to be."""
        return verdict(KNOWN.get((cell.feature, cell.peer, cell.direction)), self.failure(cell))

    def makes(self, name: str, engine: str) -> bool:
        """Tells whether an engine makes tables with a feature."""
        feature = next(feature for feature in FEATURES if feature.name == name)
        try:
            self._table(feature, engine)
        except Exception:
            return False
        return True

    def _run(
        self,
        feature: Feature,
        peer: Engine,
        directions: Sequence[str],
        steps: Sequence[Callable[[], None]],
    ) -> None:
        failure: Exception | None = None
        for direction, step in zip(directions, steps, strict=True):
            # A table that they could not write is none to merge over; one that is read differently may be.
            if failure is None or direction == OVER_OURS or isinstance(failure, RowsDiffer):
                failure = _failure_of(step)
            self._failures[Cell(feature.name, peer.name, direction)] = failure

    def _theirs(self, feature: Feature, peer: Engine) -> tuple[Callable[[], None], Callable[[], None]]:
        maker = peer.name if peer.name in feature.makers else DELTA_SPARK
        path = self.folder / f"theirs-{peer.name}-{FEATURES.index(feature)}" / feature.folder
        first, second, third = merges(feature)
        rows = after_changes(feature, after_merge(rows_at_first(feature), first))
        rows = rows if maker == peer.name else after_merge(rows, second)

        def read_theirs() -> None:
            shutil.copytree(self._table(feature, maker), path)
            if maker != peer.name:
                peer.merge(feature, str(path), second)
                peer.change(feature, str(path))
            self._holds(feature, path, rows, self._ours, peer)

        def merge_over_theirs() -> None:
            self._refuses(feature, path, self._ours)
            self._ours.merge(feature, str(path), third)
            self._holds(feature, path, after_merge(rows, third), peer, self._ours)

        return read_theirs, merge_over_theirs

    def _of_ours(self, feature: Feature, peer: Engine) -> tuple[Callable[[], None], Callable[[], None]]:
        path = self.folder / f"ours-{peer.name}-{FEATURES.index(feature)}" / feature.folder
        first, second, _ = merges(feature)
        rows = after_merge(rows_at_first(feature), first)

        def read_ours() -> None:
            shutil.copytree(self._table(feature, DELTAMERGE), path)
            self._holds(feature, path, rows, peer, self._ours)

        def theirs_over_ours() -> None:
            self._refuses(feature, path, peer)
            peer.merge(feature, str(path), second)
            self._holds(feature, path, after_merge(rows, second), self._ours, peer)

        return read_ours, theirs_over_ours

    def _table(self, feature: Feature, engine: str) -> Path:
        """Makes a table that an engine has written, merged into and changed, once."""
        key = (feature.name, engine)
        if key not in self._made:
            path = self.folder / f"made-{engine}-{FEATURES.index(feature)}" / feature.folder
            try:
                self._make(feature, self._engines[engine], str(path))
                self._made[key] = path
            except Exception as error:
                self._made[key] = error
        made = self._made[key]
        if isinstance(made, Exception):
            raise made
        return made

    def _make(self, feature: Feature, engine: Engine, path: str) -> None:
        engine.make(feature, path)
        engine.merge(feature, path, merges(feature)[0])
        engine.change(feature, path)
        lacking = lacking_evidence(feature, path)
        assert not lacking, f"{engine.name} made a table without {lacking}"

    def _holds(self, feature: Feature, path: Path, rows: dict[str, Row], *readers: Engine) -> None:
        """Compares what engines read with what must be there, and with one another."""
        expected = canonical_lines(self.spark.sql(expected_query(feature, rows)))
        found = [reader.lines(str(path)) for reader in readers]
        for reader, lines in zip(readers, found, strict=True):
            if foreseen(feature, lines) != expected:
                raise RowsDiffer(f"{reader.name} reads {lines} where the table holds {expected}")
        if any(lines != found[0] for lines in found):
            raise RowsDiffer(f"{readers[0].name} reads {found[0]}, {readers[1].name} {found[1]}")

    def _refuses(self, feature: Feature, path: Path, engine: Engine) -> None:
        """Sees that an engine refuses what violates the table's rules; that nothing is left, the next reads show."""
        if not feature.violation:
            return
        try:
            engine.merge(feature, str(path), violating_merge(feature))
        except Exception:
            return
        raise NotRefused(f"{engine.name} merged what violates the table's rules: {dict(feature.violation)}")
