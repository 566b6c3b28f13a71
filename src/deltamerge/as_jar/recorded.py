"""What the calls on a reader or writer of PySpark asked for so far."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from pyspark.sql import SparkSession

from deltamerge.api.load_frame import Load
from deltamerge.api.save_frame import Save

Original: TypeAlias = Callable[..., Any]
Call: TypeAlias = Callable[..., Any]
"""What takes a method's place: it gets the original before the arguments."""

_STATE = "_deltamerge_asked"
_State = TypeVar("_State", Load, Save)


def replace_method(of: Any, name: str, call: Call) -> None:  # noqa: ANN401
    original = getattr(of, name)

    @functools.wraps(original)
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return call(original, self, *args, **kwargs)

    setattr(of, name, method)


def record(name: str, state: type[Load | Save], original: Original, self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    setattr(self, _STATE, getattr(self, _STATE, state()).with_call(name, args, kwargs))
    return original(self, *args, **kwargs)


def session_of(call: Any) -> SparkSession:  # noqa: ANN401
    """Return the session of a reader or writer."""
    names = ("_spark", "_client", "_session")
    session: SparkSession = next(getattr(call, name) for name in names if hasattr(call, name))
    return session


def asked_of(call: Any, asked: _State, given: Mapping[str, Any], options: Mapping[str, Any]) -> _State:  # noqa: ANN401
    """Return what a reader or writer was asked for, by its calls so far and this one."""
    asked = getattr(call, _STATE, asked)
    for name, value in given.items():
        if value is not None:
            asked = asked.with_call(name, (value,), {})
    return asked.with_call("options", (), options)
