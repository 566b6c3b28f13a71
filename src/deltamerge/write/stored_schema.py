"""What of a field's metadata and values is stored, and what of it has an effect.

The metadata of generated and identity columns is inert in tables whose protocol lacks the feature.
"""

from __future__ import annotations

from pyspark.sql.types import BinaryType, CharType, StringType, StructField, StructType

from deltamerge.log.protocol import writer_features
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.limited_types import limited_type
from deltamerge.spark.table import spark_schema
from deltamerge.write.generated_columns import GENERATION_EXPRESSION
from deltamerge.write.identity_columns import IDENTITY

_MARKS = {"generatedColumns": GENERATION_EXPRESSION, "identityColumns": IDENTITY}


def schema_to_write(snapshot: Snapshot) -> StructType:
    """Return a table's schema without inert metadata.

    Delta: GeneratedColumn.satisfyGeneratedColumnProtocol, ColumnWithDefaultExprUtils.satisfiesIdentityColumnProtocol.
    """
    features = writer_features(snapshot.protocol)
    inert = tuple(mark for feature, mark in _MARKS.items() if feature not in features)
    schema = spark_schema(snapshot)
    if not inert:
        return schema
    fields = []
    for f in schema.fields:
        metadata = {k: v for k, v in f.metadata.items() if not k.startswith(inert)}
        fields.append(StructField(f.name, f.dataType, f.nullable, metadata))
    return StructType(fields)


def schema_to_commit(schema: StructType, snapshot: Snapshot) -> StructType:
    """Restore inert metadata in a schema to be committed."""
    before = {f.name: f.metadata for f in spark_schema(snapshot).fields}
    return StructType(
        [StructField(f.name, f.dataType, f.nullable, {**before.get(f.name, {}), **f.metadata}) for f in schema.fields]
    )


def stored_sql(value: str, field: StructField, *, is_partition: bool) -> str:
    """Return SQL for a plain value of a column's type as it is stored: CHAR padded, no empty string in partitions.

    Protocol: Partition Value Serialization. Delta: TransactionalWrite.convertEmptyToNullIfNeeded.
    """
    limited = limited_type(field)
    if isinstance(limited, CharType):
        value = f"rpad({value}, greatest(length({value}), {limited.length}), ' ')"
    may_be_null = is_partition and isinstance(field.dataType, (BinaryType, StringType))
    return f"CASE WHEN length({value}) > 0 THEN {value} END" if may_be_null else value
