"""A share of the entries of a trace, chosen by hash, with everything that happens to them (SHARDS).

An entry is in the sample by its topic and position alone, so it is there with all its reads, or
not at all; what is not about single entries (cursors, ledgers, policies, starts) is in every
sample. A cache of the sample has the same share of the size. A hash is read as its
64 bits as a number between 0 and 1: samples of rates that do not overlap have no entry in common,
and a smaller one is part of a larger that begins at the same place.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from state.events import KIND_INDEX
from udfs.hashing import combine_hashes, hash_strings

Array = np.ndarray
OF_ENTRIES = tuple(
    KIND_INDEX[kind] for kind in (
        "entry_added", "dispatch", "entry_read", "entry_released", "replay_queued",
        "entry_invalidated",
    )
)
_SCALE = 2.0**64


def sampled(blob: bytes, rate: float, start: float = 0.0) -> bytes:
    """The records of a packed blob that belong to entries with a hash from `start` to
    `start + rate`, and those that are about no single entry."""
    with pa.ipc.open_stream(blob) as reader:
        table = reader.read_all()
    kept = pa.array(_is_kept(table, rate, start))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.filter(kept).combine_chunks().to_batches():
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _is_kept(table: pa.Table, rate: float, start: float) -> Array:
    of_entry = np.isin(table.column("event_type").to_numpy(), OF_ENTRIES)
    of_entry &= table.column("entry_id").is_valid().to_numpy()
    position = [
        table.column(name).fill_null(0).to_numpy().astype(np.int64)
        for name in ("ledger_id", "entry_id")
    ]
    hashes = combine_hashes(hash_strings(table.column("topic")), *position)
    share = hashes.view(np.uint64) / _SCALE
    return np.asarray(~of_entry | ((share >= start) & (share < start + rate)))
