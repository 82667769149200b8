"""Samples the entries of a trace by hash, each with all its records (SHARDS).

Topic and position decide whether an entry is in the sample, so all of its reads are, or none.
Records that concern no single entry (cursors, ledgers, policies, starts) are in every sample. A
cache of the sample has the same share of the size. The 64 bits of a hash are read as a number
between 0 and 1: samples of disjoint ranges share no entry, and a smaller sample is part of a larger
one with the same start.
"""

from __future__ import annotations

import numpy as np

from state.engine.blobs import NULL, Blob
from state.events import KIND_INDEX
from udfs.hashing import NULL_HASH, combine_hashes, hash_strings

Array = np.ndarray
OF_ENTRIES = tuple(
    KIND_INDEX[kind]
    for kind in (
        "entry_added",
        "dispatch",
        "entry_read",
        "entry_released",
        "replay_queued",
        "entry_invalidated",
    )
)
_SCALE = 2.0**64


def sampled(blob: bytes, rate: float, start: float = 0.0) -> bytes:
    """The records of a packed blob about entries with a hash from `start` to `start + rate`, and
    those that concern no single entry.
    """
    records = Blob(blob)
    return records.filtered(_is_kept(records, rate, start))


def _is_kept(records: Blob, rate: float, start: float) -> Array:
    kind, topic, ledger, entry = records.values(("event_type", "topic", "ledger_id", "entry_id"))
    of_entry = np.isin(kind, OF_ENTRIES) & (entry != NULL)
    ledger, entry = (np.where(column == NULL, 0, column) for column in (ledger, entry))
    names = np.append(hash_strings(records.texts()), NULL_HASH)
    hashes = combine_hashes(names[topic], ledger, entry)
    share = hashes.view(np.uint64) / _SCALE
    return np.asarray(~of_entry | ((share >= start) & (share < start + rate)))
