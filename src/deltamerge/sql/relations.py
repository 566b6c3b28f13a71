"""Finds the tables that a query reads, and replaces their names; all else stays verbatim."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.caret import Span
from deltamerge.sql.literals import string_value
from deltamerge.sql.names import quote_name
from deltamerge.sql.operands import constant_string, skip_value, split_at
from deltamerge.sql.tokens import (
    Kind,
    Token,
    closing,
    is_keyword_place,
    name_end,
    parse_error,
    slice_of,
    tokenize,
    words,
)

# Words after which FROM's list of relations is over.
AFTER_FROM = words(
    "WHERE GROUP HAVING ORDER LIMIT UNION EXCEPT INTERSECT MINUS WINDOW CLUSTER DISTRIBUTE SORT QUALIFY OFFSET SELECT"
)
GLOBAL_DATABASE = "global_temp"
QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})
# Words before a relation's name in a list of relations.
_BEFORE_RELATION = frozenset({"FROM", "JOIN", ",", "("})
# Delta's functions in FROM, by what their first argument is (DeltaTableValueFunctions).
_CHANGE_FEEDS: Mapping[str, Literal["path", "name"]] = {"table_changes": "name", "table_changes_by_path": "path"}


@dataclass(frozen=True)
class TableReference:
    """A place at which a query reads a table.

    Args:
        span: Its place in the query, with the time travel and the options after it and without an alias.
        kind: ``path`` for ``delta.`path` ``, ``name`` for one of the names asked for.
        path_or_name: The path, or the name as the caller passed it.
        version: The version that VERSION AS OF asks for.
        timestamp: The expression of TIMESTAMP AS OF, verbatim.
        boundaries: Of the table's change feed the first version or timestamp and perhaps the last, as SQL; None for the
            table itself.
        options: What ``WITH (…)`` after it holds, with its brackets, verbatim; the empty string where there is none.
        alias_at: Where an alias goes, None where the reference has one of its own; ``TABLE t`` takes none.
    """

    span: Span
    kind: Literal["path", "name"]
    path_or_name: str
    version: int | None
    timestamp: str | None
    options: str = ""
    alias_at: int | None = None
    boundaries: tuple[str, ...] | None = None


def find_table_references(sql: str, names: Iterable[str] = ()) -> tuple[TableReference, ...]:
    """Return where a query reads Delta tables by path or by one of `names`, or the change feed of any.

    Args:
        sql: A query, ``WITH …`` without its query, or a relation as FROM takes it after ``SELECT * FROM``.
        names: Names of tables, with dots and backticks where needed, matched without regard to case; a CTE of
            that name goes before.

    Raises:
        DeltaParseException: PARSE_SYNTAX_ERROR, a string, quoted name, comment or bracket is not closed, or a
            version is no whole number.
    """
    tokens = tokenize(sql)
    wanted = {folded(token.name for token in tokenize(name)[::2]): name for name in names}
    found = [_change_feed(sql, tokens, start, bracket) for start, bracket in _change_feeds(tokens)]
    for start, end, is_cte in relations(tokens):
        parts = tuple(token.name for token in tokens[start:end:2])
        if len(parts) == 2 and parts[0].lower() == "delta" and tokens[end - 1].kind is Kind.QUOTED:
            found.append(_reference(sql, tokens, start, end, "path", parts[1]))
            continue
        name = wanted.get(folded(parts))
        if name is not None and not is_cte:
            found.append(_reference(sql, tokens, start, end, "name", name))
    return tuple(sorted(found, key=lambda reference: reference.span.start))


def _change_feeds(tokens: tuple[Token, ...]) -> Iterator[tuple[int, int]]:
    """Yield where calls of the functions for change feeds begin, and their brackets."""
    for start in _relation_places(tokens):
        end = name_end(tokens, start)
        is_call = end == start + 1 and end < len(tokens) and tokens[end].text == "("
        if is_call and tokens[start].name.lower() in _CHANGE_FEEDS:
            yield start, end


def _change_feed(sql: str, tokens: tuple[Token, ...], start: int, bracket: int) -> TableReference:
    function = tokens[start].name.lower()
    end = closing(tokens, bracket)
    arguments = split_at(tokens[bracket + 1 : end], ",")
    if len(arguments) not in (2, 3) or not all(arguments) or [a.kind for a in arguments[0]] != [Kind.STRING]:
        raise parse_error(
            sql,
            slice_of(tokens[start : end + 1]),
            f"the arguments of {function} are a table in quotes, the first version or timestamp, and perhaps the last",
            error_class="INCORRECT_NUMBER_OF_ARGUMENTS" if len(arguments) not in (2, 3) else "PARSE_SYNTAX_ERROR",
        )
    boundaries = tuple(slice_of(argument).of(sql) for argument in arguments[1:])
    span, name = slice_of(tokens[start : end + 1]), string_value(arguments[0][0].text)
    return TableReference(span, _CHANGE_FEEDS[function], name, None, None, boundaries=boundaries)


def relation_names(sql: str) -> tuple[tuple[str, ...], ...]:
    """Return the names of the tables and views that a query reads, without its CTEs, each once, in lower case."""
    tokens = tokenize(sql)
    names = (tokens[start:end:2] for start, end, is_cte in relations(tokens) if not is_cte)
    return tuple(dict.fromkeys(folded(token.name for token in name) for name in names))


def changed_temporary_view(sql: str) -> tuple[str, ...] | None:
    """Return the temporary view that a statement makes, changes or drops, if there is one of that name."""
    tokens = tokenize(sql)
    place = _view_place(tokens)
    if place is None:
        return None
    name = tuple(token.name for token in tokens[place : name_end(tokens, place) : 2])
    kind = {token.upper for token in tokens[:place]}
    if "CREATE" not in kind:
        return name
    if kind.isdisjoint(("TEMP", "TEMPORARY")):
        return None
    return (GLOBAL_DATABASE, name[-1]) if "GLOBAL" in kind else name


def _view_place(tokens: tuple[Token, ...]) -> int | None:
    """Return where the name is in CREATE, ALTER or DROP VIEW, or in DROP TABLE, which drops temporary views, too."""
    found = [token.upper for token in tokens[:9]]
    kind = "TABLE" if found[:2] == ["DROP", "TABLE"] else "VIEW"
    if found[:1] not in (["CREATE"], ["ALTER"], ["DROP"]) or kind not in found:
        return None
    view = found.index(kind)
    place = view + 1
    for skipped in (["IF", "NOT", "EXISTS"], ["IF", "EXISTS"]):
        if found[place : place + len(skipped)] == skipped:
            place += len(skipped)
    is_view = {"OR", "REPLACE", "GLOBAL", "TEMP", "TEMPORARY"}.issuperset(found[1:view])
    return place if is_view and place < len(tokens) and tokens[place].is_identifier else None


def relations(tokens: tuple[Token, ...]) -> Iterator[tuple[int, int, bool]]:
    """Yield where each name of a relation begins and ends, and whether it is a CTE's; function calls are none."""
    hidden = _cte_scopes(tokens)
    for start in _relation_places(tokens):
        end = name_end(tokens, start)
        if end == len(tokens) or tokens[end].text != "(":
            parts = folded(token.name for token in tokens[start:end:2])
            yield start, end, any(parts == (name,) and first <= start < last for name, first, last in hidden)


def replace_references(sql: str, replacements: Mapping[Span, str]) -> str:
    """Return the SQL with other strings in some places, which must not overlap."""
    pieces: list[str] = []
    position = 0
    for span in sorted(replacements, key=lambda place: place.start):
        pieces += [sql[position : span.start], replacements[span]]
        position = span.end
    return "".join(pieces) + sql[position:]


def folded(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)


def _reference(
    sql: str, tokens: tuple[Token, ...], start: int, end: int, kind: Literal["path", "name"], name: str
) -> TableReference:
    version: int | None = None
    timestamp: str | None = None
    ahead = end + 1 if end < len(tokens) and tokens[end].upper == "FOR" else end
    word = tokens[ahead].upper if ahead < len(tokens) else ""
    following = [token.upper for token in tokens[ahead + 1 : ahead + 3]]
    if word in ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME") and following == ["AS", "OF"]:
        value = ahead + 3
        end = skip_value(tokens, value)
        if "VERSION" in word:
            version = _version(sql, tokens, value, end)
        elif end > value:
            timestamp = slice_of(tokens[value:end]).of(sql)
        else:
            raise parse_error(sql, tokens[ahead].span, "TIMESTAMP AS OF: expected a timestamp")
    options = ""
    if [token.upper for token in tokens[end : end + 2]] == ["WITH", "("]:
        first, end = end + 1, closing(tokens, end + 1) + 1
        options = slice_of(tokens[first:end]).of(sql)
    span = slice_of(tokens[start:end])
    takes_alias = not _is_table_query(tokens, start) and not has_alias(tokens, end)
    alias_at = tokens[_alias_place(tokens, end) - 1].span.end if takes_alias else None
    return TableReference(span, kind, name, version, timestamp, options, alias_at)


def _version(sql: str, tokens: tuple[Token, ...], start: int, end: int) -> int:
    """Read the version of VERSION AS OF, one whole number or one string that holds one."""
    if end == start + 1:
        token = tokens[start]
        digits = string_value(token.text) if token.kind is Kind.STRING else token.text
        if token.kind in (Kind.STRING, Kind.NUMBER) and digits.isascii() and digits.isdigit():
            return int(digits)
    place = slice_of(tokens[start:end]) if end > start else tokens[start - 1].span
    raise parse_error(sql, place, "VERSION AS OF: expected a version, a whole number")


def travels_by_parameter(sql: str) -> bool:
    """Return whether a parameter, ``:name`` or ``?``, is in the value of a time travel or in a change feed's call."""
    tokens = tokenize(sql)
    starts = (i + 1 for i in range(2, len(tokens)) if [t.upper for t in tokens[i - 1 : i + 1]] == ["AS", "OF"])
    values = [tokens[start : skip_value(tokens, start)] for start in starts]
    values += [tokens[bracket : closing(tokens, bracket)] for _, bracket in _change_feeds(tokens)]
    return any(token.text in (":", "?") for value in values for token in value)


def with_plain_names(sql: str, args: object = None) -> str:
    """Return a statement in which relations that ``IDENTIFIER(…)`` of a constant string names are named so.

    What is no name stays, and is Spark's to refuse.

    Args:
        args: The values of parameters, as `SparkSession.sql` takes them.
    """
    names = {}
    for span, argument in _identifier_calls(tokenize(sql)):
        value = constant_string(argument, args if isinstance(args, Mapping) else None)
        if value is not None and (name := _plain_name(value)) is not None:
            names[span] = name
    return replace_references(sql, names)


def _plain_name(value: str) -> str | None:
    """Return a string that is a name with dots and backticks, between backticks; None for any other."""
    try:
        parts = tokenize(value)
    except DeltaParseException:
        return None
    are_names = all(token.is_identifier if place % 2 == 0 else token.text == "." for place, token in enumerate(parts))
    return quote_name(token.name for token in parts[::2]) if len(parts) % 2 and are_names else None


def _identifier_calls(tokens: tuple[Token, ...]) -> Iterator[tuple[Span, tuple[Token, ...]]]:
    view = _view_place(tokens)
    for start in [*_relation_places(tokens), *([] if view is None else [view])]:
        bracket = start + 1
        if tokens[start].upper == "IDENTIFIER" and bracket < len(tokens) and tokens[bracket].text == "(":
            end = closing(tokens, bracket)
            yield slice_of(tokens[start : end + 1]), tokens[bracket + 1 : end]


_NO_ALIAS = AFTER_FROM | words(
    "ON USING JOIN INNER LEFT RIGHT FULL OUTER CROSS SEMI ANTI NATURAL LATERAL PIVOT UNPIVOT TABLESAMPLE FROM"
)
# Words that are aliases anywhere else: of joins since Spark 4.3.
_NO_ALIAS_BEFORE = {"ASOF": "JOIN", "MATCH_CONDITION": "("}


def has_alias(tokens: tuple[Token, ...], end: int) -> bool:
    """Return whether a relation whose name and time travel end here has an alias."""
    place = _alias_place(tokens, end)
    if place >= len(tokens):
        return False
    word = tokens[place].upper
    if word in _NO_ALIAS_BEFORE and [token.upper for token in tokens[place + 1 : place + 2]] == [
        _NO_ALIAS_BEFORE[word]
    ]:
        return False
    return word == "AS" or (tokens[place].is_identifier and word not in _NO_ALIAS)


def alias_or_name(tokens: tuple[Token, ...], start: int, end: int) -> tuple[str, ...]:
    """Return, in lower case, what qualifies the columns of a relation whose name is between two places."""
    if not has_alias(tokens, end):
        return folded(token.name for token in tokens[start:end:2])
    place = _alias_place(tokens, end)
    return folded([tokens[place + 1 if tokens[place].upper == "AS" else place].name])


def _alias_place(tokens: tuple[Token, ...], end: int) -> int:
    """Return where a relation's alias goes: after ``WITH (…)`` and ``TABLESAMPLE (…) REPEATABLE (…)``."""
    for before in (
        ("WITH",),
        ("TABLESAMPLE",),
        ("TABLESAMPLE", "SYSTEM"),
        ("TABLESAMPLE", "BERNOULLI"),
        ("REPEATABLE",),
    ):
        bracket = end + len(before)
        found = tuple(token.upper for token in tokens[end : bracket + 1])
        if found == (*before, "("):
            end = closing(tokens, bracket) + 1
    return end


def at_suffix(path: str) -> tuple[str, int | None, str | None]:
    """Return a path without the version or timestamp at its end, and these, the timestamp as an SQL literal.

    Delta: DeltaTimeTravelSpec.
    """
    base, at, suffix = path.rpartition("@")
    if at and suffix[:1] in ("v", "V") and suffix[1:].isdigit():
        return base, int(suffix[1:]), None
    if at and len(suffix) == 17 and suffix.isdigit():
        digits = f"{suffix[:4]}-{suffix[4:6]}-{suffix[6:8]} {suffix[8:10]}:{suffix[10:12]}:{suffix[12:14]}"
        return base, None, f"'{digits}.{suffix[14:]}'"
    return path, None, None


def _relation_places(tokens: tuple[Token, ...]) -> list[int]:
    """Return the first tokens of the names where FROM takes a relation."""
    places: list[int] = []
    source = _source_of_merge(tokens)
    # By open bracket: whether it holds a query or relations, and whether FROM's list is being read.
    queries, lists = [True], [False]
    for index, token in enumerate(tokens):
        before = tokens[index - 1].upper if index else ""
        expected = lists[-1] and before in _BEFORE_RELATION
        if token.kind is Kind.SYMBOL:
            if token.text in ("(", "[", "{"):
                query = holds_query(tokens, index)
                queries.append(query or expected)
                lists.append(expected and not query)
            elif token.text in (")", "]", "}"):
                queries.pop()
                lists.pop()
        elif token.is_identifier and (
            (expected and token.upper not in ("LATERAL", "VALUES", "TABLE"))
            or (queries[-1] and _is_table_query(tokens, index))
            or index == source
        ):
            places.append(index)
        elif token.upper in ("FROM", "JOIN") and queries[-1] and before not in (".", "DISTINCT"):
            lists[-1] = True
        elif (token.upper in AFTER_FROM and is_keyword_place(tokens, index)) or (
            token.upper == "VIEW" and before == "LATERAL"
        ):
            lists[-1] = False
    return places


def holds_query(tokens: tuple[Token, ...], bracket: int) -> bool:
    index = bracket
    while index < len(tokens) and tokens[index].text == "(":
        index += 1
    return index < len(tokens) and tokens[index].upper in QUERY_WORDS


def _is_table_query(tokens: tuple[Token, ...], start: int) -> bool:
    """Return whether the name at a place is that of ``TABLE t``, where this is a query."""
    if start == 0 or tokens[start - 1].upper != "TABLE":
        return False
    before = "(" if start == 1 else tokens[start - 2].upper
    return before in ("(", ")", "UNION", "ALL", "EXCEPT", "INTERSECT", "MINUS") or start - 1 == _query_of(tokens)


def _query_of(tokens: tuple[Token, ...]) -> int | None:
    """Return where the query of an INSERT or CACHE TABLE begins, or that after AS in CREATE or REPLACE TABLE."""
    start = behind_ctes(tokens)
    first = tokens[start].upper if start < len(tokens) else ""
    if first == "CACHE":
        return cached_query(tokens)
    if first in ("CREATE", "REPLACE"):
        after = _find(tokens, start, ("AS",))
        return None if after is None else after + 1
    into = _find(tokens, start, ("INTO", "OVERWRITE")) if first == "INSERT" else None
    if into is None:
        return None
    target = into + 2 if [token.upper for token in tokens[into + 1 : into + 2]] == ["TABLE"] else into + 1
    return _find(tokens, name_end(tokens, target), QUERY_WORDS)


def cached_query(tokens: tuple[Token, ...]) -> int | None:
    """Return where the query of CACHE TABLE begins, behind AS where that is written; None where there is none."""
    first = [token.upper for token in tokens[:3]]
    name = 2 if first[:2] == ["CACHE", "TABLE"] else 3 if first == ["CACHE", "LAZY", "TABLE"] else None
    if name is None:
        return None
    # A view of a query has a name of one part.
    start = name + 1
    if [token.upper for token in tokens[start : start + 2]] == ["OPTIONS", "("]:
        start = closing(tokens, start + 1) + 1
    start += [token.upper for token in tokens[start : start + 1]] == ["AS"]
    return start if holds_query(tokens, start) else None


def _source_of_merge(tokens: tuple[Token, ...]) -> int | None:
    """Return the place after USING of a MERGE."""
    words_before = ("EXPLAIN", "ANALYZE")
    start = next((i for i, token in enumerate(tokens) if token.upper not in words_before), 0)
    start += behind_ctes(tokens[start:])
    if start >= len(tokens) or tokens[start].upper != "MERGE":
        return None
    using = _find(tokens, start, ("USING",))
    return None if using is None else using + 1


def _find(tokens: tuple[Token, ...], start: int, wanted: Collection[str]) -> int | None:
    """Return the first place from `start` on, outside of brackets, of one of some words."""
    return next((i for i in range(start, len(tokens)) if tokens[i].depth == 0 and tokens[i].upper in wanted), None)


def _cte_scopes(tokens: tuple[Token, ...]) -> list[tuple[str, int, int]]:
    """Return CTEs: name in lower case, and the first and last token at which it hides a table of that name."""
    scopes: list[tuple[str, int, int]] = []
    for index, token in enumerate(tokens):
        if not _begins_ctes(tokens, index):
            continue
        end = next((i for i in range(index, len(tokens)) if tokens[i].depth < token.depth), len(tokens))
        recursive = index + 1 < end and tokens[index + 1].upper == "RECURSIVE"
        for place, after in _ctes(tokens, index + 1 + recursive, end):
            # Within its own query the name is still the table's, unless the CTE is recursive.
            scopes.append((tokens[place].name.lower(), place if recursive else after, end))
    return scopes


def _ctes(tokens: tuple[Token, ...], place: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the CTEs of one WITH: where the name is, and the place after its query."""
    while place < end and tokens[place].is_identifier:
        body = _cte_body(tokens, place + 1, end)
        if body is None:
            return
        after = closing(tokens, body) + 1
        yield place, after
        if after >= end or tokens[after].text != ",":
            return
        place = after + 1


def behind_ctes(tokens: tuple[Token, ...]) -> int:
    """Return the place after the CTEs that a statement begins with, 0 where it begins with none."""
    if not tokens or not _begins_ctes(tokens, 0):
        return 0
    recursive = len(tokens) > 1 and tokens[1].upper == "RECURSIVE"
    return max((after for _, after in _ctes(tokens, 1 + recursive, len(tokens))), default=0)


def _begins_ctes(tokens: tuple[Token, ...], index: int) -> bool:
    """Return whether WITH is at this place and begins a query; ``WITH SCHEMA EVOLUTION`` and columns do not."""
    if tokens[index].upper != "WITH" or (index and tokens[index - 1].text == "."):
        return False
    if index == 0 or tokens[index - 1].text == "(":
        return True
    name = index + 1 + (index + 1 < len(tokens) and tokens[index + 1].upper == "RECURSIVE")
    after = name + 1
    if after >= len(tokens) or not tokens[name].is_identifier:
        return False
    if tokens[after].text == "(" and not holds_query(tokens, after):
        after = closing(tokens, after) + 1
    following = [token.upper for token in tokens[after : after + 2]]
    return following[:1] in (["("], ["MAX"]) or following == ["AS", "("]


def _cte_body(tokens: tuple[Token, ...], start: int, end: int) -> int | None:
    """Return the bracket that opens a CTE's query, after the names of its columns and AS."""
    index = start
    while index < end:
        if tokens[index].text == "(":
            after = closing(tokens, index) + 1
            columns = after < end and (tokens[after].upper in ("AS", "MAX") or tokens[after].text == "(")
            if not columns or tokens[index - 1].upper == "AS":
                return index
            index = after
        else:
            index += 1
    return None
