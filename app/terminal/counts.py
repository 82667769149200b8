"""Numbers of things in words."""

from __future__ import annotations

from collections.abc import Sequence


def counted(n: int, noun: str, nouns: str = "") -> str:
    """1 topic, 2 topics."""
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"


def gone_chunks(ids: Sequence[int]) -> str:
    """chunk 0 is gone; chunks 0, 1 and 2 are gone."""
    if len(ids) == 1:
        return f"chunk {ids[0]} is gone"
    return f"chunks {', '.join(map(str, ids[:-1]))} and {ids[-1]} are gone"
