"""A process that is killed inside a commit, at every call of the operating system that it makes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as DeltaRs

from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.local_store import LocalStore
from deltamerge.storage.store import open_store
from deltamerge.txn.transaction import commit
from txn.tables import append, clock, create, prepare, write_file

# By the step what may be found afterwards: the version before or the new one.
STEPS = {
    "before open": 3,
    "after open": 3,
    "after write": 3,
    "before link": 3,
    "after link": 4,
    "before unlink": 3,
    "after unlink": 3,
    "before replace": 4,
    "after replace": 4,
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(name: str, call: Callable[..., Any], step: str) -> Callable[..., Any]:
    def called(*arguments: Any, **options: Any) -> Any:
        if step == f"before {name}":
            die()
        result = call(*arguments, **options)
        if step == f"after {name}":
            die()
        return result

    return called


def commit_and_die(root: str, step: str) -> None:
    """Runs in a process of its own: commits version 4, whose checkpoint is due, and dies on the way."""
    read = load_snapshot(open_store(root))
    prepared = prepare(read, write_file(read, [4]))
    if step == "after write":
        os.fsync = dying("write", os.fsync, step)
    os.link = dying("link", os.link, step)
    Path.open = dying("open", Path.open, step)  # type: ignore[method-assign]
    Path.unlink = dying("unlink", Path.unlink, step)  # type: ignore[method-assign]
    Path.replace = dying("replace", Path.replace, step)  # type: ignore[method-assign]
    commit(prepared, clock)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_killed_in_a_commit(tmp_path: Path, step: str) -> None:
    read = create(tmp_path, checkpointInterval="4")
    for number in (1, 2, 3):
        _, read = append(read, [number])
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    child = subprocess.run(
        [sys.executable, "-m", "faults.test_killed_commit", str(tmp_path), step],
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    version = STEPS[step]
    assert load_snapshot(open_store(str(tmp_path))).version == version
    table = DeltaRs(str(tmp_path))
    assert table.version() == version
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == list(range(1, version + 1))
    _, after = append(load_snapshot(open_store(str(tmp_path))), [100])
    assert after.version == version + 1
    assert after.files.num_files == version + 1
    assert DeltaRs(str(tmp_path)).to_pyarrow_table().num_rows == version + 1


class Hostile(LocalStore):
    """A store of another machine that fails as it is told, call by call.

    Args:
        answers: What it does with each commit that it is offered: ``lands`` and whether it says so, or not.
    """

    is_local = False

    def __init__(self, root: str, *answers: str) -> None:
        super().__init__(root)
        self.answers = list(answers)
        self.late: list[tuple[str, bytes]] = []

    def put_if_absent(self, path: str, content: bytes) -> None:
        answer = self.answers.pop(0) if self.answers else "ok"
        if answer == "late":
            # It lands once everybody has given up hope: as the next call comes in.
            self.late.append((path, content))
            raise TimeoutError("no answer within 30 s")
        for of_before in self.late:
            if not self.exists(of_before[0]):
                super().put_if_absent(*of_before)
        self.late.clear()
        if answer == "refused":
            raise ConnectionError("connection reset by peer")
        super().put_if_absent(path, content)
        if answer == "exists":
            raise FileExistsError(path)
        if answer == "lost":
            raise ConnectionError("connection reset by peer")
        if answer == "twice":
            # The client's own second attempt finds what its first one wrote.
            super().put_if_absent(path, content)


@pytest.mark.parametrize(
    "answers",
    [
        ("exists",),
        ("lost",),
        ("twice",),
        ("refused",),
        ("late",),
        ("late", "late"),
        ("refused", "late", "exists"),
        ("late", "refused", "lost"),
        ("lost", "ok", "exists", "twice", "late", "lost"),
    ],
)
def test_one_commit_whatever_the_store_answers(tmp_path: Path, answers: tuple[str, ...]) -> None:
    create(tmp_path)
    store = Hostile(str(tmp_path), *answers)
    names = set()
    for number in range(4):
        read = load_snapshot(store)
        prepared = prepare(read, write_file(read, [number]), txn_id=str(uuid.uuid4()))
        names.add(prepared.txn_id)
        assert commit(prepared, clock).version == number + 1
    assert load_snapshot(open_store(str(tmp_path))).version == 4
    assert DeltaRs(str(tmp_path)).to_pyarrow_table().num_rows == 4


if __name__ == "__main__":
    commit_and_die(*sys.argv[1:])
