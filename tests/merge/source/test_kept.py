"""What a merge keeps of its source for the next run."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

import pytest

from deltamerge.merge.source.kept import KeptSource


def test_a_source_is_made_once_for_each_key() -> None:
    done: list[str] = []

    def made(name: str) -> str:
        done.append(f"make {name}")
        return name

    def release(name: str) -> None:
        done.append(f"release {name}")

    with KeptSource() as kept:
        for key, name in (((1, "a"), "a"), ((1, "a"), "b"), ((2, "a"), "c")):
            assert kept.once(key, partial(made, name), release) == ("a" if key[0] == 1 else "c")
        kept.forget()
        assert kept.once((2, "a"), lambda: made("d"), release) == "d"
    assert done == ["make a", "release a", "make c", "release c", "make d", "release d"]


def test_nothing_is_kept_of_what_fails() -> None:
    def fails(*_: object) -> NoReturn:
        raise ValueError("fails")

    with KeptSource() as kept:
        with pytest.raises(ValueError, match="fails"):
            kept.once(1, fails, fails)
        assert kept.once(1, lambda: 2, fails) == 2
    # To release it fails, which is no failure of the merge.
