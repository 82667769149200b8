"""Names in a text, where a line for each would be a page."""

from __future__ import annotations


def words(text: str) -> tuple[str, ...]:
    """The words of a text, in their order."""
    return tuple(text.split())
