"""How many things a shard keeps."""

from __future__ import annotations

from typing import Any

OF_PARTS = ("keys", "cursors", "ledgers", "samples", "producers", "ranges", "filters", "words")
OF_PARTS += ("sensors", "stats", "usage")


def sizes_of(shard: Any) -> dict[str, int]:
    """Elements of its arrays, shared and waiting records, and what rests."""
    found = {name: shard.parts[name].shape[-1] for name in OF_PARTS if name in shard.parts}
    found |= {"shared": len(shard.meaning), "waiting": len(shard.waiting["cluster"])}
    return found | ({"resting": len(shard.resting.key)} if hasattr(shard, "resting") else {})
