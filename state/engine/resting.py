"""What rests in a state: kept apart as pages of bytes, which a batch passes on unread unless it needs
them.

A job decides when something rests, what a page holds, and what it knows of each page besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from state.engine.codec import RAW
from state.engine.kernel import Array
from state.engine.names import Names


@dataclass
class Rest:
    """When things begin to rest."""

    after_ms: int
    """Event time since something happened to them (ms)."""
    page: int = 512
    """Things of a page; a page is not written with fewer than half as many."""

    def least(self, awake: int) -> int:
        """How many must be idle, of so many that are awake, for any to rest."""
        return max(self.page // 2, awake // 4)


@dataclass
class Resting:
    """Things that rest, found by their hashes."""

    key: Array
    """Hashes, in order."""
    page: Array
    """Which page each of them is in."""
    about: dict[str, Array]
    """What the job knows of each page, by name."""
    pages: list[Any]
    """The bytes of each page."""

    def __len__(self) -> int:
        return len(self.pages)

    def pages_of(self, wanted: Array) -> Array:
        """The pages (with repetitions) of all things with one of these hashes."""
        begin = np.searchsorted(self.key, wanted, "left")
        count = np.searchsorted(self.key, wanted, "right") - begin
        at = np.repeat(begin - np.cumsum(count) + count, count) + np.arange(count.sum())
        return self.page[at]

    def without(self, gone: Array) -> Resting:
        """The others, without some pages (by number or bool)."""
        stays = np.ones(len(self.pages), bool)
        stays[gone] = False
        number = np.cumsum(stays) - 1
        keys = stays[self.page]
        return Resting(
            self.key[keys],
            number[self.page[keys]],
            {name: values[stays] for name, values in self.about.items()},
            [page for page, stay in zip(self.pages, stays, strict=True) if stay],
        )

    def joined_by(
        self, key: Array, page: Array, about: Mapping[str, Array], pages: Sequence[bytes]
    ) -> Resting:
        """These and more: hashes in any order, and the new page of each, counted from 0."""
        order = np.argsort(key, kind="stable")
        at = np.searchsorted(self.key, key[order], "right")
        return Resting(
            np.insert(self.key, at, key[order]),
            np.insert(self.page, at, len(self.pages) + page[order]),
            {name: np.concatenate([self.about[name], more]) for name, more in about.items()},
            [*self.pages, *pages],
        )


@dataclass(frozen=True)
class Pages:
    """The part of a state for what rests; `about` are the names of what a job knows of a page."""

    name: str
    about: tuple[str, ...]
    named: Sequence[str] = ()

    def blank(self) -> Resting:
        """Nothing rests."""
        none = np.zeros(0, np.int64)
        return Resting(none, none, dict.fromkeys(self.about, none), [])

    def load(self, arrays: Mapping[str, Any], names: Names) -> Resting:
        """What rests; pages are views."""
        end = np.cumsum(arrays[f"{self.name}.length"]).tolist()
        data = memoryview(arrays[f"{self.name}.pages"].view(np.uint8))
        return Resting(
            arrays[f"{self.name}.key"],
            arrays[f"{self.name}.page"],
            {name: arrays[f"{self.name}.{name}"] for name in self.about},
            [data[begin:at] for begin, at in pairwise([0, *end])],
        )

    def save(self, value: Resting, arrays: dict[str, Any], names: Names) -> None:
        """Its arrays, and all pages as one."""
        arrays[f"{self.name}.key"], arrays[f"{self.name}.page"] = value.key, value.page
        for name in self.about:
            arrays[f"{self.name}.{name}"] = value.about[name]
        lengths = [len(page) for page in value.pages]
        arrays[f"{self.name}.length"] = np.array(lengths, np.int64)
        arrays[f"{self.name}.pages"] = np.frombuffer(b"".join(value.pages), RAW)

    def ids(self, arrays: Mapping[str, Any]) -> Sequence[Array]:
        """No names: those of a page are in it."""
        return ()
