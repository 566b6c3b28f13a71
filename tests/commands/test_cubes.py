"""Which files of a clustered table OPTIMIZE rewrites, and into which cubes."""

from __future__ import annotations

from dataclasses import replace

from deltamerge.commands.cubes import CLUSTERING_PROVIDER, files_to_cluster, new_cube, packed_cubes
from deltamerge.log.actions import AddFile

COLUMNS = ("a", "b")


def file(path: str, size: int = 10, tags: dict[str, str | None] | None = None) -> AddFile:
    provider = None if tags is None else CLUSTERING_PROVIDER
    return AddFile(path, {}, size, 0, data_change=False, tags=tags, clustering_provider=provider)


def paths(files: list[AddFile]) -> list[str]:
    return [found.path for found in files]


def test_the_tag_says_which_curve_was_used() -> None:
    cube = new_cube(COLUMNS)
    assert cube["ZCUBE_ZORDER_BY"] == '["a","b"]'
    assert cube["ZCUBE_ZORDER_CURVE"] == "zorder"
    assert cube["ZCUBE_ID"] != new_cube(COLUMNS)["ZCUBE_ID"]


def test_cubes_that_are_large_enough_stay() -> None:
    large, small = new_cube(COLUMNS), new_cube(COLUMNS)
    files = [file("l1", 60, large), file("l2", 60, large), file("s", 30, small), file("new")]
    assert paths(files_to_cluster(files, COLUMNS, 100)) == ["new", "s"]
    assert paths(files_to_cluster(files[:2], COLUMNS, 100)) == []
    assert sorted(paths(files_to_cluster(files, COLUMNS, 1000))) == ["l1", "l2", "new", "s"]


def test_one_small_cube_by_itself_stays() -> None:
    cube = new_cube(COLUMNS)
    files = [file("x", 1, cube), file("y", 1, cube)]
    assert files_to_cluster(files, COLUMNS, 100) == []
    assert paths(files_to_cluster([*files, file("z", 1, new_cube(COLUMNS))], COLUMNS, 100))[0] in ("x", "z")


def test_files_of_other_columns_and_of_other_implementations() -> None:
    other = new_cube(("c",))
    files = [file("other columns", 1000, other), replace(file("foreign"), clustering_provider="theirs")]
    assert paths(files_to_cluster(files, COLUMNS, 100)) == ["other columns"]


def test_cubes_are_of_their_size_or_a_little_larger() -> None:
    files = [file(str(number), 40) for number in range(5)]
    assert [paths(of) for of in packed_cubes(files, 70)] == [["0", "1"], ["2", "3"], ["4"]]
    assert packed_cubes([], 70) == []
