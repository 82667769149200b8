"""The declaration of the job `producer_ids`."""

from __future__ import annotations

from state.engine.declaration import Declaration
from state.events import WALL
from state.producer_ids.outputs import OUTPUTS

NAME = "producer_ids"
STATE_VERSION = 2
"""Of the bytes of a shard; one release reads one version."""
COLUMNS = (
    "event_type",
    "source_feed",
    "cluster",
    "broker",
    "seq",
    "ts_mono_ns",
    "ts_wall_ms",
    "principal",
    "client_id",
    "topic",
    "partition",
    "producer_id",
    "producer_name",
    "sequence_id",
    "ledger_id",
    "entry_id",
    "entry_bytes",
    "num_messages",
    "policy_json",
)
"""Contract columns that the job carries; `topic` and `partition` as in the record."""
USER = "user"
"""What follows the first colon of `principal`, all of it without one: records that spell one user
differently meet."""
DECLARATION = Declaration(
    name=NAME,
    state_version=STATE_VERSION,
    meaning="a quota on the rate of new producer ids (KIP-936)",
    key=("cluster", "broker", USER),
    clock=WALL,
    kinds=("broker_started", "produce_batch", "producer_id_assigned", "policy", "gap"),
    fed_by=("produce_batch",),
    columns=COLUMNS,
    outputs=OUTPUTS,
    core_class="state.producer_ids.operator:ProducerIds",
    parameters_class="state.producer_ids.parameters:ProducerIdsParameters",
    everywhere=("policy", "broker_started", "gap"),
)
