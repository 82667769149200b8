"""Relations between patterns: whether two match a common name, and whether one matches all names of
another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from app.config.levels import source_of
from app.errors import UserError
from state.engine.globs import SCOPES, rank, tokens

if TYPE_CHECKING:
    from app.config.policy_files import WrittenDocument

OTHER = "\0"
"""A character that occurs in no pattern."""

STARS = ((False, "*"), (False, "**"))
"""Tokens that match any number of characters."""
SIGNS = re.compile(r"[*?\[\]]")
"""Characters that can stand for others."""
MOST_PAIRS = 1_000
"""Positions of two patterns that are looked at."""
MOST_STEPS = 1_000_000
"""Positions of all pairs of patterns that are looked at, for about 2 s."""


class Conflict(NamedTuple):
    """Two equally specific documents that match a common name, and the limits that differ."""

    one: WrittenDocument
    other: WrittenDocument
    keys: list[str]


def conflicts(found: Sequence[WrittenDocument]) -> Iterator[Conflict]:
    """Pairs of documents with patterns that are equally strong."""
    equals: dict[tuple[Any, ...], list[tuple[str, WrittenDocument]]] = {}
    for document in found:
        if (source := source_of(document.document))[0] in SCOPES:
            equals.setdefault((source[0], *rank(source)[:2]), []).append((source[1], document))
    left = MOST_STEPS
    for (a, one), (b, other) in (pair for e in equals.values() for pair in combinations(e, 2)):
        common, steps = overlap(a, b)
        left -= steps
        if left < 0:
            raise UserError(
                f"{one.where}: too many patterns are as specific as {a!r} to compare them\n"
                f"allowed: a comparison of {MOST_STEPS:,} steps"
            )
        mine, others = one.document["limits"], other.document["limits"]
        keys = sorted(key for key in mine.keys() & others.keys() if mine[key] != others[key])
        if common and keys:
            yield Conflict(one, other, keys)


def overlap(one: str, other: str) -> tuple[bool, int]:
    """Whether a name matches both patterns, which is when both ends are reached together, and the
    number of steps that it took to find out."""
    (begin, end), (other_begin, other_end) = _plain_ends(one), _plain_ends(other)
    if not (
        begin.startswith(other_begin[: len(begin)])
        and end.endswith(other_end[-len(end) :] if end else "")
    ):
        return False, 1
    a, b = tokens(one), tokens(other)
    found, left = {(0, 0)}, [(0, 0)]
    while left:
        i, j = left.pop()
        if i == len(a) and j == len(b):
            return True, len(found)
        following = set()
        here, there = (*a[i : i + 1], None)[0], (*b[j : j + 1], None)[0]
        if here in STARS:
            following.add((i + 1, j))
        if there in STARS:
            following.add((i, j + 1))
        if here and there and _shared(here, there):
            following.add((i + (here not in STARS), j + (there not in STARS)))
        left += following - found
        found |= following
    return False, len(found)


@lru_cache(maxsize=100_000)
def _plain_ends(pattern: str) -> tuple[str, str]:
    """The characters of a pattern before its first sign and after its last one."""
    parts = SIGNS.split(pattern)
    return parts[0], parts[-1]


def _shared(one: tuple[bool, str], other: tuple[bool, str]) -> bool:
    """Whether two tokens match a character in common."""
    if one[0] and other[0]:
        return one == other
    wild, sign = (other, one) if one[0] else (one, other)
    return wild[1] == "**" or sign != (True, "/")


def covers(wide: str, narrow: str) -> bool:
    """Whether every name that matches the narrow pattern matches the wide one; False as well where
    patterns have so many wildcards that it is not found out."""
    pairs = _pairs(wide, narrow)
    return pairs is not None and all(_ends(wide, a) for a, b in pairs if _ends(narrow, b))


States = frozenset[int]


def _pairs(one: str, other: str) -> set[tuple[States, States]] | None:
    """Positions that two patterns can have at the same time, after any text; None if there are more
    than `MOST_PAIRS`."""
    signs = {text for part in (one, other) for literal, text in tokens(part) if literal}
    signs |= {OTHER, "/"}
    begin = _closed(one, {0}), _closed(other, {0})
    found, left = {begin}, [begin]
    while left and len(found) <= MOST_PAIRS:
        a, b = left.pop()
        for sign in signs:
            following = _after(one, a, sign), _after(other, b, sign)
            if following[1] and following not in found:
                found.add(following)
                left.append(following)
    return None if left else found


def _closed(pattern: str, at: set[int]) -> States:
    """Places in a pattern with those that follow without a character."""
    parts = tokens(pattern)
    found = set(at)
    for i in sorted(at):
        while i < len(parts) and parts[i] in STARS:
            i += 1
            found.add(i)
    return frozenset(found)


def _after(pattern: str, at: States, sign: str) -> States:
    parts = tokens(pattern)
    found: set[int] = set()
    for i in at:
        if i == len(parts):
            continue
        literal, text = parts[i]
        if literal:
            found |= {i + 1} if text == sign else set()
        elif text == "**" or sign != "/":
            found.add(i + 1 if text == "?" else i)
    return _closed(pattern, found)


def _ends(pattern: str, at: States) -> bool:
    return len(tokens(pattern)) in at
