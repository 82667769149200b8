"""Fields of a chunk's metadata, of a throttle command and of a chunk's id, decoded from their
bytes.
"""

from __future__ import annotations

import re
from typing import Any

from udfs.protobuf import fields
from udfs.wire import decode_command

PRODUCER_NAME, SEQUENCE_ID, UUID, NUM_CHUNKS, TOTAL_BYTES, CHUNK_ID = 1, 2, 26, 27, 28, 29
"""Numbers of the fields of Pulsar's MessageMetadata that a chunk has."""
_HALF, _WHOLE = 2**63, 2**64
_DIGITS = re.compile("[0-9]{1,19}")


def chunk_of(metadata: bytes) -> dict[str, Any] | None:
    """Uuid, number, count and total size (bytes) of the chunk that a MessageMetadata describes;
    None for other messages and for invalid bytes. A message is chunked only if its count is above 1
    (PIP-37).
    """
    try:
        found = dict(fields(metadata))
        uuid = found.get(UUID)
        count, chunk, total = (_int(found.get(n)) for n in (NUM_CHUNKS, CHUNK_ID, TOTAL_BYTES))
        if not isinstance(uuid, bytes) or count is None or count <= 1:
            return None
        text = uuid.decode()
    except ValueError:
        return None
    return {"uuid": text, "chunk_id": chunk, "num_chunks": count, "total_chunk_bytes": total}


def sender_of(uuid: str) -> dict[str, Any] | None:
    """Producer name and sequence id in the uuid of a chunk, `name-sequence`; None without a
    sequence id. A name may contain a minus.
    """
    name, separator, number = uuid.rpartition("-")
    if not separator or not _DIGITS.fullmatch(number) or int(number) >= _HALF:
        return None
    return {"producer_name": name, "sequence_id": int(number)}


def throttle_command_of(data: bytes) -> dict[str, Any] | None:
    """Request, producer, reason and announced pause (ms) of a CommandThrottleProducer with the
    field numbers of PIP-385; None for invalid bytes.
    """
    try:
        command = decode_command(data)
    except ValueError:
        return None
    return {
        "request_id": _signed(command.request_id),
        "producer_id": _signed(command.producer_id),
        "reason": command.reason,
        "pause_ms": _signed(command.pause_ms),
    }


def _int(value: int | bytes | None) -> int | None:
    """An int32 field, whose negative values fill the varint."""
    return _signed(value) if isinstance(value, int) else None


def _signed(value: int) -> int:
    """An unsigned number of 64 bits as Java and Spark show it."""
    return value - _WHOLE if value >= _HALF else value
