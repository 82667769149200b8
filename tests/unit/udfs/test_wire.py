"""The commands of PIP-385 as bytes: by hand, there and back, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.rate_limits import layout as L
from state.rate_limits import outputs
from tests.support.throttle_command import decode_command
from udfs import wire
from udfs.wire import (
    MOST,
    MOST_NUMBER,
    REASONS,
    RESERVED,
    Fields,
    ThrottleCommand,
    encode_command,
)

TOPIC, GROUP, _, _, BROKER = REASONS
UINT64 = st.integers(0, MOST)
COMMANDS = st.builds(ThrottleCommand, UINT64, UINT64, st.sampled_from(REASONS), UINT64)
NUMBERS = st.integers(1, MOST_NUMBER).filter(lambda n: n not in RESERVED)
FIELDS = st.lists(NUMBERS, min_size=4, max_size=4, unique=True).flatmap(
    lambda four: st.builds(Fields, *map(st.just, four))
)
BY_HAND = [
    # Tags 1, 2, 4, 5 of wire type 0: 08, 10, 20, 28.
    (ThrottleCommand(1, 2, TOPIC, 500), "08 01 10 02 20 00 28 f4 03"),
    (ThrottleCommand(0, 0, TOPIC, 0), "08 00 10 00 20 00 28 00"),
    (ThrottleCommand(127, 128, BROKER, 1000), "08 7f 10 80 01 20 04 28 e8 07"),
    (ThrottleCommand(300, 1, GROUP, 1), "08 ac 02 10 01 20 01 28 01"),
    (
        ThrottleCommand(2**64 - 1, 2**63, REASONS[3], 2**53 + 1),
        "08 ff ff ff ff ff ff ff ff ff 01 10 80 80 80 80 80 80 80 80 80 01 20 03"
        " 28 81 80 80 80 80 80 80 10",
    ),
]
UNKNOWN = {
    "varint": "18 96 01",
    "64 bits": "31 01 02 03 04 05 06 07 08",
    "bytes": "3a 03 08 09 0a",
    "no bytes": "3a 00",
    "32 bits": "45 01 02 03 04",
    # Group 9 with a field 1 of its own and a group 10 in it.
    "group": "4b 08 63 53 2a 01 ff 54 4c",
    "large number": "f8 ff ff ff 0f 01",
    "a known number as bytes": "0a 01 00",
}
PLAIN = bytes.fromhex("08 01 10 02 20 00 28 f4 03")


def number(value: int) -> bytes:
    """A number as protobuf has it: seven bits a byte, the last without the high bit."""
    rest = value >> 7
    return bytes([value & 0x7F | (0x80 if rest else 0)]) + (number(rest) if rest else b"")


@pytest.mark.parametrize(("command", "text"), BY_HAND)
def test_commands_by_hand(command: ThrottleCommand, text: str) -> None:
    assert encode_command(command) == bytes.fromhex(text)
    assert decode_command(bytes.fromhex(text)) == command


def test_reasons_have_the_numbers_of_the_broker_model() -> None:
    mapped = [(n, r) for n, r in zip(L.REASON_NUMBERS, outputs.REASONS, strict=True) if n >= 0]
    assert sorted(mapped) == list(enumerate(REASONS))
    assert [wire.reason_number(r) for r in REASONS] == [0, 1, 2, 3, 4]


def test_other_numbers_move_the_fields_and_their_order() -> None:
    fields = Fields(request_id=9, producer_id=1, throttling_reason=16, pause_for_millis=2)
    data = encode_command(ThrottleCommand(1, 2, BROKER, 3), fields)
    assert data == bytes.fromhex("08 02 10 03 48 01 80 01 04")
    assert decode_command(data, fields) == ThrottleCommand(1, 2, BROKER, 3)


@given(COMMANDS, FIELDS)
def test_commands_there_and_back(command: ThrottleCommand, fields: Fields) -> None:
    assert decode_command(encode_command(command, fields), fields) == command


@given(COMMANDS, st.randoms(use_true_random=False), st.lists(st.sampled_from(sorted(UNKNOWN))))
def test_order_and_unknown_fields_do_not_matter(
    command: ThrottleCommand, rng: random.Random, unknown: list[str]
) -> None:
    values = (
        (1, command.request_id),
        (2, command.producer_id),
        (4, REASONS.index(command.reason)),
        (5, command.pause_ms),
    )
    parts = [number(n << 3) + number(value) for n, value in values]
    parts += [bytes.fromhex(UNKNOWN[name]) for name in unknown]
    rng.shuffle(parts)
    assert decode_command(b"".join(parts)) == command


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_fields_are_skipped_before_and_after(name: str) -> None:
    more = bytes.fromhex(UNKNOWN[name])
    assert decode_command(more + PLAIN) == decode_command(PLAIN + more) == decode_command(PLAIN)


def test_the_last_of_repeated_fields_counts_and_padded_numbers_are_read() -> None:
    assert decode_command(PLAIN + bytes.fromhex("28 07")).pause_ms == 7
    assert decode_command(PLAIN + bytes.fromhex("28 87 80 00")).pause_ms == 7


@pytest.mark.parametrize("missing", [1, 2, 4, 5])
def test_a_missing_field_is_refused(missing: int) -> None:
    names = {1: "request_id", 2: "producer_id", 4: "throttling_reason", 5: "pause_for_millis"}
    parts = {1: "08 01", 2: "10 02", 4: "20 00", 5: "28 00"}
    data = bytes.fromhex("".join(text for number, text in parts.items() if number != missing))
    told = rf"CommandThrottleProducer: the required field {names[missing]} \({missing}\) is missing"
    with pytest.raises(ValueError, match=told):
        decode_command(data)


@given(COMMANDS, st.data())
def test_every_cut_is_refused(command: ThrottleCommand, data: st.DataObject) -> None:
    whole = encode_command(command) + bytes.fromhex("4b 08 63 4c")
    cut = data.draw(st.integers(0, len(whole) - 1))
    if cut != len(whole) - 4:  # there the command itself ends
        with pytest.raises(ValueError, match=r"truncated|missing"):
            decode_command(whole[:cut])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("08 01 10 02 20 05 28 00", "unknown throttling_reason 5"),
        ("08 01 10 02 20 ff ff ff ff ff ff ff ff ff 01 28 00", "unknown throttling_reason 1844"),
        ("08", "truncated: the bytes end in the number at 1"),
        ("08 80", "truncated: the bytes end in the number at 1"),
        ("3a 05 01", "truncated: the bytes end in the field at 0"),
        ("3a ff ff ff ff ff ff ff ff ff 01", "truncated: the bytes end in the field at 0"),
        ("31 01 02 03", "truncated: the bytes end in the field at 0"),
        ("45 01", "truncated: the bytes end in the field at 0"),
        ("4b 08 01", "truncated: the bytes end in the group 9"),
        ("08 ff ff ff ff ff ff ff ff ff 02", "the number at 1 is longer than 64 bits"),
        ("08 80 80 80 80 80 80 80 80 80 80 01", "the number at 1 is longer than 64 bits"),
        ("4c", "ends a group 9 that is not open"),
        ("4b 54", "ends a group 10 that is not open"),
        ("0e", "unknown wire type 6"),
        ("0f", "unknown wire type 7"),
        ("00 01", "has the number 0"),
        ("80 80 80 80 10 01", "has the number 536870912"),
    ],
)
def test_what_is_no_message_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        decode_command(bytes.fromhex(text))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_or_a_value_error(data: bytes) -> None:
    try:
        decode_command(data)
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_what_is_no_uint64_is_not_written(value: int) -> None:
    with pytest.raises(ValueError, match="is not an unsigned number of 64 bits"):
        encode_command(ThrottleCommand(1, 1, TOPIC, value))


def test_a_reason_without_a_number_is_not_written() -> None:
    with pytest.raises(ValueError, match="unknown throttling reason 'UNMAPPED'"):
        encode_command(ThrottleCommand(1, 1, "UNMAPPED", 0))


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ({"request_id": 0}, "request_id: 0 cannot be the number of a field"),
        ({"producer_id": 2**29}, "producer_id: 536870912 cannot be"),
        ({"pause_for_millis": 19_000}, "pause_for_millis: 19000 cannot be"),
        ({"producer_id": 1}, "producer_id: number 1 is taken by request_id"),
    ],
)
def test_numbers_that_no_message_can_have_are_refused(numbers: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Fields(**numbers)
