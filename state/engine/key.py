"""A key on the monotonic clock, which is a broker: as it is stored, and opened to judge records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from state.engine.clocks import mono_at, wall_at
from state.engine.documents import ClusterPolicy, Policy, Source
from state.engine.kernel import NULL, Array, Record
from state.engine.names import Names
from state.engine.records import Records

Pair = tuple[int, int]
"""Cluster and broker."""
Row = tuple[int, ...]


@dataclass
class Closed:
    """A key as it is stored."""

    parts: dict[str, Array]
    documents: list[Row]
    """Text, time and further fields of its own documents."""
    applied: set[int]
    """Stars that it has applied."""

    @property
    def key(self) -> Record:
        """The scalars of the key, readable by name."""
        return self.parts["key"][0]


class Key(ABC):
    """An open key: its world, documents and rows."""

    world: Any
    """A named tuple of arrays; `key` has the scalars."""
    names: Names
    documents: dict[Source, Policy]
    applied: set[int]

    @property
    def key(self) -> Record:
        """The scalars of the key, readable and writable by name."""
        return self.world.key[0]

    # -- records -----------------------------------------------------------------------------

    @abstractmethod
    def feed(self, rows: Records) -> Any:
        """Records in the form that the kernel reads."""

    @abstractmethod
    def judge(
        self, f: Any, start: int, end: int, rows: Records, policies: dict[int, Policy]
    ) -> None:
        """Judge records [start, end) of a feed; `policies` has, by record, the policies of the
        stream.
        """

    # -- time --------------------------------------------------------------------------------

    @abstractmethod
    def advance(self, clock: int, next_mono: int | None, next_wall: int) -> None:
        """Move to a moment before the key's next record."""

    def wall_at(self, clock: int, next_wall: int = int(NULL)) -> int:
        """Wall time of a moment after the key's last record, NULL if unknown."""
        w = self.world
        return int(wall_at(w.key, clock, next_wall)) if self.key["any"] else int(NULL)

    def mono_at(self, wall_ms: int) -> int:
        """Monotonic time of a wall time after the key's last record."""
        return mono_at(self.key, wall_ms)

    # -- documents ---------------------------------------------------------------------------

    @abstractmethod
    def apply(self, policy: Policy, now: int, wall: int) -> None:
        """Apply a document: it replaces the one of its scope and name, unless that is newer."""

    def before_first(self, wall: int, stars: Sequence[ClusterPolicy]) -> None:
        """Apply stars that hold before the key's first record, which has this wall time."""
        return None

    def reconfigured(self, source: Source) -> None:
        """A changed configured document of this scope and name was applied."""
        return None

    def kept_documents(self) -> list[Row]:
        """Text, time and further fields of the key's own documents."""
        return [(p.text, p.wall_ms) for p in self.documents.values() if p.wall_ms != NULL]
