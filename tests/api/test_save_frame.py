"""What the calls on a writer ask for."""

from __future__ import annotations

import pytest

from deltamerge.api.save_frame import Save


def asked(*calls: tuple[str, tuple[object, ...], dict[str, object]]) -> Save:
    save = Save()
    for name, args, kwargs in calls:
        save = save.with_call(name, args, kwargs)
    return save


def test_calls_of_a_writer_are_kept() -> None:
    save = asked(
        ("format", ("Delta",), {}),
        ("mode", ("ErrorIfExists",), {}),
        ("partitionBy", (["a", "b"],), {}),
        ("option", ("delta.appendOnly", True), {}),
        ("option", (), {"key": "mergeSchema", "value": "True"}),
        ("options", (), {"txnVersion": 3, "path": None}),
        ("mode", (None,), {}),
    )
    assert (save.source, save.mode, save.partitions) == ("delta", "error", ("a", "b"))
    assert save.options == {"delta.appendonly": "true", "mergeschema": "True", "txnversion": "3"}
    assert save.properties == {"delta.appendOnly": "true"}
    assert save.request.flag("mergeSchema")
    assert not save.request.flag("overwriteSchema")


@pytest.mark.parametrize(("given", "mode"), [("append", "append"), ("OVERWRITE", "overwrite"), ("default", "error")])
def test_save_modes(given: str, mode: str) -> None:
    assert asked(("mode", (), {"saveMode": given})).mode == mode


def test_partition_columns_by_an_option() -> None:
    assert asked(("option", ("partitionBy", "a, b"), {})).partitions == ("a", "b")
