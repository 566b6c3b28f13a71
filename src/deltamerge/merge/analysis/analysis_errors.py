"""Errors of analysis, worded for the person who wrote the statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import partial

from pyspark.errors import ParseException, PySparkException
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from deltamerge.exceptions import DeltaAnalysisException, DeltaParseException
from deltamerge.merge.statement import SOURCE_ALIAS, TARGET_ALIAS
from deltamerge.sql.caret import Span, point_at
from deltamerge.sql.merge_ast import Expression
from deltamerge.sql.names import did_you_mean, quote_name
from deltamerge.write.store_assignment import CastPart

_UNRESOLVED = ("UNRESOLVED_COLUMN", "UNRESOLVED_FIELD", "UNRESOLVED_STAR", "MISSING_ATTRIBUTES")
_TYPES = "DATATYPE_MISMATCH"
_AMBIGUOUS = "AMBIGUOUS_REFERENCE"
_WITH_CONF = f"{_TYPES}.CAST_WITH_CONF_SUGGESTION"
_NON_DETERMINISTIC = "INVALID_NON_DETERMINISTIC_EXPRESSIONS"
# Behind its own words Spark prints the plan that it looked at.
_PLAN = re.compile(r"\n(?='|\+- |:- |(?:Join|Project|Filter|Aggregate|Sort)\b)")
# Names that no user wrote.
_OWN_ALIAS = re.compile(rf"`?\b(?:{TARGET_ALIAS}|{SOURCE_ALIAS})\b`?\.")
_AGGREGATES = ("MISSING_GROUP_BY", "INVALID_WHERE_CONDITION", "GROUP_BY_AGGREGATE", "MISSING_AGGREGATION")
_OF_MANY_ROWS = ("UNSUPPORTED_EXPR_FOR_OPERATOR", "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE", "UNSUPPORTED_GENERATOR")


def analysis_error(
    error: PySparkException, expression: Expression, where: str, statement: str | None, operation: str | None
) -> DeltaAnalysisException:
    """Word Spark's error about one expression, with the clause that it is in.

    Args:
        operation: What it is the condition of, in Delta's words, since conditions must be deterministic and without
            aggregates; None for a value.
    """
    condition = error.getCondition() or ""
    summary = _first_lines(error)
    if condition.startswith(_UNRESOLVED):
        return _unresolved(error, expression, where, statement)
    if condition == _AMBIGUOUS:
        return _ambiguous(error, expression, where, statement)
    if operation is not None and condition.startswith(_NON_DETERMINISTIC):
        return DeltaAnalysisException(
            "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED",
            f"Non-deterministic functions are not supported in the condition of a MERGE: {expression.text}. Compute "
            f"the value in the source instead. In: {where}",
            parameters={"operation": operation, "expression": f"(condition = {expression.text})."},
        )
    if operation is not None and (condition.startswith(_AGGREGATES) or _is_aggregate(condition, error)):
        return DeltaAnalysisException(
            "DELTA_AGGREGATION_NOT_SUPPORTED",
            f"Aggregate functions are not supported in the condition of a MERGE: {expression.text}. Aggregate in the "
            f"source instead. In: {where}",
            parameters={"operation": operation, "predicate": f"(condition = {expression.text})"},
        )
    if condition.startswith((*_AGGREGATES, *_OF_MANY_ROWS)):
        return DeltaAnalysisException(
            "UNSUPPORTED_EXPR_FOR_OPERATOR",
            f"Aggregate, window and generator functions are not supported in a MERGE, whose expressions see one row: "
            f"{expression.text}. Compute the value in the source instead. In: {where}"
            + _caret(expression, statement, None),
            parameters={"operator": "MergeIntoCommand", "invalidExprSqls": f'"{expression.text}"'},
        )
    return _class_of(error)(
        condition or "DELTA_MERGE_ANALYSIS_ERROR",
        f"{summary} In: {where}" + _caret(expression, statement, None),
        sqlstate=error.getSqlState() or "42000",
        parameters=_parameters(error),
    )


def own_error(error: PySparkException, where: str) -> DeltaAnalysisException:
    """Return Spark's error about an expression of a statement that Delta has no errors of its own for."""
    return _class_of(error)(
        error.getCondition() or "DELTA_MERGE_ANALYSIS_ERROR",
        f"{_first_lines(error)} In: {where}",
        sqlstate=error.getSqlState() or "42000",
        parameters=_parameters(error),
    )


def _class_of(error: PySparkException) -> type[DeltaAnalysisException]:
    return DeltaParseException if isinstance(error, ParseException) else DeltaAnalysisException


def is_of_types(error: DeltaAnalysisException) -> bool:
    """Return whether all names are known, but an operator does not take its operands' types."""
    return error.error_class.startswith(_TYPES)


def is_of_cast(error: PySparkException) -> bool:
    """Return whether Spark has a cast, but not between these types and by the rules that the cast follows."""
    return error.getCondition() in (f"{_TYPES}.CAST_WITHOUT_SUGGESTION", _WITH_CONF)


def needs_legacy_policy(error: PySparkException, column: str, where: str) -> DeltaAnalysisException:
    """A cast that the store assignment policy ANSI refuses and LEGACY takes, whatever the session's own casts are."""
    parameters = _parameters(error)
    return DeltaAnalysisException(
        _WITH_CONF,
        f"Cannot cast the value for `{column}` from {parameters.get('srcType')} to {parameters.get('targetType')}: "
        "spark.sql.storeAssignmentPolicy is ANSI. Convert it in the statement, or set the policy to LEGACY. "
        f"In: {where}",
        parameters={**parameters, "config": '"spark.sql.storeAssignmentPolicy"', "configVal": "'LEGACY'"},
    )


def _is_aggregate(condition: str, error: PySparkException) -> bool:
    """Of the functions that no join takes, window functions have OVER; what is left are aggregates."""
    return condition == "UNSUPPORTED_EXPR_FOR_OPERATOR" and " OVER " not in str(_parameters(error))


def _ambiguous(
    error: PySparkException, expression: Expression, where: str, statement: str | None
) -> DeltaAnalysisException:
    parameters = _parameters(error)
    name = parameters.get("name", expression.text)
    among = parameters.get("referenceNames", "").strip("[]")
    if _OWN_ALIAS.search(str(error.getMessageParameters())):
        remedy = "Give the target and the source aliases, and write which side's column it is."
    else:
        example = f", such as {among.split(',')[0].strip()}" if among else ""
        remedy = f"Write which side's column it is{example}."
    return DeltaAnalysisException(
        _AMBIGUOUS,
        f"Reference {name} is ambiguous in {where}: it could be {among}. {remedy}"
        + _caret(expression, statement, name),
        parameters=parameters,
    )


def _unresolved(
    error: PySparkException, expression: Expression, where: str, statement: str | None
) -> DeltaAnalysisException:
    parameters = _parameters(error)
    name = parameters.get("objectName") or parameters.get("fieldName") or expression.text
    proposed = dict.fromkeys(part.strip() for part in parameters.get("proposal", "").split(","))
    candidates = [part for part in proposed if part and SOURCE_ALIAS not in part]
    proposal = ", ".join(candidates)
    candidates.sort(key=partial(_likeness, name), reverse=True)
    hint = f" Did you mean one of: {', '.join(candidates)}?" if candidates else ""
    return DeltaAnalysisException(
        "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        f"Cannot resolve {name} in {where}.{hint}" + _caret(expression, statement, name),
        parameters={"sqlExpr": name, "clause": where, "cols": proposal},
    )


def _likeness(name: str, candidate: str) -> float:
    last, other = (written.lower().replace("`", "").rpartition(".")[2] for written in (name, candidate))
    return SequenceMatcher(None, last, other).ratio()


def _caret(expression: Expression, statement: str | None, name: str | None) -> str:
    """Show the place in the statement, or in the expression where there is no statement's SQL."""
    if expression.column is not None:
        return ""
    whole, span = expression.text, Span(0, len(expression.text))
    if statement and expression.span is not None:
        whole, span = statement, expression.span
    bare = re.sub(r"`", "", name or "")
    if bare:
        found = re.search(re.escape(bare.split(".")[-1]), whole[span.start : span.end], re.IGNORECASE)
        if found:
            span = Span(span.start + found.start(), span.start + found.end())
    return "\n" + point_at(whole, span)


def _first_lines(error: PySparkException) -> str:
    message = str(error)
    message = _PLAN.split(message.split("\n\nJVM stacktrace:", maxsplit=1)[0])[0]
    message = re.sub(r"^\s*\[[A-Z_.0-9]+\]\s*", "", message)
    message = re.sub(r"\s*SQLSTATE: \w+;?", "", message)
    # Of the expression by itself; the message shows the place in the statement.
    message = re.sub(r"[;.]? line \d+ pos \d+\s*$", ".", message)
    return _OWN_ALIAS.sub("", message).strip().rstrip(";")


def _parameters(error: PySparkException) -> dict[str, str]:
    return {str(k): _OWN_ALIAS.sub("", str(v)) for k, v in (error.getMessageParameters() or {}).items()}


def unknown_target_column(
    path: Sequence[str], depth: int, within: StructType, where: str, statement: str | None, *, is_merge: bool
) -> DeltaAnalysisException:
    names = [f.name for f in within.fields]
    hint = did_you_mean(path[depth], names)
    if depth:
        return DeltaAnalysisException(
            "FIELD_NOT_FOUND",
            f"No such struct field `{path[depth]}` in {', '.join(f'`{n}`' for n in names)} of "
            f"{quote_name(path[:depth])}.{hint} In: {where}",
            parameters={"fieldName": f"`{path[depth]}`", "fields": ", ".join(names)},
        )
    caret = ""
    if statement is not None and path[0] in statement and where in statement:
        start = statement.index(where)
        found = statement.find(path[0], start)
        caret = "\n" + point_at(statement, Span(found, found + len(path[0]))) if found >= 0 else ""
    return DeltaAnalysisException(
        "DELTA_MERGE_UNRESOLVED_EXPRESSION" if is_merge else "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        f"Cannot resolve {quote_name(path)} in {where}: the target has no column `{path[0]}`.{hint} Its columns are "
        f"{', '.join(f'`{n}`' for n in names)}.{caret}",
        parameters=(
            {"sqlExpr": quote_name(path), "clause": where, "cols": ", ".join(names)}
            if is_merge
            else {"objectName": quote_name(path), "proposal": ", ".join(quote_name([name]) for name in names)}
        ),
    )


def unsettable_field(path: Sequence[str], depth: int, data_type: DataType, where: str) -> DeltaAnalysisException:
    column = quote_name(path[:depth])
    if isinstance(data_type, (ArrayType, MapType)):
        return DeltaAnalysisException(
            "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE",
            f"Nested field {quote_name(path)} cannot be set: {column} is of type {data_type.simpleString()}. Set the "
            f"whole column instead. In: {where}",
        )
    return DeltaAnalysisException(
        "INVALID_EXTRACT_BASE_FIELD_TYPE",
        f"Cannot set {quote_name(path)}: {column} is of type {data_type.simpleString()} and has no fields. In: {where}",
    )


def nested_field_in_insert(path: Sequence[str], where: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION",
        f"Nested field is not supported in the INSERT clause of MERGE operation (field = {quote_name(path)}). Insert "
        f"the whole column `{path[0]}`, as with named_struct(…). In: {where}",
        parameters={"operation": "INSERT clause of MERGE operation", "fieldName": quote_name(path)},
    )


def default_of_field(path: Sequence[str], schema: StructType, where: str) -> DeltaAnalysisException:
    """UPDATE sets a field to DEFAULT, which only columns have."""
    return DeltaAnalysisException(
        "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        f"Cannot resolve DEFAULT as a value of {quote_name(path)}: columns have defaults, fields of structs have none. "
        f"Set the field to a value or to NULL. In: {where}",
        parameters={"sqlExpr": "DEFAULT", "clause": where, "cols": ", ".join(f.name for f in schema.fields)},
    )


def duplicate_insert_columns(path: Sequence[str], where: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_DUPLICATE_COLUMNS_ON_INSERT",
        f"Duplicate column names in INSERT clause: {quote_name(path)} is named twice. In: {where}",
    )


def conflicting_assignments(left: Sequence[str], right: Sequence[str], where: str) -> DeltaAnalysisException:
    """UPDATE sets a column twice, or a struct together with its field."""
    return DeltaAnalysisException(
        "DELTA_CONFLICT_SET_COLUMN",
        f"There is a conflict from these SET columns: {quote_name(left)}, {quote_name(right)}. Set each once, and "
        f"either a struct or its fields. In: {where}",
        parameters={"columnList": f"[`{'.'.join(left)}`, `{'.'.join(right)}`]"},
    )


def missing_star_column(name: str, source: StructType, where: str) -> DeltaAnalysisException:
    names = [f.name for f in source.fields]
    hint = did_you_mean(name, names)
    return DeltaAnalysisException(
        "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        f"Cannot resolve `{name}` in {where}: the star takes every column of the target from the source, and the "
        f"source has no column `{name}`.{hint} The source's columns are {', '.join(f'`{n}`' for n in names)}. Add it "
        "to the source, or list the columns, or use schema evolution.",
        parameters={"sqlExpr": name, "clause": where, "cols": ", ".join(names)},
    )


def missing_set_column(name: str, schema: StructType, where: str) -> DeltaAnalysisException:
    """With schema evolution a star sets a source column that differs from one of the table's only in case."""
    names = ", ".join(f"`{f.name}`" for f in schema.fields)
    return DeltaAnalysisException(
        "DELTA_MISSING_SET_COLUMN",
        f"SET column `{name}` not found given columns: [{names}]. Where names are case-sensitive, a table cannot take "
        f"a column that differs from another only in case; rename it in the source. In: {where}",
        parameters={"columnName": f"`{name}`", "columnList": names},
    )


def no_up_cast(column: str, lossy: CastPart, where: str) -> DeltaAnalysisException:
    """STRICT store assignment, and a value that may lose something."""
    source, target = lossy.types
    return DeltaAnalysisException(
        "CANNOT_UP_CAST_DATATYPE",
        f'Cannot up cast the value for `{".".join((column, *lossy.path))}` from "{source}" to '
        f'"{target}": it may lose something, and spark.sql.storeAssignmentPolicy is STRICT. '
        f"Cast it in the statement. In: {where}",
    )
