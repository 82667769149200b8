"""Relations between patterns: whether two match a common name, and whether one matches all names of
another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from app.config.levels import source_of
from state.engine.globs import SCOPES, rank, tokens

if TYPE_CHECKING:
    from app.config.policy_files import WrittenDocument

OTHER = "\0"
"""A character that occurs in no pattern."""


class Conflict(NamedTuple):
    """Two equally specific documents that match a common name, and the limits that differ."""

    one: WrittenDocument
    other: WrittenDocument
    keys: list[str]


def conflicts(found: Sequence[WrittenDocument]) -> Iterator[Conflict]:
    """Pairs of documents with patterns that are equally strong."""
    many = [(source_of(one.document), one) for one in found]
    many = [(source, one) for source, one in many if source[0] in SCOPES]
    for (a, one), (b, other) in combinations(many, 2):
        if a[0] != b[0] or rank(a)[:2] != rank(b)[:2] or not overlap(a[1], b[1]):
            continue
        mine, others = one.document["limits"], other.document["limits"]
        keys = sorted(key for key in mine.keys() & others.keys() if mine[key] != others[key])
        if keys:
            yield Conflict(one, other, keys)


def overlap(one: str, other: str) -> bool:
    """Whether a name matches both patterns."""
    return any(_ends(one, a) and _ends(other, b) for a, b in _pairs(one, other))


def covers(wide: str, narrow: str) -> bool:
    """Whether every name that matches the narrow pattern matches the wide one."""
    return all(_ends(wide, a) for a, b in _pairs(wide, narrow) if _ends(narrow, b))


States = frozenset[int]


def _pairs(one: str, other: str) -> set[tuple[States, States]]:
    """Positions that two patterns can have at the same time, after any text."""
    signs = {text for part in (one, other) for literal, text in tokens(part) if literal}
    signs |= {OTHER, "/"}
    begin = _closed(one, {0}), _closed(other, {0})
    found, left = {begin}, [begin]
    while left:
        a, b = left.pop()
        for sign in signs:
            following = _after(one, a, sign), _after(other, b, sign)
            if following[1] and following not in found:
                found.add(following)
                left.append(following)
    return found


def _closed(pattern: str, at: set[int]) -> States:
    """Places in a pattern with those that follow without a character."""
    parts = tokens(pattern)
    found = set(at)
    for i in sorted(at):
        while i < len(parts) and parts[i] in ((False, "*"), (False, "**")):
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
