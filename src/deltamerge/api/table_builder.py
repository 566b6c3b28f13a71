"""The builders that create tables, as delta-spark's Python API has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from deltamerge.api.arguments import check, names_of
from deltamerge.api.new_tables import create, find_place
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark.catalog import delta_location
from deltamerge.sql.names import parse_name, parse_table_name
from deltamerge.sql.statements.ast import TableName
from deltamerge.storage.credentials import StoreOptions
from deltamerge.write.definition import TableDefinition
from deltamerge.write.generated_columns import GENERATION_EXPRESSION
from deltamerge.write.identity_columns import identity_metadata


class DeltaColumnBuilder:
    """A column of a new table; every method but `build` changes the builder and returns it.

    Args:
        spark: The session.
        name: The column's name.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._type: str | DataType | None = None
        self._nullable = True
        self._metadata: dict[str, Any] = {}

    def dataType(self, dataType: str | DataType) -> DeltaColumnBuilder:
        """Set the column's type.

        Args:
            dataType: A `DataType` or its DDL.
        """
        self._type = dataType
        return self

    def nullable(self, nullable: bool) -> DeltaColumnBuilder:
        """Set whether the column may hold NULL.

        Args:
            nullable: Whether it may.
        """
        self._nullable = nullable
        return self

    def comment(self, comment: str) -> DeltaColumnBuilder:
        """Set the column's comment.

        Args:
            comment: The comment.
        """
        self._metadata["comment"] = comment
        return self

    def generatedAlwaysAs(self, expr: str) -> DeltaColumnBuilder:
        """Make the column a generated column.

        Args:
            expr: SQL over the table's other columns.
        """
        self._metadata[GENERATION_EXPRESSION] = expr
        return self

    def generatedAlwaysAsIdentity(self, start: int = 1, step: int = 1) -> DeltaColumnBuilder:
        """Make the column an identity column whose values only the table generates.

        Args:
            start: The first value.
            step: The difference between one value and the next; not 0.

        Raises:
            ValueError: The step is 0, or a value is no BIGINT.
        """
        self._metadata |= identity_metadata(start, step, allow_explicit_insert=False)
        return self

    def generatedByDefaultAsIdentity(self, start: int = 1, step: int = 1) -> DeltaColumnBuilder:
        """Make the column an identity column whose values an INSERT may also set.

        Args:
            start: The first value.
            step: The difference between one value and the next; not 0.

        Raises:
            ValueError: The step is 0, or a value is no BIGINT.
        """
        self._metadata |= identity_metadata(start, step, allow_explicit_insert=True)
        return self

    def build(self) -> StructField:
        """Return the column.

        Raises:
            ValueError: It has no type.
        """
        if self._type is None:
            raise ValueError(f"column {self._name} has no data type")
        data_type = self._type if isinstance(self._type, DataType) else DataType.fromDDL(self._type)
        return StructField(self._name, data_type, self._nullable, dict(self._metadata))


@dataclass(frozen=True)
class IdentityGenerator:
    """The values of an identity column.

    Args:
        start: The first value.
        step: The difference between one value and the next; not 0.
    """

    start: int = 1
    step: int = 1


@dataclass
class DeltaTableBuilder:
    """A table under construction; every method changes the builder and returns it, as in delta-spark.

    Args:
        spark: The session.
        opens: The class whose ``forPath`` and ``forName`` open the new table.
        mode: ``create``, ``create_if_not_exists``, ``replace`` or ``create_or_replace``.
        options: Options of the object store; see `DeltaTable.forPath`.
    """

    spark: SparkSession
    opens: Any
    mode: str
    options: StoreOptions = field(default_factory=dict, repr=False)
    name: str | None = None
    path: str | None = None
    definition: TableDefinition = field(default_factory=lambda: TableDefinition(StructType([])))

    def tableName(self, identifier: str) -> DeltaTableBuilder:
        """Set the table's name.

        After `deltamerge.register` the table gets an entry in the session's catalog. Otherwise its name stands for a
        folder in the session's warehouse, where `DeltaTable.forName` and `sql` find it; if `location` is set as well,
        the table is stored there and cannot be found by its name.

        Args:
            identifier: The name, perhaps with its database; ``delta.`path` `` names a path.
        """
        check(isinstance(identifier, str), "Identifier must be str.", identifier)
        self.name = identifier
        return self

    def location(self, location: str) -> DeltaTableBuilder:
        """Set where the table is stored.

        Args:
            location: A local path or a URL.
        """
        check(isinstance(location, str), "Location must be str.", location)
        self.path = location
        return self

    def comment(self, comment: str) -> DeltaTableBuilder:
        """Set the table's comment.

        Args:
            comment: The comment.
        """
        check(isinstance(comment, str), "Table comment must be str.", comment)
        self.definition = replace(self.definition, description=comment)
        return self

    def addColumn(
        self,
        colName: str | StructField,
        dataType: str | DataType | None = None,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> DeltaTableBuilder:
        """Add a column.

        Args:
            colName: Its name, or the whole field.
            dataType: Its type, or the type's DDL.
            nullable: Whether it may hold NULL.
            generatedAlwaysAs: SQL over the table's other columns for a generated column; an `IdentityGenerator` for
                an identity column whose values only the table generates.
            generatedByDefaultAs: An `IdentityGenerator` for an identity column whose values an INSERT may set too.
            comment: Its comment.

        Raises:
            ValueError: Both kinds of generation are set, the identity's step is 0, or a value of it is no BIGINT.
            TypeError: An argument has the wrong type, or there is no data type.
        """
        if isinstance(colName, StructField):
            return self._adding([colName])
        check(isinstance(colName, str), "Column name must be str.", colName)
        if not isinstance(dataType, (str, DataType)):
            raise TypeError(f"Column data type must be str or DataType. Found {dataType} with type {type(dataType)}")
        check(isinstance(nullable, bool), "Column nullable must be bool.", nullable)
        check(comment is None or isinstance(comment, str), "Column comment must be str.", comment)
        column = DeltaColumnBuilder(self.spark, colName).dataType(dataType).nullable(nullable)
        if comment is not None:
            column.comment(comment)
        if generatedAlwaysAs is not None and generatedByDefaultAs is not None:
            raise ValueError(
                "generatedByDefaultAs and generatedAlwaysAs cannot both be set.",
                [generatedByDefaultAs, generatedAlwaysAs],
            )
        if isinstance(generatedAlwaysAs, str):
            column.generatedAlwaysAs(generatedAlwaysAs)
        elif isinstance(generatedAlwaysAs, IdentityGenerator):
            column.generatedAlwaysAsIdentity(generatedAlwaysAs.start, generatedAlwaysAs.step)
        elif generatedAlwaysAs is not None:
            words = "Generated always as expression must be str or IdentityGenerator."
            check(False, words, generatedAlwaysAs)
        elif isinstance(generatedByDefaultAs, IdentityGenerator):
            column.generatedByDefaultAsIdentity(generatedByDefaultAs.start, generatedByDefaultAs.step)
        elif generatedByDefaultAs is not None:
            check(False, "Generated by default expression must be IdentityGenerator.", generatedByDefaultAs)
        return self._adding([column.build()])

    def addColumns(self, cols: StructType | Sequence[StructField]) -> DeltaTableBuilder:
        """Add columns.

        Args:
            cols: The columns, or a struct of them.
        """
        if isinstance(cols, list):
            for column in cols:
                check(isinstance(column, StructField), "Column in existing schema must be StructField.", column)
        else:
            check(isinstance(cols, StructType), "Schema must be StructType or a list of StructField.", cols)
        return self._adding(list(cols.fields if isinstance(cols, StructType) else cols))

    def partitionedBy(self, *cols: str | Sequence[str]) -> DeltaTableBuilder:
        """Set the partition columns.

        Args:
            cols: Their names, one by one or in one list.
        """
        self.definition = replace(self.definition, partition_columns=names_of(cols, "Partitioning column must be str."))
        return self

    def clusterBy(self, *cols: str | Sequence[str]) -> DeltaTableBuilder:
        """Set the columns by which OPTIMIZE clusters the table.

        Args:
            cols: Their names, one by one or in one list.
        """
        names = names_of(cols, "Clustering column must be str.")
        self.definition = replace(self.definition, clustered_by=tuple(map(parse_name, names)))
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder:
        """Set a table property.

        Args:
            key: Its name, such as ``delta.enableChangeDataFeed``.
            value: Its value.
        """
        both_strings = isinstance(key, str) and isinstance(value, str)
        check(both_strings, "Key and value of property must be string.", key, value)
        properties = {**self.definition.properties, key: value}
        self.definition = replace(self.definition, properties=properties)
        return self

    def execute(self) -> Any:  # noqa: ANN401
        """Create the table.

        Raises:
            DeltaAnalysisException: The table exists already, there is none to replace, or the definition needs a
                feature that is not implemented.
        """
        named = self._named()
        place = find_place(self.spark, named, self.path, self.options)
        create(place, self.definition, self.mode)
        if named.path is None and delta_location(self.spark, named.parts, self.options) is not None:
            return self.opens.forName(self.spark, self.name, options=self.options)
        opened = place.table.location if self.path is None else self.path
        return self.opens.forPath(self.spark, opened, self.options)

    def _named(self) -> TableName:
        if self.name is None:
            if self.path is None:
                raise DeltaAnalysisException(
                    "DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION",
                    "Table name or location has to be specified: call tableName or location.",
                )
            return TableName((self.path,), self.path)
        return TableName.of(parse_table_name(self.name))

    def _adding(self, fields: list[StructField]) -> DeltaTableBuilder:
        schema = StructType([*self.definition.schema.fields, *fields])
        self.definition = replace(self.definition, schema=schema)
        return self
