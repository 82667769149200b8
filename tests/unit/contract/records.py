"""Records of every kind that no rule refuses, and ways to damage their text."""

from __future__ import annotations

import json
import random
from typing import Any

from state.events import COLUMNS, KINDS

T0 = 1_700_000_000_000

_VALUES: dict[str, Any] = {
    "source_feed": "pulsar_interceptor",
    "cluster": "use1",
    "broker": "broker-1.example.com:6650",
    "seq": 7,
    "ts_mono_ns": 9_007_199_254_740_993,
    "ts_wall_ms": T0,
    "cnx_id": "10.0.0.1:4512",
    "supports_throttle": True,
    "io_thread": 3,
    "principal": "User:alice",
    "client_id": "client-1",
    "topic": "persistent://acme/orders/created",
    "partition": 2,
    "producer_id": 4,
    "producer_name": "p-4",
    "sequence_id": 0,
    "ledger_id": 55,
    "entry_id": 9,
    "entry_bytes": 1024,
    "num_messages": 1,
    "uuid": "p-4-0",
    "chunk_id": 0,
    "num_chunks": 2,
    "total_chunk_bytes": 2000,
    "payload": "aGVsbG8=",
    "marker_ids": ["1:2", "1:3"],
    "publish_time_ms": T0 - 3,
    "broker_time_ms": T0 - 1,
    "subscription": "s1",
    "sub_type": "shared",
    "consumer": "c1",
    "ack_cumulative": False,
    "durable": True,
    "mark_delete": "55:-1",
    "read_pos": "55:0",
    "active": True,
    "ledger_entries": 10,
    "ledger_bytes": 10_240,
    "ledger_close_ms": T0 - 60_000,
    "request_id": 12,
    "policy_json": '{"scope":"topic","name":"persistent://acme/orders/created",'
    '"limits":{"publishRateInMsgs":100}}',
    "acked_ranges": "55:1..3,56:0..0",
    "expired_messages": 3,
    "problem": "internal.ledgers: is missing",
    "log_start": 3,
    "unread": 5,
    "group_state": "no_offset",
    "publishes": 7,
    "digest_from_mono_ns": 9_007_199_254_000_000,
    "digest_from_wall_ms": T0 - 900,
    "api": "PRODUCE",
    "charged_bytes": 1100,
    "handler_time_ns": 250_000,
    "mutations": 3,
    "throttle_ms": 12,
    "exempt": False,
    "quota_type": "produce",
    "value_milli": 1_048_576_000,
    "topic_bytes": '{"orders": 1024}',
    "bound_milli": 2_097_152_000,
    "throttle_avg_milli": 12_500,
    "api_version": 7,
    "remarks": "1 transaction is open on the topic",
}
BASE = ("source_feed", "cluster", "broker", "seq", "ts_mono_ns", "ts_wall_ms")


def record(kind: str, **changes: Any) -> dict[str, Any]:
    """The smallest record of a kind that no rule refuses, with changes; `...` drops a column."""
    required = next(k.required for k in KINDS if k.name == kind)
    made = {"event_type": kind, **{name: _VALUES[name] for name in (*BASE, *required)}}
    if kind == "cursor_state":
        made["mark_delete"] = _VALUES["mark_delete"]
    if kind in ("produce_batch", "producer_id_assigned", "client_request", "client_rate"):
        made |= {"source_feed": "kafka_request_log"}
    if kind == "produce_batch":
        made |= {"topic": "orders"}
    return {name: v for name, v in {**made, **changes}.items() if v is not ...}


def wide_record(random_: random.Random) -> dict[str, Any]:
    """A record of any kind with a random choice of further columns."""
    kind = random_.choice(KINDS).name
    extra = random_.sample([c.name for c in COLUMNS[1:]], random_.randrange(12))
    made = record(kind, **{name: _VALUES[name] for name in extra if name in _VALUES})
    made |= random_.choice(({}, {"note": 0.25}, {"rate": 1200.5}, {"note": "x", "flag": True}))
    keys = list(made)
    random_.shuffle(keys)
    return {key: made[key] for key in keys}


def line(made: dict[str, Any], **options: Any) -> bytes:
    """A record as compact JSON."""
    return json.dumps(made, separators=options.pop("separators", (",", ":")), **options).encode()


FRAGMENTS = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"\n",
    b"\r",
    b"\t",
    b"\x00",
    b"\x0b",
    b"\x1f",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
    b"\\u0041",
    b"\\ud800",
    b"\\n",
    b"0",
    b"-",
    b"-0",
    b"00",
    b"9",
    b".5",
    b"1.0",
    b"e3",
    b"E+9",
    b"null",
    b"true",
    b"false",
    b"nul",
    b"NaN",
    b"2147483647",
    b"2147483648",
    b"-2147483648",
    b"-2147483649",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"99999999999999999999",
    b'"seq":1,',
    b',"seq":2',
    b'"topic":null,',
    b'"partition":7,',
    b'"extra":1,',
    b'"extra":1.5,',
    b'"extra":"x",',
    b'"extra":{"a":[1]},',
    b'"payload":"YQ==",',
    b'"payload":"YQ",',
    b"\xef\xbb\xbf",
    b"/*x*/",
)


def damaged(text: bytes, random_: random.Random) -> bytes:
    """A text with one to three random changes: bytes replaced, cut, doubled or put in."""
    for _ in range(random_.randint(1, 3)):
        at = random_.randrange(len(text) + 1)
        to = min(len(text), at + random_.choice((0, 0, 1, 1, 2, 5, 20)))
        piece = random_.choice(
            (b"", random_.choice(FRAGMENTS), bytes([random_.randrange(256)]), text[at:to] * 2)
        )
        text = text[:at] + piece + text[to:]
    return text
