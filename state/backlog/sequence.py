"""The order of records with a topic as key (event contract, section 2).

The records of a poll have one time and differ by `seq` as a rule. Only those that do not are
compared by all of their columns, as far as these matter to this job: topic, position, kind, then
the rest as the contract lists them.
"""

from __future__ import annotations

from state.backlog.declaration import COLUMNS
from state.engine.sequence import Sequence

_FIRST = ("topic", "ledger_id", "entry_id", "event_type", "source_feed", "cluster", "broker")
SEQUENCE = Sequence(
    (
        *_FIRST,
        *[c for c in COLUMNS if c not in {*_FIRST, "seq", "ts_wall_ms"}],
        "source_partition",
        "source_offset",
    ),
)
