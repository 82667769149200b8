"""The order of records with a user as key (event contract, section 2).

Where `seq` does not decide, all of their columns do: topic and partition as in the record,
position, kind, then the rest as the contract lists them.
"""

from __future__ import annotations

from state.engine.sequence import Sequence

SEQUENCE = Sequence(
    (
        "topic",
        "partition",
        "ledger_id",
        "entry_id",
        "event_type",
        "source_feed",
        "cluster",
        "broker",
        "ts_mono_ns",
        "principal",
        "client_id",
        "producer_id",
        "producer_name",
        "sequence_id",
        "entry_bytes",
        "num_messages",
        "policy_json",
        "source_partition",
        "source_offset",
    ),
)
