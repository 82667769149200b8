"""The order of records with a topic as key (event contract, section 2).

Where `seq` does not decide, all of their columns do: position, kind, then the rest as the contract
lists them.
"""

from __future__ import annotations

from state.engine.sequence import Sequence

SEQUENCE = Sequence(
    (
        "ledger_id",
        "entry_id",
        "event_type",
        "source_feed",
        "broker",
        "ts_mono_ns",
        "producer_name",
        "sequence_id",
        "entry_bytes",
        "uuid",
        "chunk_id",
        "num_chunks",
        "total_chunk_bytes",
        "marker_ids",
        "publish_time_ms",
        "subscription",
        "sub_type",
        "consumer",
        "ack_cumulative",
        "mark_delete",
        "source_partition",
        "source_offset",
    ),
)
