"""Reads the command of PIP-385 as a client would: protobuf without a schema.

Other fields of a message are skipped, as protobuf readers do; the last of repeated fields counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from udfs.wire import MOST, MOST_NUMBER, PROPOSED, REASONS, VARINT, Fields, ThrottleCommand

LONGEST_VARINT = 10
FIXED_64, BYTES, GROUP, END_GROUP, FIXED_32 = range(1, 6)


def message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of the fields that are a varint or bytes, in order; a ValueError for invalid
    bytes. Fields of other types and those in groups are skipped.
    """
    at, groups = 0, list[int]()
    while at < len(data):
        start = at
        tag, at = _read(data, at)
        number, kind = tag >> 3, tag & 7
        value: int | bytes | None = None
        if not 1 <= number <= MOST_NUMBER:
            raise ValueError(f"the field at {start} has the number {number}, which none can have")
        if kind == VARINT:
            value, at = _read(data, at)
        elif kind == BYTES:
            length, at = _read(data, at)
            value, at = data[at : at + length], at + length
        elif kind in (FIXED_64, FIXED_32):
            at += 8 if kind == FIXED_64 else 4
        elif kind == GROUP:
            groups.append(number)
        elif kind == END_GROUP and groups and groups[-1] == number:
            groups.pop()
        elif kind == END_GROUP:
            raise ValueError(f"the field at {start} ends a group {number} that is not open")
        else:
            raise ValueError(f"the field at {start} has the unknown wire type {kind}")
        if at > len(data):
            raise ValueError(f"truncated: the bytes end in the field at {start}")
        if value is not None and not groups:
            yield number, value
    if groups:
        raise ValueError(f"truncated: the bytes end in the group {groups[-1]}")


def _read(data: bytes, at: int) -> tuple[int, int]:
    """The varint at a place and the place after it."""
    value = 0
    for i in range(LONGEST_VARINT):
        if at + i >= len(data):
            raise ValueError(f"truncated: the bytes end in the number at {at}")
        value |= (data[at + i] & 0x7F) << 7 * i
        if data[at + i] < 0x80:
            if value > MOST:
                break
            return value, at + i + 1
    raise ValueError(f"the number at {at} is longer than 64 bits")


def decode_command(data: bytes, fields: Fields = PROPOSED) -> ThrottleCommand:
    """The command in the bytes; ValueError for other bytes."""
    what, found = (
        "CommandThrottleProducer",
        {n: v for n, v in message_fields(data) if isinstance(v, int)},
    )
    for name, number in vars(fields).items():
        if number not in found:
            raise ValueError(f"{what}: the required field {name} ({number}) is missing")
    reason = found[fields.throttling_reason]
    if reason >= len(REASONS):
        raise ValueError(f"{what}: unknown throttling_reason {reason}")
    return ThrottleCommand(
        found[fields.request_id],
        found[fields.producer_id],
        REASONS[reason],
        found[fields.pause_for_millis],
    )
