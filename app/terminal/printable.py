"""Text of others on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text on one line, with escapes such as `\\x1b` in place of characters that would move the
    cursor, change colours or turn the direction of reading."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
