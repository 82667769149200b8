"""The command of PIP-385 as protobuf bytes.

    CommandThrottleProducer  request_id 1, producer_id 2, throttling_reason 4, pause_for_millis 5,
                             all required (3 is unused)

No release has these numbers yet, so they are configurable (`Fields`).
"""

from __future__ import annotations

from dataclasses import dataclass

MOST = 2**64 - 1
"""The largest uint64."""
MOST_NUMBER = 2**29 - 1
"""The largest number that a field can have."""
VARINT = 0
"""The type of such a field on the wire."""
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
    """Field numbers of the command."""

    request_id: int = 1
    producer_id: int = 2
    throttling_reason: int = 4
    pause_for_millis: int = 5

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


def reason_number(reason: str) -> int:
    """The number of a reason on the wire; ValueError for a name that the proposal does not have."""
    if reason not in REASONS:
        raise ValueError(f"unknown throttling reason {reason!r}")
    return REASONS.index(reason)


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
