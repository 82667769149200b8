"""Small traces of chunked messages, shipped to the core as the router ships them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pyarrow as pa

from state.chunks.shard import COLUMNS
from state.engine.payloads import PARTS
from tests.unit.state.shipping import Row, Shipper, params_of

PARAMS = params_of("chunks")


def _payloads(records: Sequence[Row]) -> dict[str, pa.Array]:
    markers = [None if (v := r.get("marker_ids")) is None else ",".join(v) for r in records]
    return {
        **{n: _about_payload(n, records) for n in COLUMNS if n.startswith("payload_")},
        "marker_ids": pa.array(markers, pa.string()).dictionary_encode(),
        "payload": pa.array([r.get("payload") for r in records], pa.binary()),
    }


def _about_payload(name: str, records: Sequence[Row]) -> pa.Array:
    payloads = [r.get("payload") for r in records]
    if name == "payload_bytes":
        return pa.array([None if p is None else len(p) for p in payloads], pa.int64())
    if name == "payload_crc32":
        return pa.array([None if p is None else zlib.crc32(p) for p in payloads], pa.int64())
    if name == "payload_file":
        return pa.nulls(len(records), pa.string()).dictionary_encode()
    return pa.nulls(len(records), pa.int64())


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


_SHIPPER = Shipper("chunks", PARAMS, _payloads, plain)
blob, numbered, play = _SHIPPER.blob, _SHIPPER.numbered, _SHIPPER.play
