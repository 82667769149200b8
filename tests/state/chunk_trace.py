"""Small traces of chunked messages, shipped to the core as the router ships them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from state.chunks.operator import PARTS, RELEASES, Chunks
from state.chunks.shard import COLUMNS, NAME
from tests.state.shipping import Row, called, params_of, read_by, shipped

PARAMS = params_of("chunks")


def blob(records: Sequence[Row], payloads: bool = True) -> bytes:
    """Records as one blob of `chunks`."""
    made = {n: _about_payload(n, records) for n in COLUMNS if n.startswith("payload_")}
    markers = [None if (v := r.get("marker_ids")) is None else ",".join(v) for r in records]
    made["marker_ids"] = pa.array(markers, pa.string()).dictionary_encode()
    if payloads:
        made["payload"] = pa.array([r.get("payload") for r in records], pa.binary())
    return shipped(records, COLUMNS, made=made)


def _about_payload(name: str, records: Sequence[Row]) -> pa.Array:
    payloads = [r.get("payload") for r in records]
    if name == "payload_bytes":
        return pa.array([None if p is None else len(p) for p in payloads], pa.int64())
    if name == "payload_crc32":
        return pa.array([None if p is None else zlib.crc32(p) for p in payloads], pa.int64())
    if name == "payload_file":
        return pa.nulls(len(records), pa.string()).dictionary_encode()
    return pa.nulls(len(records), pa.int64())


def numbered(records: Iterable[Row]) -> list[Row]:
    """The records that the job reads, with an identity each."""
    return read_by(NAME, records)


def play(
    batches: Iterable[Sequence[Row]], params: dict[str, Any] | None = None,
    until_ms: int | None = None, states: list[bytes] | None = None, **more: Any,
) -> dict[str, list[Row]]:
    """Rows by table of the core; see `shipping.called`."""
    chosen = {**PARAMS, **(params or {})}
    return called(
        Chunks(chosen, **more), batches, blob, chosen["idle_advance_ms"], until_ms, states, plain
    )


def plain(table: pa.Table) -> list[Row]:
    """Rows of a table, with the payload of a message in one piece."""
    rows = table.to_pylist()
    for row in rows:
        parts = row.pop(PARTS[2], None)
        for name in PARTS[:2]:
            row.pop(name, None)
        if PARTS[2] in table.column_names:
            row["payload"] = None if parts is None else b"".join(parts)
    return rows


__all__ = ["PARAMS", "RELEASES", "blob", "numbered", "plain", "play"]
