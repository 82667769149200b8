"""Relations between patterns: whether two match a common name, and whether one matches all names of
another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, NamedTuple

from app.errors import UserError
from state.engine.globs import SCOPES, rank, tokens

if TYPE_CHECKING:
    from app.config.policy_files import WrittenDocument

Token = tuple[bool, str]
STARS = ((False, "*"), (False, "**"))
"""Tokens that match any number of characters."""
SIGNS = re.compile(r"[*?\[\]]")
"""Characters that can stand for others."""
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
        scope, name = source = document.source
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
    few, many = (a, b) if len(a.literals) <= len(b.literals) else (b, a)
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


def covers(wide: str, narrow: str) -> bool:
    """Whether every name that matches the narrow pattern matches the wide one, sign by sign; not
    found out where signs stand in another order, such as `*?` under `?*`."""
    parts = tokens(wide)
    at = _closed(parts, {0})
    for token in tokens(narrow):
        at = _closed(
            parts, {i + (parts[i] not in STARS) for i in at if _takes(parts[i : i + 1], token)}
        )
    return len(parts) in at


def _closed(parts: Sequence[Token], at: set[int]) -> set[int]:
    """Places in a pattern with those that follow without a character."""
    for i in sorted(at):
        while i < len(parts) and parts[i] in STARS:
            i += 1
            at.add(i)
    return at


def _takes(part: Sequence[Token], token: Token) -> bool:
    """Whether a part of a pattern, if there is one, matches all that a token of another one does."""
    if part == [STARS[0]]:
        return token not in (STARS[1], (True, "/"))
    if part == [(False, "?")]:
        return token not in (*STARS, (True, "/"))
    return part in ([token], [STARS[1]])
