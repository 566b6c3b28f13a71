"""Which rows of shared files two writers changed: what unites, what conflicts, what must be looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyroaring import BitMap64

from deltamerge.log.actions import AddFile, CommitInfo, DeletionVectorDescriptor, RemoveFile
from deltamerge.txn.conflicts import WinningCommit
from deltamerge.txn.row_conflicts import OtherChanges, Resolution, RowsToCheck, other_changes, resolve_rows

ROOT = "/tables/t"


def file(name: str, deleted: str = "", **changes: Any) -> AddFile:
    """A file with an inline vector that is named by the positions which it deletes."""
    vector = DeletionVectorDescriptor("i", deleted, None, 1, len(deleted)) if deleted else None
    return replace(AddFile(name, {}, 1, 0, deletion_vector=vector), **changes)


def winner(*files: AddFile | RemoveFile, blind: bool = False) -> WinningCommit:
    return WinningCommit(
        version=1,
        info=CommitInfo({"isBlindAppend": blind}),
        protocol=None,
        metadata=None,
        added=tuple(f for f in files if isinstance(f, AddFile)),
        removed=tuple(f for f in files if isinstance(f, RemoveFile)),
        app_ids=frozenset(),
        domains=frozenset(),
        row_id_high_water_mark=None,
    )


def regrown(before: AddFile, deleted: str) -> tuple[RemoveFile, AddFile]:
    return before.remove(0), file(before.path, deleted)


def others(*winners: WinningCommit, read: tuple[AddFile, ...], blind_appends: bool = True) -> OtherChanges:
    return other_changes(read, winners, ROOT, blind_appends=blind_appends)


def rows(positions: str) -> BitMap64:
    return BitMap64(map(int, positions))


def resolved(
    changes: OtherChanges, deleted: dict[str, str] | None = None, *rewritten: str, all_of_it: bool = True
) -> Resolution | None:
    vectors = {vector.unique_id: rows(vector.path_or_inline_dv) for vector in changes.vectors}
    of_files = {path: rows(positions) for path, positions in (deleted or {}).items()}
    return resolve_rows(changes, of_files, frozenset(rewritten), vectors, deletes_what_matched=all_of_it)


A = file("a")


def test_other_rows_of_one_file_unite() -> None:
    first, second = file("a", "1"), file("a", "15")
    changes = others(winner(*regrown(A, "1")), winner(*regrown(first, "15")), read=(A, file("b")))
    assert changes.states == {"a": (A, first, second)}
    assert resolved(changes, {"a": "27"}) == Resolution({"a": second}, ())


@pytest.mark.parametrize("mine", ["1", "5", "125"])
def test_the_same_row_conflicts(mine: str) -> None:
    changes = others(winner(*regrown(A, "1")), winner(*regrown(file("a", "1"), "15")), read=(A,))
    assert resolved(changes, {"a": mine}) is None


def test_a_vector_that_was_there_is_nobodys_change() -> None:
    before = file("a", "03")
    changes = others(winner(*regrown(before, "034")), read=(before,))
    found = resolved(changes, {"a": "5"}, all_of_it=False)
    now = file("a", "034")
    assert found == Resolution({"a": now}, (RowsToCheck(now, rows("4")),)), "what the other deleted may have matched"


def test_restored_rows_are_looked_at() -> None:
    before = file("a", "03")
    found = resolved(others(winner(*regrown(before, "0")), read=(before,)), {"a": "5"})
    assert found is not None
    assert found.united == {"a": file("a", "0")}
    assert [r.positions for r in found.to_check] == [rows("3")]


def test_a_file_that_was_rewritten() -> None:
    compacted = others(winner(A.remove(0, False), file("c", data_change=False)), read=(A,))
    assert resolved(compacted, {"a": "1"}) is None
    assert resolved(compacted, {}, "a") is None
    assert resolved(compacted) == Resolution({}, ()), "no row of it mattered"
    assert resolved(compacted, all_of_it=False) == Resolution({}, (RowsToCheck(A),))


def test_a_file_that_both_touch_is_not_written_again() -> None:
    assert resolved(others(winner(*regrown(A, "1")), read=(A,)), {}, "a") is None


def test_restored_and_then_compacted_rows_all_count() -> None:
    before = file("a", "03")
    restored = winner(*regrown(before, "0"))
    compacted = winner(file("a", "0").remove(0, False), file("c", data_change=False))
    assert resolved(others(restored, compacted, read=(before,))) == Resolution({}, (RowsToCheck(A),))


def test_added_rows_are_looked_at_even_where_they_are_compacted_later() -> None:
    new = file("n")
    compacted = winner(new.remove(0, False), file("c", data_change=False))
    assert resolved(others(winner(new), compacted, read=(A,))) == Resolution({}, (RowsToCheck(new),))
    twice = others(winner(new), winner(*regrown(new, "1")), read=(A,))
    assert twice.added == {"n": new}, "with all rows that it ever had"


def test_blind_appends_count_only_under_serializable() -> None:
    appended = winner(file("n"), blind=True)
    assert others(appended, read=(A,), blind_appends=False).added == {}
    assert others(appended, read=(A,), blind_appends=True).added == {"n": file("n")}


@pytest.mark.parametrize("all_of_it", [True, False])
@pytest.mark.parametrize("vector", ["", "0", "0345"])
def test_a_file_that_was_removed_and_restored_is_looked_at_once(vector: str, all_of_it: bool) -> None:
    before, now = file("a", "03"), file("a", "034")
    read = (before, file("b"))
    for commits in (
        [winner(before.remove(0)), winner(file("a", vector))],
        [winner(*regrown(before, "034")), winner(now.remove(0)), winner(file("a", vector))],
        [winner(*regrown(before, "0")), winner(file("a", "0").remove(0)), winner(file("a", vector))],
    ):
        changes = others(*commits, read=read)
        assert resolved(changes, {"b": "1"}, all_of_it=all_of_it) == Resolution({}, (RowsToCheck(A),))
        assert resolved(changes, {"a": "5"}, all_of_it=all_of_it) is None
        assert resolved(changes, {}, "a", all_of_it=all_of_it) is None


def test_two_spellings_of_one_path() -> None:
    plain, encoded = file("p=a b/x"), file("p=a%20b/x")
    grown = file(encoded.path, "1")
    changes = others(winner(encoded.remove(0), grown), read=(plain,))
    assert list(changes.states) == ["p=a b/x"]
    assert resolved(changes, {"p=a b/x": "1"}) is None


def test_files_that_were_not_read_do_not_matter() -> None:
    assert resolved(others(winner(*regrown(file("far"), "1")), read=(A,)), {"a": "1"}) is not None
