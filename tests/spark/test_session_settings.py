"""Settings that are held for a while are put back, whatever happens and whoever holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from deltamerge.spark.held_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Conf:
    """Settings, one of which cannot be set."""

    def __init__(self, failing: str | None = None) -> None:
        self.values: dict[str, str] = {"a": "before"}
        self.failing = failing

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.values.get(key, default)

    def set(self, key: str, value: str) -> None:
        if key == self.failing:
            raise KeyboardInterrupt
        self.values[key] = value

    def unset(self, key: str) -> None:
        self.values.pop(key, None)


class Java:
    def sessionUUID(self) -> str:  # noqa: N802 - as in Java
        return "one session"


class Session:
    def __init__(self, conf: Conf) -> None:
        self.conf = conf
        self._jsparkSession = Java()


def session(conf: Conf) -> SparkSession:
    return cast("SparkSession", Session(conf))


def test_an_interrupt_while_they_are_set() -> None:
    conf = Conf(failing="b")
    with pytest.raises(KeyboardInterrupt), session_settings(session(conf), {"a": "held", "b": "held"}):
        pass
    assert conf.values == {"a": "before"}
    conf.failing = None
    with session_settings(session(conf), {"a": "held", "b": "held"}):
        assert conf.values == {"a": "held", "b": "held"}
    assert conf.values == {"a": "before"}


def test_a_session_that_is_gone_afterwards() -> None:
    """What was done with the setting is done, also where it cannot be put back."""

    class Gone(Conf):
        def set(self, key: str, value: str) -> None:
            if value == "before":
                raise ConnectionError("the server is gone")
            super().set(key, value)

    conf = Gone()
    done = False
    with session_settings(session(conf), {"a": "held"}):
        done = True
    assert done


def test_two_objects_of_one_session() -> None:
    conf = Conf()
    first = session_settings(session(conf), {"a": "held"})
    second = session_settings(session(conf), {"a": "held"})
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert conf.values == {"a": "held"}
    second.__exit__(None, None, None)
    assert conf.values == {"a": "before"}
