"""Numbers of things in words."""

from __future__ import annotations


def counted(n: int, noun: str, nouns: str = "") -> str:
    """1 topic, 2 topics."""
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"
