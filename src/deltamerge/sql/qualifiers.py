"""Qualifiers of columns: whole names of tables, in the place of which frames have aliases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.sql.caret import Span
from deltamerge.sql.merge_ast import NameParts
from deltamerge.sql.names import quote
from deltamerge.sql.relations import (
    QUERY_WORDS,
    TableReference,
    alias_or_name,
    folded,
    has_alias,
    holds_query,
    relations,
    replace_references,
)
from deltamerge.sql.tokens import Kind, Token, name_end, slice_of, tokenize

_SET_OPERATIONS = frozenset({"UNION", "EXCEPT", "INTERSECT", "MINUS"})


@dataclass(frozen=True)
class _Relation:
    """A relation whose columns are qualified by its name.

    Args:
        name: The name in lower case, with its database and catalog where they are known.
        query: Where the query that reads it begins and ends, in tokens.
        reference: The reference that gets an alias; None where the relation stays as it is.
    """

    name: NameParts
    query: tuple[int, int]
    reference: TableReference | None


def alias_replacements(
    sql: str, references: Sequence[TableReference], whole_names: Mapping[str, NameParts]
) -> dict[Span, str]:
    """Return what `replace_references` has to put in a query so that named tables get aliases, and columns, too.

    The alias is the name's last part: ``SELECT db.t.id FROM db.t`` becomes ``SELECT `t`.id FROM db.t AS `t` ``. Where
    another relation in sight has the same last part, it is the whole name, as one part.

    Args:
        whole_names: The references' names with database and catalog.
    """
    tokens = tokenize(sql)
    named = {r.span.start: r for r in references if r.kind == "name" and r.alias_at is not None}
    found = _named_relations(tokens, named, whole_names)
    aliases = {relation: _alias(relation, found) for relation in found}
    replacements: dict[Span, str] = {}
    for relation, alias in aliases.items():
        if relation.reference is not None and relation.reference.alias_at is not None:
            place = relation.reference.alias_at
            replacements[Span(place, place)] = f" AS {alias}"
    for start, parts, longest in _columns(tokens):
        meant, length = _qualified_by(found, start, parts[:longest])
        if meant is not None and meant.reference is not None and aliases[meant] != quote(parts[0]):
            replacements[slice_of(tokens[start : start + 2 * length - 1])] = aliases[meant]
    return replacements


def _named_relations(
    tokens: tuple[Token, ...], references: Mapping[int, TableReference], whole_names: Mapping[str, NameParts]
) -> tuple[_Relation, ...]:
    queries = _queries(tokens)
    found = []
    for start, end, _ in relations(tokens):
        reference = references.get(tokens[start].span.start)
        if reference is not None or not has_alias(tokens, end):
            written = tuple(token.name for token in tokens[start:end:2])
            name = folded(written if reference is None else whole_names[reference.path_or_name])
            query = min((q for q in queries if q[0] <= start < q[1]), key=_length)
            found.append(_Relation(name, query, reference))
    return tuple(found)


def _length(query: tuple[int, int]) -> int:
    return query[1] - query[0]


def _queries(tokens: tuple[Token, ...]) -> list[tuple[int, int]]:
    """Return where queries begin and end; each part of a UNION is one."""
    found: list[tuple[int, int]] = []
    begun: list[int | None] = [0]
    for index, token in enumerate(tokens):
        following = tokens[index + 1].upper if index + 1 < len(tokens) else ""
        if token.text in ("(", "[", "{"):
            begun.append(index + 1 if following in QUERY_WORDS else None)
        elif token.text in (")", "]", "}") or _is_set_operation(tokens, index):
            start = begun.pop()
            if start is not None:
                found.append((start, index))
            if token.kind is not Kind.SYMBOL:
                begun.append(None if start is None else index)
    return [*found, (begun[0] or 0, len(tokens))]


def _is_set_operation(tokens: tuple[Token, ...], index: int) -> bool:
    """Return whether a query follows; ``* EXCEPT (a)`` leaves columns out."""
    if tokens[index].upper not in _SET_OPERATIONS or index + 1 == len(tokens):
        return False
    following = tokens[index + 1]
    return following.upper in (*QUERY_WORDS, "ALL", "DISTINCT") or (
        following.text == "(" and holds_query(tokens, index + 1)
    )


def _alias(relation: _Relation, others: Sequence[_Relation]) -> str:
    (start, end), last = relation.query, relation.name[-1]
    for other in others:
        nested = other.query[0] <= start and end <= other.query[1]
        nests = start <= other.query[0] and other.query[1] <= end
        if (nested or nests) and other.name[-1] == last and other.name != relation.name:
            return quote(".".join(relation.name))
    return quote(last)


def _qualified_by(found: Sequence[_Relation], place: int, qualifier: NameParts) -> tuple[_Relation | None, int]:
    """Return the relation that a column's first parts name, and how many parts these are; None if none or several do.

    The inner query's relations come before those of the outer ones, as in Spark, and longer names before shorter ones.
    """
    visible = [each for each in found if each.query[0] <= place < each.query[1]]
    for query in sorted({each.query for each in visible}, key=_length):
        for length in range(len(qualifier), 0, -1):
            named = {each for each in visible if each.query == query and each.name[-length:] == qualifier[:length]}
            if named:
                return (named.pop() if len(named) == 1 else None), length
    return None, 0


def _columns(tokens: tuple[Token, ...]) -> Iterator[tuple[int, NameParts, int]]:
    """Yield where names of columns begin, their parts in lower case, and how many of these may be a qualifier."""
    places = {start for start, _, _ in relations(tokens)}
    index = 0
    while index < len(tokens):
        if not tokens[index].is_identifier or (index and tokens[index - 1].text in (".", "::", ":")):
            index += 1
            continue
        end = name_end(tokens, index)
        star = end + 1 < len(tokens) and tokens[end].text == "." and tokens[end + 1].text == "*"
        call = end < len(tokens) and tokens[end].text == "("
        parts = folded(token.name for token in tokens[index:end:2])
        if not call and index not in places:
            yield index, parts, len(parts) if star else len(parts) - 1
        index = end


def _outer_columns(tokens: tuple[Token, ...]) -> Iterator[tuple[int, NameParts, int]]:
    """Yield what `_columns` does, but for columns of the relations that subqueries read."""
    inner = _inner_names(tokens)
    found = _columns(tokens)
    return (each for each in found if not _is_of_query(inner, each[0], each[1][: each[2]]))


def _inner_names(tokens: tuple[Token, ...]) -> list[tuple[tuple[int, int], NameParts]]:
    """Return the subqueries in an expression, in tokens, each with the alias or name of a relation that it reads."""
    queries = [query for query in _queries(tokens) if query != (0, len(tokens))]
    if not queries:
        return []
    named = [(start, alias_or_name(tokens, start, end)) for start, end, _ in relations(tokens)]
    # Of queries and functions that are read.
    ends = [index + 1 for index, token in enumerate(tokens) if token.text == ")"]
    named += [(end - 1, alias_or_name(tokens, end - 1, end)) for end in ends if has_alias(tokens, end)]
    around = ((place, [query for query in queries if query[0] <= place < query[1]], name) for place, name in named)
    return [(min(within, key=_length), name) for _, within, name in around if within]


def _is_of_query(inner: Sequence[tuple[tuple[int, int], NameParts]], place: int, qualifier: NameParts) -> bool:
    return any(
        first <= place < last and name[-length:] == qualifier[:length]
        for (first, last), name in inner
        for length in range(1, len(qualifier) + 1)
    )


def _parameters(tokens: tuple[Token, ...]) -> frozenset[str]:
    found = set[str]()
    for index, token in enumerate(tokens):
        if token.text != "->":
            continue
        first = index - 1
        while first > 0 and tokens[index - 1].text == ")" and tokens[first].text != "(":
            first -= 1
        found.update(each.name.lower() for each in tokens[first:index] if each.is_identifier)
    return frozenset(found)


def aliases_of(names: Sequence[NameParts]) -> tuple[str | None, ...]:
    """Return a frame's alias for each name: its last part, or all of it where another name ends alike."""
    return tuple(_alias_among(names, index) if name else None for index, name in enumerate(names))


def _alias_among(names: Sequence[NameParts], index: int) -> str:
    name = names[index]
    others = (other for i, other in enumerate(names) if other and i != index)
    return ".".join(name) if any(folded(other)[-1] == folded(name)[-1] for other in others) else name[-1]


def alias_for(column: NameParts, names: Sequence[NameParts], longest: int | None = None) -> tuple[str | None, int]:
    """Return the alias of the name that qualifies a column, and how many of the column's parts that is; None and 0.

    Of a name of several parts, such as ``("db", "tbl")``, the last ones are a qualifier as well: ``tbl.id``.

    Args:
        longest: How many parts may be the qualifier; by default all but one.

    Raises:
        DeltaAnalysisException: The qualifier is the end of several names.
    """
    parts, aliases = folded(column), aliases_of(names)
    for length in range(len(parts) - 1 if longest is None else longest, 0, -1):
        found = [i for i, name in enumerate(names) if folded(name[-length:]) == parts[:length]]
        if len(found) > 1:
            of_both = " and ".join(".".join(names[i]) for i in found)
            raise DeltaAnalysisException(
                "AMBIGUOUS_REFERENCE",
                f"{'.'.join(column)} may be a column of {of_both}. Give both sides an alias, or write the whole name.",
                parameters={"name": ".".join(column)},
            )
        if found:
            return aliases[found[0]], length
    return None, 0


def without_qualifier(sql: str, qualifier: str) -> str:
    """Return an expression with its columns as they are named without a table's alias in front of them."""
    tokens = tokenize(sql)
    wanted = {qualifier.lower()} - _parameters(tokens)
    places = (start for start, parts, longest in _columns(tokens) if longest and parts[0] in wanted)
    return replace_references(sql, {Span(tokens[p].span.start, tokens[p + 2].span.start): "" for p in places})


Renaming: TypeAlias = Callable[[NameParts, int], "tuple[NameParts, int]"]
"""Returns what stands in the place of a name's first parts, and of how many; no parts where the name stays as it is.

It is given the name's parts, in lower case, and how many of them may be a qualifier at the most."""


def to_aliases(names: Sequence[NameParts]) -> Renaming:
    """Return what replaces tables' names by their aliases: ``db.tbl.id`` becomes `` `tbl`.id``."""

    def renamed(column: NameParts, longest: int) -> tuple[NameParts, int]:
        alias, length = alias_for(column, names, longest)
        return ((), 0) if alias is None else ((alias,), length)

    return renamed


def qualifiers_in(sql: str) -> frozenset[NameParts]:
    """Return what may be qualifiers of columns in an expression, in lower case: all first parts of names.

    Relations that its subqueries read are none.
    """
    columns = _outer_columns(tokenize(sql))
    return frozenset(parts[:length] for _, parts, longest in columns for length in range(1, longest + 1))


def has_scopes(sql: str) -> bool:
    """Return whether an expression has subqueries or functions with parameters, whose names may hide others."""
    tokens = tokenize(sql)
    return len(_queries(tokens)) > 1 or any(token.text == "->" for token in tokens)


def rename_columns(sql: str, renaming: Renaming) -> str:
    """Rename the columns in an expression.

    The parameters of its functions (``x -> x.a``) are none, and those of a relation that a subquery reads stay.
    """
    tokens = tokenize(sql)
    replacements: dict[Span, str] = {}
    parameters = _parameters(tokens)
    for start, parts, longest in _outer_columns(tokens):
        renamed, length = ((), 0) if parts[0] in parameters else renaming(parts, longest)
        if renamed and folded(renamed) != parts[:length]:
            place = slice_of(tokens[start : start + 2 * length - 1])
            replacements[place] = ".".join(quote(part) for part in renamed)
    return replace_references(sql, replacements)
