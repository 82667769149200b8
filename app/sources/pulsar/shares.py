"""The offsets of Spark for Pulsar topics, and the partitions that lag behind them."""

from __future__ import annotations

from collections.abc import Mapping

from app.sources.pulsar.message_positions import Position
from app.sources.raw import Document, Shares

POSITIONS, MORE = "positions", "more"
"""Keys of an offset: positions by topic and partition; whether a batch up to it leaves records
behind.
"""
Key = tuple[str, str]
EARLIEST: Document = {POSITIONS: {}, MORE: False}


class PulsarShares(Shares):
    """Shares of partitions whose identities include the ledger."""

    def partition(self, source_partition: str) -> str:
        """The partition by its name, of a record's identity."""
        return source_partition.rpartition(":")[0]

    def lagging(self, before: Document, after: Document, most: int) -> list[str]:
        """The partitions that a batch advances, if its end states that it leaves records behind."""
        if not after.get(MORE):
            return []
        begins = positions_of(before)
        return [
            self.name(*key)
            for key, end in positions_of(after).items()
            if key not in begins or begins[key].place < end.place
        ]


def positions_of(document: Document) -> dict[Key, Position]:
    """The positions of an offset, by topic and partition."""
    return {
        (topic, number): Position.of(text)
        for topic, numbers in document.get(POSITIONS, {}).items()
        for number, text in numbers.items()
    }


def document_of(positions: Mapping[Key, Position], more: bool = False) -> Document:
    """The offset of positions."""
    found: dict[str, dict[str, str]] = {}
    for (topic, number), position in positions.items():
        found.setdefault(topic, {})[number] = str(position)
    return {POSITIONS: found, MORE: more}
