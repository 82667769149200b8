"""What can happen to a large message: in which order its chunks are sent, delivered, acknowledged.

A script counts time in steps, one chunk per step, from the first chunk of its message on. It is
written for many messages at once: `n` is their number of chunks, and `j` <= `k` <= n - 2 are chunks
that something happens at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Whole = np.ndarray | int
ACK_NEXT = 1
"""Steps from the last chunk to the acknowledgement."""


class ChunkRun(NamedTuple):
    """Chunks from `first` to before `end`, one per step, the first one at `step`."""

    source: int
    """Which of the script's `sends` stored them."""
    first: Whole
    end: Whole
    step: Whole
    turn: int = 0
    """1 = the consumer that comes after the one that had the message's first chunk."""


class Script(NamedTuple):
    """One kind of fate."""

    sends: tuple[ChunkRun, ...]
    seen: tuple[ChunkRun, ...]
    """The deliveries of a subscription in which it is planted; elsewhere all goes well."""
    acks: tuple[ChunkRun, ...]
    """All of a part's acknowledgements come at its step."""
    steps: Whole
    """How long the producer is busy with the message."""
    times: int
    """How often the message is assembled where it is planted."""
    everywhere: bool = True
    """Planted in every subscription, not in one."""


Fate = Callable[[np.ndarray, np.ndarray, np.ndarray], Script]


def _complete(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    whole = (ChunkRun(0, 0, n, 0),)
    return Script(whole, whole, (ChunkRun(0, 0, n, n),), n + ACK_NEXT, 1)


def _restarted(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """The producer dies after chunk k, comes back and sends everything under the same uuid."""
    sends = (ChunkRun(0, 0, k + 1, 0), ChunkRun(1, 0, n, k + 4))
    return Script(sends, sends, (ChunkRun(1, 0, n, k + 4 + n),), n + k + 6, 1)


def _resent(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """The producer sends the whole message a second time."""
    sends = (ChunkRun(0, 0, n, 0), ChunkRun(1, 0, n, n + 2, 1))
    acks = (ChunkRun(0, 0, n, n), ChunkRun(1, 0, n, 2 * n + 2, 1))
    return Script(sends, sends, acks, 2 * n + 4, 2)


def _never_finished(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """The producer dies after chunk k and comes back without the message."""
    sends = (ChunkRun(0, 0, k + 1, 0),)
    return Script(sends, sends, (), k + 6, 0)


def _repeated(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """After chunk k the producer sends chunk j > 0 again: at another position."""
    sends = (ChunkRun(0, 0, k + 1, 0), ChunkRun(1, j, j + 1, k + 1), ChunkRun(2, k + 1, n, k + 2))
    acks = (ChunkRun(0, 0, k + 1, n + 1), ChunkRun(2, k + 1, n, n + 1))
    return Script(sends, sends, acks, n + 3, 1)


def _oversized(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """More bytes than declared: given up."""
    return _complete(n, k, j)._replace(acks=(), times=0)


def _undersized(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """Fewer bytes than declared: accepted as it is."""
    return _complete(n, k, j)


def _lost_chunk(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """Chunk k, not the last one, does not arrive."""
    seen = (ChunkRun(0, 0, k, 0), ChunkRun(0, k + 1, n, k + 1))
    return _one(n, seen, (), n + ACK_NEXT, 0)


def _duplicate(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """After chunk k the broker delivers chunk j > 0 again: at the same position."""
    seen = (ChunkRun(0, 0, k + 1, 0), ChunkRun(0, j, j + 1, k + 1), ChunkRun(0, k + 1, n, k + 2))
    return _one(n, seen, (ChunkRun(0, 0, n, n + 1),), n + 3, 1)


def _redelivered(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """After chunk k the broker delivers everything so far again, then the rest."""
    seen = (
        ChunkRun(0, 0, k + 1, 0),
        ChunkRun(0, 0, k + 1, k + 1),
        ChunkRun(0, k + 1, n, 2 * k + 2),
    )
    return _one(n, seen, (ChunkRun(0, 0, n, n + k + 1),), n + k + 3, 1)


def _redelivered_unacked(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """The whole message comes again before it is acknowledged."""
    seen = (ChunkRun(0, 0, n, 0), ChunkRun(0, 0, n, n + 2, 1))
    return _one(n, seen, (ChunkRun(0, 0, n, 2 * n + 3, 1),), 2 * n + 5, 2)


def _redelivered_acked(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """The whole message comes again although it is acknowledged."""
    seen = (ChunkRun(0, 0, n, 0), ChunkRun(0, 0, n, n + 3, 1))
    return _one(n, seen, (ChunkRun(0, 0, n, n + 1),), 2 * n + 5, 1)


def _consumer_closed(n: np.ndarray, k: np.ndarray, j: np.ndarray) -> Script:
    """The consumer goes after chunk k; it, or the next one, gets everything again."""
    seen = (
        ChunkRun(0, 0, k + 1, 0),
        ChunkRun(0, 0, k + 1, k + 4, 1),
        ChunkRun(0, k + 1, n, 2 * k + 5, 1),
    )
    return _one(n, seen, (ChunkRun(0, 0, n, n + k + 4, 1),), n + k + 9, 1)


def _one(
    n: np.ndarray,
    seen: tuple[ChunkRun, ...],
    acks: tuple[ChunkRun, ...],
    steps: np.ndarray,
    times: int,
) -> Script:
    return Script((ChunkRun(0, 0, n, 0),), seen, acks, steps, times, everywhere=False)


FATES: dict[str, Fate] = {
    "complete": _complete,
    "restarted": _restarted,
    "resent": _resent,
    "never_finished": _never_finished,
    "repeated": _repeated,
    "oversized": _oversized,
    "undersized": _undersized,
    "lost_chunk": _lost_chunk,
    "duplicate": _duplicate,
    "redelivered": _redelivered,
    "redelivered_unacked": _redelivered_unacked,
    "redelivered_acked": _redelivered_acked,
    "consumer_closed": _consumer_closed,
}
NAMES: tuple[str, ...] = tuple(FATES)
"""Kinds of fate; a message holds the index of its own."""
EVICTED = "evicted"
"""Planted by a crowd of messages, not by a script."""
COMPLETE, NEVER_FINISHED = NAMES.index("complete"), NAMES.index("never_finished")
CLOSED, RESTARTED = NAMES.index("consumer_closed"), NAMES.index("restarted")
OVERSIZED, UNDERSIZED = NAMES.index("oversized"), NAMES.index("undersized")
LOST_CHUNK = NAMES.index("lost_chunk")
ACKED_EARLY = NAMES.index("redelivered_acked")
NEEDS_THREE = tuple(NAMES.index(name) for name in ("repeated", "duplicate"))
"""Kinds that need a chunk that is neither the first nor the last one."""
