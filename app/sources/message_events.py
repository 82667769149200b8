"""Ordinary messages as records of the event contract: what the sources of messages share."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

NS_PER_MS = 1_000_000
PRODUCER = 0
"""The producer of all records, which have none of their own."""
Columns = dict[str, pa.Array]


@dataclass(frozen=True)
class FeedValues:
    """Values that all records of a feed have in common."""

    name: str
    connection: str
    """Connection of all records, which have none of their own."""
    cluster: str
    broker: str
    subscription: str | None
    """Without one there are no deliveries."""

    def common(self, topic: pa.Array, ms: pa.Array) -> Columns:
        """The columns of every kind of record, of messages of a topic at times (ms)."""
        n = len(ms)
        return {
            "source_feed": pa.repeat(pa.scalar(self.name), n),
            "cluster": pa.repeat(pa.scalar(self.cluster), n),
            "broker": pa.repeat(pa.scalar(self.broker), n),
            "ts_wall_ms": ms,
            "ts_mono_ns": pc.multiply(ms, NS_PER_MS),
            "publish_time_ms": ms,
            "topic": topic,
        }

    def events(self, common: Columns, ledgers: pa.Array, payload: pa.Array) -> list[Columns]:
        """A publish and an entry of each message, and its delivery if there is a subscription."""
        kinds = ["publish", "entry_added"] + (["dispatch"] if self.subscription else [])
        return [self.of_kind(kind, common, ledgers, payload) for kind in kinds]

    def of_kind(self, kind: str, common: Columns, ledgers: pa.Array, payload: pa.Array) -> Columns:
        """The columns of one kind of record; those that it lacks are null."""
        text, published, n = pa.string(), kind == "publish", len(payload)
        delivered, produced = kind == "dispatch", kind == "produce_batch"

        def only(there: bool, value: object, type_: pa.DataType) -> pa.Array:
            return pa.repeat(pa.scalar(value, type_), n) if there else pa.nulls(n, type_)

        return {
            **common,
            "event_type": pa.repeat(pa.scalar(kind), n),
            "ledger_id": pa.nulls(n, pa.int64()) if published or produced else ledgers,
            "cnx_id": only(published, self.connection, text),
            "producer_id": only(published, str(PRODUCER), text),
            "subscription": only(delivered, self.subscription, text),
            "consumer": (
                pc.binary_join_element_wise(
                    self.subscription or "", pc.fill_null(common["partition"].cast(text), "0"), "-"
                )
                if delivered
                else pa.nulls(n, text)
            ),
            "sub_type": only(delivered, "exclusive", text),
            "payload": payload if delivered else pa.nulls(n, pa.binary()),
        }


def together(parts: list[Columns]) -> pa.RecordBatch:
    """Records of several kinds as one batch."""
    return (
        pa.table({name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]})
        .combine_chunks()
        .to_batches()[0]
    )
