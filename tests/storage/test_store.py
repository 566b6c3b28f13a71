from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from obstore.store import MemoryStore

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.hadoop_store import FoundFile, HadoopStore
from deltamerge.storage.local_store import TEMP_SUFFIX
from deltamerge.storage.object_store import ObjectStore
from deltamerge.storage.store import LocalStore, Store, open_store
from deltamerge.storage.task_files import NotOpened

NAMES = [
    "a b",
    "a%20b",
    "x[1]",
    "{z}",
    "k=v",
    "c:d",
    "h#1",
    "é",
    "p+q",
    "a%2Fb",
    "q?r",
    "s*t",
    "~v",
    "d,e",
    "'q'",
]
ROOTS = ["plain", "a b%20[x]{y}:=#é+ %"]


@pytest.fixture(params=[*ROOTS, "object store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "object store":
        return ObjectStore("s3://bucket/a b%20/{t}", MemoryStore(), "a b%20/{t}")
    return open_store(str(tmp_path / request.param))


def test_names_are_the_real_ones(store: Store) -> None:
    paths = sorted([*NAMES, *(f"{name}/{name}" for name in ["d f", "d%20f", "k=é:1"])])
    for path in paths:
        store.put(path, path.encode())
    assert [file.path for file in store.list()] == paths
    if store.is_local:
        found = [str(path.relative_to(store.root)) for path in Path(store.root).rglob("*") if path.is_file()]
        assert sorted(found) == paths
    for file in store.list():
        assert store.get(file.path) == file.path.encode()
        assert file.size == len(file.path.encode())
        assert store.exists(file.path)
        assert store.absolute(file.path) == f"{store.root}/{file.path}"
        with store.open_input(file.path) as opened:
            opened.seek(-1, os.SEEK_END)
            assert opened.read() == file.path.encode()[-1:]
            opened.seek(0)
            assert opened.read(2) == file.path.encode()[:2]
    store.delete([*paths, "not there"])
    assert store.list() == []


def test_listing(store: Store) -> None:
    for path in ["log/1", "log/2", "log/3", "log/_sub/4", "log2/5", "6"]:
        store.put(path, b"")
    assert [file.path for file in store.list("log")] == ["log/1", "log/2", "log/3", "log/_sub/4"]
    assert [file.path for file in store.list_folder("log")] == ["log/1", "log/2", "log/3"]
    assert [file.path for file in store.list_folder("log", "log/1")] == ["log/2", "log/3"]
    assert [file.path for file in store.list_folder("")] == ["6"]
    assert store.list("nowhere") == store.list_folder("nowhere") == []
    assert store.list_folder("log")[0].name == "1"


def test_files_that_others_make_and_delete_while_a_folder_is_listed(tmp_path: Path) -> None:
    store, done = open_store(str(tmp_path)), threading.Event()
    store.put("kept", b"")

    def write() -> None:
        number = 0
        while not done.is_set():
            store.put_if_absent(f"log/{number}", b"")
            store.delete([f"log/{number}"])
            number += 1

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            for _ in range(2_000):
                assert "kept" in {file.path for file in store.list()}
                store.list_folder("log")
        finally:
            done.set()
        writing.result()


class Vanishing:
    """HDFS as it is while a folder below the listed one goes."""

    def __init__(self, times: int) -> None:
        self.times = times

    def files(self, folder: str, *, recursive: bool, after: str = "") -> Iterator[FoundFile]:
        if folder == "/t/nowhere":
            raise FileNotFoundError(folder)
        yield FoundFile(f"{folder}/a", 1, 1)
        if recursive and self.times:
            self.times -= 1
            raise FileNotFoundError(f"{folder}/_temporary/0")


def test_a_folder_that_vanishes_below_a_listed_one() -> None:
    def store(times: int) -> HadoopStore:
        return HadoopStore("hdfs://h/t", cast(Any, Vanishing(times)), NotOpened("no tasks"))

    assert [file.path for file in store(2).list("x")] == ["x/a"]
    assert store(2).list("nowhere") == []
    with pytest.raises(FileNotFoundError):
        store(9).list("x")


def test_put_if_absent_keeps_the_first(store: Store) -> None:
    store.put_if_absent("a/b", b"first")
    with pytest.raises(FileExistsError):
        store.put_if_absent("a/b", b"second")
    assert store.get("a/b") == b"first"
    store.put("a/b", b"third")
    assert store.get("a/b") == b"third"
    assert [file.path for file in store.list()] == ["a/b"]


def test_rename_replaces(store: Store) -> None:
    store.put("a", b"1")
    store.put("b/c", b"2")
    store.rename("a", "b/c")
    assert store.get("b/c") == b"1"
    assert not store.exists("a")


def test_what_is_not_there(store: Store) -> None:
    with pytest.raises(FileNotFoundError):
        store.get("nowhere")
    with pytest.raises(FileNotFoundError):
        store.open_input("nowhere").read()
    assert not store.exists("nowhere")


def test_replaced_file_has_another_tag(store: Store) -> None:
    store.put("a", b"1")
    before = store.list()[0]
    store.put("a", b"2")
    assert store.list()[0] != before
    assert store.list()[0].e_tag != before.e_tag


def test_threads_race_for_one_name(store: Store) -> None:
    gate = threading.Barrier(8)

    def write(number: int) -> int | None:
        gate.wait()
        try:
            store.put_if_absent("log/0.json", f"{number}".encode() * 1000)
        except FileExistsError:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(write, range(8)) if number is not None]
    assert len(winners) == 1
    assert store.get("log/0.json") == f"{winners[0]}".encode() * 1000
    assert [file.path for file in store.list()] == ["log/0.json"]


def _race(root: Any, gate: Any, results: Any) -> None:
    local = LocalStore(root)
    for version in range(50):
        gate.wait()
        try:
            local.put_if_absent(f"{version}.json", f"{os.getpid()} ".encode() * 500)
            results.put(version)
        except FileExistsError:
            pass


@pytest.mark.slow
def test_processes_race_for_each_version(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(2), context.Queue()
    racers = [context.Process(target=_race, args=(str(tmp_path), gate, results)) for _ in range(2)]
    for racer in racers:
        racer.start()
    won = sorted(results.get(timeout=60) for _ in range(50))
    for racer in racers:
        racer.join()
    assert won == list(range(50))
    assert results.empty()
    for version in range(50):
        assert len(set((tmp_path / f"{version}.json").read_text().split())) == 1
    assert len(list(tmp_path.iterdir())) == 50


WRITER = """
import sys
from deltamerge.storage.local_store import LocalStore
store = LocalStore(sys.argv[1])
print("ready", flush=True)
for version in range(1_000_000):
    store.put_if_absent(f"{version}.json", b"x" * 100_000 + b"\\n")
    if version == 3:
        print("writing", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_killed_writer_leaves_no_half_file(tmp_path: Path, attempt: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with writer:
        assert writer.stdout is not None
        assert [writer.stdout.readline().strip() for _ in range(2)] == ["ready", "writing"]
        writer.send_signal(signal.SIGKILL)
    left = list(tmp_path.iterdir())
    assert len(left) >= 4
    for path in left:
        if path.suffix == ".json":
            assert path.stat().st_size == 100_001
        else:
            assert path.name.startswith(".")
            assert path.name.endswith(TEMP_SUFFIX)


def test_stale_hadoop_checksum_goes_with_what_it_was_for(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    checksum = tmp_path / ".a.crc"
    writes: list[Callable[[], object]] = [
        lambda: store.put("a", b"1"),
        lambda: store.put("a", b"2"),
        lambda: store.delete(["a"]),
        lambda: store.put_if_absent("a", b"3"),
        lambda: store.rename("a", "b"),
    ]
    for write in writes:
        checksum.write_bytes(b"crc")
        write()
        assert not checksum.exists()


def test_lost_race_keeps_the_winners_checksum(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("a", b"1")
    (tmp_path / ".a.crc").write_bytes(b"crc")
    with pytest.raises(FileExistsError):
        store.put_if_absent("a", b"2")
    assert (tmp_path / ".a.crc").exists()


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}", "{}/", "{}//"])
def test_spellings_of_a_local_root(tmp_path: Path, spelling: str) -> None:
    store = open_store(spelling.format(tmp_path))
    assert store.root == str(tmp_path)
    assert store.absolute("a%20b/c d") == f"{tmp_path}/a%20b/c d"
    assert store.absolute("/other/x") == "/other/x"
    assert store.absolute("s3://b/x") == "s3://b/x"


def test_relative_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("a/b").root == str(tmp_path / "a/b")
    assert open_store(".").root == str(tmp_path)
    assert open_store("./a/../b//c/").root == str(tmp_path / "b/c")
    assert open_store(f"file:/{tmp_path}/../x").root == str(tmp_path.parent / "x")


@pytest.mark.parametrize(
    "root",
    ["s3://bucket/a b", "s3a://bucket/t", "gs://bucket/t", "abfss://c@account.dfs.core.windows.net/a%20b"],
)
def test_object_stores_open_without_a_request(root: str) -> None:
    store = open_store(root + "/", {"allow_http": "true"})
    assert not store.is_local
    assert store.root == root
    assert store.absolute("x y") == f"{root}/x y"


@pytest.mark.parametrize("root", ["s3://b//t", "s3://b/./x/../t/", "s3:////b/t"])
def test_urls_are_spelled_as_spark_spells_them(root: str) -> None:
    assert open_store(root, {"allow_http": "true"}).absolute("x y") == "s3://b/t/x y"


@pytest.mark.parametrize("root", ["oss://host/t", "dbfs:/t", "wat://x/y"])
def test_unknown_scheme(root: str) -> None:
    with pytest.raises(DeltaTableException, match="no store"):
        open_store(root)


def test_wrong_option_of_an_object_store() -> None:
    with pytest.raises(DeltaTableException, match="cannot be opened"):
        open_store("s3://bucket/t", {"no_such_option": "1"})


def test_absolute_path_into_the_same_bucket() -> None:
    inner = MemoryStore()
    ObjectStore("s3://bucket/one", inner, "one").put("x", b"1")
    other = ObjectStore("s3://bucket/two/deep", inner, "two/deep")
    assert other.get("s3://bucket/one/x") == b"1"
    # Spark names it so, in the log of a shallow clone.
    assert other.get("s3a://bucket/one/x") == b"1"
    with pytest.raises(FileNotFoundError):
        other.get("s3://elsewhere/one/x")
