"""One time for a whole statement: current_timestamp() and the like as what they are at its start."""

from __future__ import annotations

from deltamerge.errors import DeltaParseException
from deltamerge.sql.tokens import Kind, tokenize

# Only calls: a word without parentheses may be a column.
_FORMS = {
    "CURRENT_TIMESTAMP": "timestamp_micros({0})",
    "NOW": "timestamp_micros({0})",
    "CURRENT_DATE": "CAST(timestamp_micros({0}) AS DATE)",
    "CURDATE": "CAST(timestamp_micros({0}) AS DATE)",
    "LOCALTIMESTAMP": "CAST(timestamp_micros({0}) AS TIMESTAMP_NTZ)",
}


def fix_current_time(text: str, microseconds: int) -> str:
    """Puts a moment in the place of functions that tell the time.

    Args:
        text: SQL: an expression or a query.
        microseconds: The moment, microseconds since 1970.

    Returns:
        The text, verbatim but for these calls; unchanged where it cannot be split into tokens.
    """
    try:
        tokens = tokenize(text)
    except DeltaParseException:
        return text
    pieces: list[str] = []
    done = 0
    for index, token in enumerate(tokens):
        form = _FORMS.get(token.upper) if token.kind is Kind.WORD else None
        if form is None or (index and tokens[index - 1].text == "."):
            continue
        if [t.text for t in tokens[index + 1 : index + 3]] != ["(", ")"]:
            continue
        pieces += [text[done : token.span.start], form.format(microseconds)]
        done = tokens[index + 2].span.end
    return "".join([*pieces, text[done:]])
