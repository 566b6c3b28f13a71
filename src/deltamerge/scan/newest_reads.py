"""That a frame has read a table at what was its newest version, as the frame's plan tells it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from deltamerge.scan.paths import is_same_place
from deltamerge.spark.session import is_connect
from deltamerge.spark.table import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltamerge.log.snapshot import Snapshot
    from deltamerge.spark.table import Table

JavaObject: TypeAlias = Any

NEWEST = "deltamerge.newestVersion"
"""The option of a reader, and the tag of a plan, that has it as JSON."""


@dataclass(frozen=True)
class NewestRead:
    """That a frame has read a table at what was its newest version.

    Args:
        table_id: The id in the table's metadata; None where the frame does not tell it.
        columns: A digest of the columns' names and types; empty where nothing can read it again in the frame's plan.
    """

    root: str
    table_id: str | None
    version: int
    columns: str = ""

    @staticmethod
    def of(table: Table, snapshot: Snapshot) -> NewestRead:
        columns = repr([(f.name, f.dataType.json(), f.nullable) for f in spark_schema(snapshot).fields])
        digest = hashlib.sha256(columns.encode()).hexdigest()
        return NewestRead(table.store.absolute(""), snapshot.metadata.id, snapshot.version, digest)

    @staticmethod
    def from_json(text: str) -> NewestRead:
        return NewestRead(**json.loads(text))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def mark(self) -> dict[str, str]:
        """Options of a reader that mean nothing to Spark, by which a frame's plan is known later."""
        return {NEWEST: self.to_json()}

    def is_of(self, table: Table, snapshot: Snapshot) -> bool:
        """Return whether it has read this table: clusters may have different ones at one path, one id or both."""
        root = table.store.absolute("")
        return is_same_place(self.root, root) and (self.table_id in (None, snapshot.metadata.id) or self.root == root)


def tagged(frame: DataFrame, read: NewestRead) -> DataFrame:
    """Mark a frame's plan as the whole of such a read."""
    if is_connect(frame.sparkSession):
        connect: Any = frame
        # Plans travel to servers that lack this package.
        setattr(connect._plan, NEWEST, read.to_json())
    else:
        tag(frame._jdf.queryExecution().analyzed(), frame.sparkSession, read)
    return frame


def tag(plan: JavaObject, spark: SparkSession, read: NewestRead) -> None:
    plan.setTagValue(_tag_of(spark), read.to_json())


def tag_in(plan: JavaObject, spark: SparkSession) -> NewestRead | None:
    found = plan.getTagValue(_tag_of(spark))
    return NewestRead.from_json(found.get()) if found.isDefined() else None


def _tag_of(spark: SparkSession) -> JavaObject:
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.spark.sql.catalyst.trees.TreeNodeTag(NEWEST)
