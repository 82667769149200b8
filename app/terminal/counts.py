"""Numbers of things in words."""

from __future__ import annotations

from collections.abc import Sequence


def counted(n: int, noun: str, nouns: str = "") -> str:
    """1 topic, 2 topics."""
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"


def all_of(names: Sequence[str], last: str = "and") -> str:
    """a, b and c."""
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def gone_chunks(ids: Sequence[int]) -> str:
    """chunk 0 is gone; chunks 0, 1 and 2 are gone."""
    if len(ids) == 1:
        return f"chunk {ids[0]} is gone"
    return f"chunks {all_of([*map(str, ids)])} are gone"
