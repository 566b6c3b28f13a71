"""PySpark's calls on a session: ``sql``, ``table``, its builder and its catalog."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from deltamerge.api.load_frame import Load, load_table
from deltamerge.api.run_sql import formatted_sql, sql
from deltamerge.as_jar.recorded import Original
from deltamerge.as_jar.served import is_served, register_once, with_source
from deltamerge.as_jar.temp_views import update_views, updated_for_statement
from deltamerge.spark.config import DEFAULTS
from deltamerge.spark.data_source import drop_missing_catalog
from deltamerge.spark.own_calls import own_calls
from deltamerge.sql.names import parse_table_name

_Frames: TypeAlias = Callable[..., DataFrame]
_USES_SOURCE = re.compile(r"\busing\s+delta\b", re.IGNORECASE)


def run_sql(original: _Frames, self: SparkSession, /, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: ANN401
    with own_calls() as is_own:
        if is_own or not is_served(self):
            return original(self, sqlQuery, args, **kwargs)
        if _USES_SOURCE.search(sqlQuery):
            register_once(self)
        with updated_for_statement(self, sqlQuery, args):
            if not kwargs:
                return with_source(self, partial(sql, self, sqlQuery, args))
            found = formatted_sql(self, sqlQuery, args, kwargs)
            return with_source(self, partial(original, self, sqlQuery, args, **kwargs)) if found is None else found


def table(original: _Frames, self: SparkSession, /, tableName: str) -> DataFrame:
    if not isinstance(tableName, str) or not is_served(self):
        return original(self, tableName)
    update_views(self, [parse_table_name(tableName)])
    found = load_table(self, tableName, Load())
    return with_source(self, partial(original, self, tableName)) if found is None else found


def made_session(original: Original, self: Any) -> SparkSession:  # noqa: ANN401
    session: SparkSession = original(self)
    drop_missing_catalog(session)
    return session


def conf_value(original: Original, self: Any, /, key: str, *default: Any, **kwargs: Any) -> str | None:  # noqa: ANN401
    """Return a setting; of one of Delta's that is not set its default, which Spark knows from the JAR alone."""
    if not default and not kwargs and key in DEFAULTS:
        default = (DEFAULTS[key],)
    value: str | None = original(self, key, *default, **kwargs)
    return value
