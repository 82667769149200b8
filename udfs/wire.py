"""The two commands of PIP-385 and their feature flag as protobuf bytes.

    CommandThrottleProducer         request_id 1, producer_id 2, throttling_reason 4,
                                    pause_for_millis 5, all required (3 is unused)
    CommandThrottleProducerReceipt  request_id 1, required
    FeatureFlags                    supports_throttle_producer_commands 6 (proposed), optional

No release has these numbers yet, and Pulsar 4.2.4 uses flag 6 for another feature, so they are
configurable (`Fields`). Other fields of a message are skipped, as protobuf readers do; the last of
repeated fields counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from udfs.protobuf import MOST, MOST_NUMBER, VARINT, fields

REASONS = (
    "TopicProduceQuotaExceeded",
    "ResourceGroupProduceQuotaExceeded",
    "ConnectionPendingMessagesBreach",
    "MessageBufferSizeBreach",
    "BrokerProduceQuotaExceeded",
)
"""Names of the reasons; the place is the number on the wire."""

RESERVED = range(19_000, 20_000)
"""Numbers that protobuf keeps for itself."""


@dataclass(frozen=True)
class Fields:
    """Field numbers: four of the command, one of the receipt and the feature flag's."""

    request_id: int = 1
    producer_id: int = 2
    throttling_reason: int = 4
    pause_for_millis: int = 5
    receipt_request_id: int = 1
    supports_throttle_producer_commands: int = 6

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            if not 1 <= number <= MOST_NUMBER or number in RESERVED:
                raise ValueError(f"{name}: {number} cannot be the number of a field")
        seen: dict[int, str] = {}
        for name in ("request_id", "producer_id", "throttling_reason", "pause_for_millis"):
            number = getattr(self, name)
            if number in seen:
                raise ValueError(f"{name}: number {number} is taken by {seen[number]}")
            seen[number] = name


PROPOSED = Fields()
"""The numbers of the proposal."""


@dataclass(frozen=True)
class ThrottleCommand:
    """CommandThrottleProducer: a broker informs a client that a producer is throttled."""

    request_id: int
    """Unique on the connection while it is open."""
    producer_id: int
    reason: str
    """One of REASONS."""
    pause_ms: int
    """Announced pause (ms); 0 = unknown."""


def encode_command(command: ThrottleCommand, fields: Fields = PROPOSED) -> bytes:
    """The bytes of a command with the given field numbers; ValueError if it cannot be encoded."""
    values = (
        (fields.request_id, command.request_id),
        (fields.producer_id, command.producer_id),
        (fields.throttling_reason, reason_number(command.reason)),
        (fields.pause_for_millis, command.pause_ms),
    )
    return b"".join(_field(number, value) for number, value in sorted(values))


def decode_command(data: bytes, fields: Fields = PROPOSED) -> ThrottleCommand:
    """The command in the bytes; ValueError for other bytes."""
    found = _varints(data)
    what = "CommandThrottleProducer"
    number = _required(found, fields.throttling_reason, what, "throttling_reason")
    if number >= len(REASONS):
        raise ValueError(f"{what}: unknown throttling_reason {number}")
    return ThrottleCommand(
        _required(found, fields.request_id, what, "request_id"),
        _required(found, fields.producer_id, what, "producer_id"),
        REASONS[number],
        _required(found, fields.pause_for_millis, what, "pause_for_millis"),
    )


def encode_receipt(request_id: int, fields: Fields = PROPOSED) -> bytes:
    """The bytes of the receipt for the command `request_id`."""
    return _field(fields.receipt_request_id, request_id)


def decode_receipt(data: bytes, fields: Fields = PROPOSED) -> int:
    """The request id of the receipt in the bytes; ValueError for other bytes."""
    what = "CommandThrottleProducerReceipt"
    return _required(_varints(data), fields.receipt_request_id, what, "request_id")


def encode_flag(supported: bool, fields: Fields = PROPOSED, others: bytes = b"") -> bytes:
    """FeatureFlags with the flag, appended to `others`, the bytes of other flags."""
    _varints(others)
    return others + _field(fields.supports_throttle_producer_commands, int(supported))


def decode_flag(data: bytes, fields: Fields = PROPOSED) -> bool:
    """Whether FeatureFlags hold the flag; without it, its default is false."""
    return _varints(data).get(fields.supports_throttle_producer_commands, 0) != 0


def reason_number(reason: str) -> int:
    """The number of a reason on the wire; ValueError for a name that the proposal does not have."""
    if reason not in REASONS:
        raise ValueError(f"unknown throttling reason {reason!r}")
    return REASONS.index(reason)


def _required(found: dict[int, int], number: int, what: str, name: str) -> int:
    if number not in found:
        raise ValueError(f"{what}: the required field {name} ({number}) is missing")
    return found[number]


def _varint(value: int) -> bytes:
    if not 0 <= value <= MOST:
        raise ValueError(f"{value} is not an unsigned number of 64 bits")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: int) -> bytes:
    return _varint(number << 3 | VARINT) + _varint(value)


def _varints(data: bytes) -> dict[int, int]:
    """The last value of every varint field of a message, by number."""
    return {number: value for number, value in fields(data) if isinstance(value, int)}
