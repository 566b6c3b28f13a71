"""Where a value expression (operands and arithmetic, no comparison) ends."""

from __future__ import annotations

from deltamerge.sql.tokens import Kind, Token, closing, words

_SINGULAR = words("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND NANOSECOND")
INTERVAL_UNITS = _SINGULAR | {unit + "S" for unit in _SINGULAR}
_BINARY = frozenset(["+", "-", "*", "/", "%", "||", "&", "|", "^", "DIV"])
_PREFIX = frozenset(["+", "-", "~"])


def skip_value(tokens: tuple[Token, ...], start: int) -> int:
    """Finds the end of a value expression such as ``current_timestamp() - INTERVAL 1 DAY``.

    Args:
        tokens: The tokens.
        start: The index of its first token.

    Returns:
        The index after its last token; `start` where no value begins there.
    """
    index = start
    while True:
        end = _skip_operand(tokens, index)
        if end == index:
            return start if index == start else index - 1
        index = end
        if index >= len(tokens) or tokens[index].upper not in _BINARY:
            return index
        index += 1


def _skip_operand(tokens: tuple[Token, ...], start: int) -> int:
    index = start
    while index < len(tokens) and tokens[index].text in _PREFIX:
        index += 1
    if index >= len(tokens):
        return start
    token = tokens[index]
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if token.text == "(" or (
        token.upper == "CASE" and following is not None and following.depth > token.depth
    ):
        index = closing(tokens, index) + 1
    elif token.upper == "INTERVAL" and following is not None and following.text != ".":
        index = _skip_interval(tokens, index)
    elif token.kind is Kind.WORD and following is not None and following.kind is Kind.STRING:
        # DATE'2020-01-01'
        index += 2
    elif token.kind is Kind.SYMBOL and token.text not in (":", "?"):
        return start
    else:
        index += 2 if token.text == ":" else 1
    return _skip_postfix(tokens, index)


def _skip_postfix(tokens: tuple[Token, ...], index: int) -> int:
    while index < len(tokens):
        text = tokens[index].text
        if text in ("(", "["):
            index = closing(tokens, index) + 1
        elif text in (".", "::"):
            index += 2
        else:
            break
    return min(index, len(tokens))


def _skip_interval(tokens: tuple[Token, ...], start: int) -> int:
    index = start + 1
    while index < len(tokens):
        end = _skip_operand(tokens, index) if tokens[index].upper not in INTERVAL_UNITS else index
        if end >= len(tokens) or end == index or tokens[end].upper not in INTERVAL_UNITS:
            return end if index == start + 1 else index
        index = end + 1
        if (
            index + 1 < len(tokens)
            and tokens[index].upper == "TO"
            and tokens[index + 1].upper in INTERVAL_UNITS
        ):
            return index + 2
    return index
