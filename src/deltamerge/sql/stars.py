"""A star that stands for columns inside an expression, as in ``struct(s.*)``."""

from __future__ import annotations

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.tokens import tokenize


def contains_star(text: str) -> bool:
    """Says whether a star in an expression stands for columns, not for a product.

    Args:
        text: A condition or a value.

    Returns:
        Whether it does; False for text that cannot be split into tokens.
    """
    try:
        tokens = [token.text for token in tokenize(text)]
    except DeltaParseException:
        return False
    around = zip(["", *tokens[:-1]], tokens, [*tokens[1:], ""], strict=True)
    return any(
        token == "*" and before in (".", "(", ",", "") and after in (")", ",", "")
        for before, token, after in around
    )
