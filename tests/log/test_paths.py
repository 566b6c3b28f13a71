from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamerge.log.file_actions import DELETION_VECTOR, file_keys
from deltamerge.log.paths import canonical_path, canonical_paths, decode_path, encode_path, folders_up

SEGMENT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=8)
RELATIVE = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)


@settings(deadline=None)
@given(RELATIVE)
def test_encoding_is_undone_by_decoding(path: str) -> None:
    encoded = encode_path(path)
    assert encoded.isascii()
    assert decode_path(encoded) == path
    assert canonical_path(encoded, "/table") == path


@settings(deadline=None)
@given(st.lists(st.tuples(RELATIVE, st.sampled_from(["", "/abs/", "file:///abs/", "s3://b/"])), max_size=5))
def test_many_at_once_are_the_same_as_one_by_one(paths: list[tuple[str, str]]) -> None:
    spelled = [prefix + encode_path(path) for path, prefix in paths]
    assert list(canonical_paths(spelled, "/t")) == [canonical_path(path, "/t") for path in spelled]


@pytest.mark.parametrize(
    ("logged", "real"),
    [
        ("a.parquet", "a.parquet"),
        ("letter=%252F%252520%2525f/x", "letter=%2F%2520%25f/x"),
        ("a+b", "a+b"),
        ("c2=+%20%253D%25250/p", "c2=+ %3D%250/p"),
        ("special%20p@%23h", "special p@#h"),
        ("%E2%82%AC", "€"),
        ("é", "é"),
        ("broken%zz", "broken%zz"),
        ("part:1.parquet", "part:1.parquet"),
        ("file:///some/with%20space", "/some/with space"),
        ("file:/some/x", "/some/x"),
        ("/some/with%20space", "/some/with space"),
        ("s3://bucket/a%20b", "s3://bucket/a b"),
        ("./p=1//./b/./c", "p=1/b/c"),
        (".//a", "a"),
        ("s3://bucket//k/./x", "s3://bucket/k/x"),
        ("hdfs:///k//x", "hdfs:///k/x"),
        ("//k//x", "/k/x"),
        ("p=./a../x.", "p=./a../x."),
    ],
)
def test_decoding(logged: str, real: str) -> None:
    assert decode_path(logged) == real


@pytest.mark.parametrize(
    ("one", "other", "root"),
    [
        ("/some/x", "file:///some/x", "/table"),
        ("/some/x", "file:/some/x", "/table"),
        ("/some/with%20space/p@%23h", "file:///some/with%20space/p@%23h", "/table"),
        ("a%20b", "a b", "/table"),
        ("%61", "a", "/table"),
        ("a//b", "a/b", "/table"),
        ("./a", "a", "/table"),
        ("a/./b", "a/b", "/table"),
        ("/k/x", "s3://bucket/k/x", "s3://bucket/table"),
        ("S3://bucket//k//x", "s3://bucket/k/x", "s3://bucket/table"),
    ],
)
def test_two_spellings_of_one_file(one: str, other: str, root: str) -> None:
    assert canonical_path(one, root) == canonical_path(other, root)
    keys = file_keys(pa.chunked_array([[one, other]]), pa.chunked_array([pa.nulls(2, DELETION_VECTOR)]), root)
    assert keys.to_pylist() == [canonical_path(one, root)] * 2


@pytest.mark.parametrize(
    ("one", "other", "root"),
    [
        ("a", "A", "/table"),
        ("a+b", "a b", "/table"),
        ("a%2520b", "a%20b", "/table"),
        ("/table/a", "a", "/table"),
        ("file:///k/x", "/k/x", "s3://bucket/table"),
        ("s3://one/x", "s3://other/x", "s3://one"),
    ],
)
def test_two_files(one: str, other: str, root: str) -> None:
    assert canonical_path(one, root) != canonical_path(other, root)


@pytest.mark.parametrize("url", ["s3://bucket/a b%20/c:d", "abfss://c@account.dfs.core.windows.net/x y", "/local/x y"])
def test_absolute_paths_keep_their_authority(url: str) -> None:
    encoded = encode_path(url)
    assert " " not in encoded
    assert decode_path(encoded) == url


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        ("/a b/t", ["/a b/t", "/a b", "/"]),
        ("s3a://b/a#/t", ["s3a://b/a#/t", "s3a://b/a#", "s3a://b/"]),
        ("s3a://b", ["s3a://b/"]),
        ("abfss://c@a.net/t/", ["abfss://c@a.net/t", "abfss://c@a.net/"]),
        ("dbfs:/t", ["dbfs:/t", "dbfs:/"]),
        ("/t/_delta_log", []),
        ("/t/_delta_log/_sidecars", ["/t/_delta_log/_sidecars"]),
    ],
)
def test_folders_up(path: str, folders: list[str]) -> None:
    assert list(folders_up(path)) == folders
