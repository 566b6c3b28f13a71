"""Values in the shape of a target column: casts, and structs field by field by name."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark import columns as F
from deltamerge.spark.nested_types import contains, matching_inner_types, with_inner
from deltamerge.write.store_assignment import StoreAssignment, is_widening


def same_name(left: str, right: str, case_sensitive: bool) -> bool:
    return left == right if case_sensitive else left.lower() == right.lower()


def find_field(schema: StructType, name: str, case_sensitive: bool) -> int | None:
    if case_sensitive:
        return schema.names.index(name) if name in schema.names else None
    lower = name.lower()
    return next((index for index, known in enumerate(schema.names) if known.lower() == lower), None)


def same_shape(left: DataType, right: DataType) -> bool:
    """Return whether two types are equal but for nullability and metadata, with the same names in the same order."""
    if isinstance(left, StructType) and isinstance(right, StructType):
        return left.names == right.names and all(
            same_shape(a.dataType, b.dataType) for a, b in zip(left.fields, right.fields, strict=True)
        )
    inner = matching_inner_types(left, right)
    return all(same_shape(one, other) for _, one, other in inner) if inner else left == right


def check_same_fields(
    source: DataType,
    target: DataType,
    column: str,
    clause: str,
    case_sensitive: bool,
    *,
    allow_missing_struct_field: bool,
) -> None:
    """Refuse a value whose structs lack fields of the target's or have others, at any depth.

    Raises:
        DeltaAnalysisException: DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION. Delta: castIfNeeded, CastByName.
    """

    def check(given: DataType, wanted: DataType, name: str) -> None:
        check_same_fields(
            given, wanted, name, clause, case_sensitive, allow_missing_struct_field=allow_missing_struct_field
        )

    if isinstance(source, StructType) and isinstance(target, StructType):
        lacked = [f.name for f in target.fields if find_field(source, f.name, case_sensitive) is None]
        missing = [] if allow_missing_struct_field else lacked
        extra = [f.name for f in source.fields if find_field(target, f.name, case_sensitive) is None]
        if missing or extra:
            problems = [f"the value lacks {', '.join(missing)}"] if missing else []
            problems += [f"the column lacks {', '.join(extra)}"] if extra else []
            raise DeltaAnalysisException(
                "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
                f"Cannot cast {source.simpleString()} to {target.simpleString()}. All nested columns must match: "
                f"for column {column} {' and '.join(problems)}. In: {clause}",
                parameters={"fromCatalog": source.simpleString(), "toCatalog": target.simpleString()},
            )
        for field in target.fields:
            index = find_field(source, field.name, case_sensitive)
            if index is not None:
                check(source.fields[index].dataType, field.dataType, f"{column}.{field.name}")
    for _, given, wanted in matching_inner_types(source, target):
        check(given, wanted, column)


def unknown_fields(
    source: DataType, target: DataType, above: tuple[str, ...] = (), *, case_sensitive: bool
) -> list[str]:
    """Return the paths, such as ``address.street``, of columns and fields that the target lacks."""
    found = []
    for name, given, wanted in matching_inner_types(source, target):
        found += unknown_fields(given, wanted, (*above, name), case_sensitive=case_sensitive)
    if not (isinstance(source, StructType) and isinstance(target, StructType)):
        return found
    for field in source.fields:
        index, path = find_field(target, field.name, case_sensitive), (*above, field.name)
        if index is None:
            found.append(".".join(path))
        else:
            known = target.fields[index].dataType
            found += unknown_fields(field.dataType, known, path, case_sensitive=case_sensitive)
    return found


def named_by_position(source: DataType, target: DataType, column: str) -> DataType:
    """Return a value's type with the names that its column's type has for the fields at the same places.

    Args:
        column: The column or field, for errors. Fields beyond the target's keep their names.

    Raises:
        DeltaAnalysisException: DELTA_INSERT_COLUMN_ARITY_MISMATCH. Delta: DeltaAnalysis.addCastsToStructs.
    """
    if isinstance(source, StructType) and isinstance(target, StructType):
        given, wanted = len(source.fields), len(target.fields)
        if given < wanted:
            raise DeltaAnalysisException(
                "DELTA_INSERT_COLUMN_ARITY_MISMATCH",
                f"Cannot write to column {column}, not enough nested fields; it has {wanted} field(s) but the inserted "
                f"data has {given}. Give each field a value, NULL for instance.",
                parameters={"columnName": column, "numColumns": str(wanted), "insertColumns": str(given)},
            )
        fields = [
            StructField(f.name, named_by_position(g.dataType, f.dataType, f"{column}.{f.name}"), g.nullable, g.metadata)
            for g, f in zip(source.fields, target.fields, strict=False)
        ]
        return StructType([*fields, *source.fields[wanted:]])
    inner = with_inner(source, target, lambda one, other, name: named_by_position(one, other, f"{column}.{name}"))
    return inner or source


def align(
    value: Column,
    source: DataType,
    target: DataType,
    assignment: StoreAssignment,
    existing: Column | None = None,
) -> Column:
    """Return a value with the target's type; a NULL struct stays NULL.

    Args:
        existing: The target's own value, from which fields come that a struct of the value's lacks; NULL without it. By
            position no field is missing.
    """
    if same_shape(source, target):
        return value
    if isinstance(source, NullType):
        return value.cast(target)
    if assignment.is_sessions_own and not assignment.structs_by_name:
        return value.cast(target)
    if isinstance(source, StructType) and isinstance(target, StructType):
        if not assignment.structs_by_name:
            return _by_position(value, source, target, assignment)
        fields = [_field_value(value, source, field, assignment, existing) for field in target.fields]
        built = F.struct(*fields)
        if existing is not None and _lacks_fields(source, target, assignment.case_sensitive):
            return F.when(value.isNull() & existing.isNull(), F.lit(None).cast(target)).otherwise(built)
        return F.when(value.isNotNull(), built)
    if is_widening(source, target):
        return value.cast(target)
    if contains(target, StructType) or not assignment.is_sessions_own:
        if not contains(target, StructType):
            assignment = assignment.within(source, target)
        return _by_element(value, source, target, assignment)
    return assignment.cast(value, source, target)


def _lacks_fields(source: DataType, target: DataType, case_sensitive: bool) -> bool:
    """Return whether a struct, or one within it, lacks fields. Delta: hasExtraStructFieldsToPreserveValue."""
    if not (isinstance(source, StructType) and isinstance(target, StructType)):
        return False
    places = [(find_field(source, field.name, case_sensitive), field.dataType) for field in target.fields]
    return any(
        index is None or _lacks_fields(source.fields[index].dataType, wanted, case_sensitive)
        for index, wanted in places
    )


def _by_element(value: Column, source: DataType, target: DataType, assignment: StoreAssignment) -> Column:
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return F.transform(value, lambda x: align(x, source.elementType, target.elementType, assignment))
    if isinstance(source, MapType) and isinstance(target, MapType):
        if not same_shape(source.keyType, target.keyType):
            value = F.transform_keys(value, lambda k, _: align(k, source.keyType, target.keyType, assignment))
        if not same_shape(source.valueType, target.valueType):
            value = F.transform_values(value, lambda _, v: align(v, source.valueType, target.valueType, assignment))
        return value
    return assignment.cast(value, source, target)


def _by_position(value: Column, source: StructType, target: StructType, assignment: StoreAssignment) -> Column:
    if len(source.fields) != len(target.fields):
        # Which Spark refuses.
        return value.cast(target)
    fields = [
        align(value.getField(given.name), given.dataType, wanted.dataType, assignment).alias(wanted.name)
        for given, wanted in zip(source.fields, target.fields, strict=True)
    ]
    return F.when(value.isNotNull(), F.struct(*fields))


def _field_value(
    value: Column,
    source: StructType,
    field: StructField,
    assignment: StoreAssignment,
    existing: Column | None,
) -> Column:
    index = find_field(source, field.name, assignment.case_sensitive)
    kept = existing.getField(field.name) if existing is not None else None
    if index is None:
        missing = kept if kept is not None else F.lit(None).cast(field.dataType)
        return missing.alias(field.name)
    given = source.fields[index]
    inner = align(value.getField(given.name), given.dataType, field.dataType, assignment, kept)
    return inner.alias(field.name)


def set_fields(
    base: Column,
    data_type: StructType,
    changes: dict[tuple[str, ...], Column],
) -> Column:
    """Set fields of a struct and keep its others; setting a field of a NULL struct makes the struct.

    Args:
        changes: Values by the path below the struct, already of the fields' types.
    """
    fields = []
    for field in data_type.fields:
        below = {path[1:]: value for path, value in changes.items() if path[0] == field.name}
        old = base.getField(field.name)
        if not below:
            fields.append(old.alias(field.name))
        elif () in below:
            fields.append(below[()].alias(field.name))
        else:
            assert isinstance(field.dataType, StructType)
            fields.append(set_fields(old, field.dataType, below).alias(field.name))
    return F.struct(*fields)
