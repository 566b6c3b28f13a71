"""Base85 in ZeroMQ's alphabet, as deletion vectors' names and inline vectors are spelled.

Source: Delta protocol, "Deletion Vector Descriptor Schema" (Base85 encoding, ZeroMQ RFC 32).
"""

from __future__ import annotations

import uuid

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {char: digit for digit, char in enumerate(_ALPHABET)}

UUID_LENGTH = 20
"""The characters of an encoded UUID."""


def z85_encode(data: bytes) -> str:
    """Encode bytes, their number a multiple of 4, as five characters for every four."""
    text = []
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        text.append("".join(_ALPHABET[number // 85**power % 85] for power in (4, 3, 2, 1, 0)))
    return "".join(text)


def z85_decode(text: str) -> bytes:
    """Decode five characters to every four bytes."""
    if len(text) % 5:
        raise ValueError(f"Base85 text comes in groups of five characters, here are {len(text)}")
    data = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for char in text[start : start + 5]:
            if char not in _DIGITS:
                raise ValueError(f"{char!r} is no character of Base85")
            number = number * 85 + _DIGITS[char]
        if number >> 32:
            raise ValueError(f"{text[start : start + 5]!r} stands for more than four bytes")
        data += number.to_bytes(4, "big")
    return bytes(data)


def encode_uuid(value: uuid.UUID) -> str:
    """Encode a UUID as 20 characters."""
    return z85_encode(value.bytes)


def decode_uuid(text: str) -> uuid.UUID:
    """Decode 20 characters to a UUID."""
    return uuid.UUID(bytes=z85_decode(text))
