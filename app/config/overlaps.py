"""Relations between patterns: whether two match a common name, and whether one matches all names of
another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
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
"""Pairs of places in two patterns that are looked at."""
MOST_STEPS = 1_000_000
"""Steps of a comparison of all patterns, for some seconds."""


class Conflict(NamedTuple):
    """Two equally specific documents that match a common name, and the limits that differ."""

    one: WrittenDocument
    other: WrittenDocument
    keys: list[str]


def conflicts(found: Sequence[WrittenDocument]) -> Iterator[Conflict]:
    """Pairs of documents with patterns that are equally strong."""
    equals: dict[tuple[Any, ...], dict[str, int]] = {}
    for place, document in enumerate(found):
        scope, name = source = source_of(document.document)
        if scope in SCOPES:
            equals.setdefault((scope, *rank(source)[:2]), {})[name] = place
    left = MOST_STEPS
    for patterns in equals.values():
        for pair in overlaps(patterns):
            left -= 1
            if left < 0:
                raise UserError(
                    f"{found[min(patterns.values())].where}: too many patterns are as specific as"
                    f" {next(iter(patterns))!r} to compare them\n"
                    f"allowed: a comparison of {MOST_STEPS:,} steps"
                )
            if pair is None:
                continue
            one, other = (found[patterns[name]] for name in sorted(pair, key=patterns.__getitem__))
            mine, others = one.document["limits"], other.document["limits"]
            keys = sorted(key for key in mine.keys() & others.keys() if mine[key] != others[key])
            if keys:
                yield Conflict(one, other, keys)


class _Begun:
    """A beginning that patterns share: a node of the tree of their tokens."""

    def __init__(self, number: int, sign: str = "") -> None:
        self.number = number
        self.literals: dict[str, _Begun] = {}
        self.wild = {sign: self} if sign.startswith("*") else {}
        """What follows after a character that a sign matches; a star matches more of them."""
        self.stars: dict[str, _Begun] = {}
        """What follows without a character."""
        self.ends: list[str] = []
        """The patterns that end here; `[` may be written in two ways."""


def _tree(patterns: Iterable[str]) -> _Begun:
    root, count = _Begun(0), 0
    for pattern in patterns:
        at = root
        for token in tokens(pattern):
            nodes = at.literals if token[0] else at.stars if token in STARS else at.wild
            if token[1] not in nodes:
                count += 1
                nodes[token[1]] = _Begun(count, "" if token[0] else token[1])
            at = nodes[token[1]]
        at.ends.append(pattern)
    return root


def overlaps(patterns: Iterable[str]) -> Iterator[tuple[str, str] | None]:
    """Pairs of patterns that match a name in common, and None for each other step of the search.

    A pair of nodes is reached if a text matches both beginnings, so patterns that begin alike are
    compared once: 5,000 with nothing else in common take fewer steps than characters.
    """
    root = _tree(patterns)
    found, left = {(0, 0)}, [(root, root)]
    while left:
        a, b = left.pop()
        yield from combinations(a.ends, 2) if a is b else product(a.ends, b.ends)
        for one, other in _following(a, b):
            yield None
            low, high = (one, other) if one.number < other.number else (other, one)
            if (low.number, high.number) not in found:
                found.add((low.number, high.number))
                left.append((low, high))


def _following(a: _Begun, b: _Begun) -> Iterator[tuple[_Begun, _Begun]]:
    """The pairs that a pair of nodes leads to, by one character or by none."""
    few, many = sorted((a, b), key=lambda node: len(node.literals))
    for character, node in few.literals.items():
        if character in many.literals:
            yield node, many.literals[character]
    for one, other in ((a, b), (b, a)):
        yield from ((star, other) for star in one.stars.values())
        for sign, node in one.wild.items():
            for character, following in other.literals.items():
                if sign == "**" or character != "/":
                    yield node, following
    yield from product(a.wild.values(), b.wild.values())


def begin_and_end(pattern: str) -> tuple[str, str]:
    """The characters of a pattern before its first sign and after its last one. What covers another
    pattern has no longer ones."""
    parts = SIGNS.split(pattern)
    return parts[0], parts[-1]


def covers(wide: str, narrow: str) -> tuple[bool, int]:
    """Whether every name that matches the narrow pattern matches the wide one; False as well where
    patterns have so many wildcards that it is not found out. And the pairs of places that were
    looked at."""
    one, other = tokens(wide), tokens(narrow)
    signs = {text for literal, text in (*one, *other) if literal} | {OTHER, "/"}
    begin = _closed(one, {0}), _closed(other, {0})
    found, left = {begin}, [begin]
    while left and len(found) <= MOST_PAIRS:
        a, b = left.pop()
        if not a or (len(other) in b and len(one) not in a):
            return False, len(found)
        for sign in signs:
            following = _after(one, a, sign), _after(other, b, sign)
            if following[1] and following not in found:
                found.add(following)
                left.append(following)
    return not left, len(found)


Tokens = Sequence[tuple[bool, str]]
States = frozenset[int]
"""Places in a pattern after a text."""


def _closed(parts: Tokens, at: set[int]) -> States:
    """Places in a pattern with those that follow without a character."""
    found = set(at)
    for i in at:
        while i < len(parts) and parts[i] in STARS:
            i += 1
            found.add(i)
    return frozenset(found)


def _after(parts: Tokens, at: States, sign: str) -> States:
    found: set[int] = set()
    for i in at:
        if i == len(parts):
            continue
        literal, text = parts[i]
        if literal:
            found |= {i + 1} if text == sign else set()
        elif text == "**" or sign != "/":
            found.add(i + 1 if text == "?" else i)
    return _closed(parts, found)
