"""Every rule of the contract's section 6, one record at a time."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from app.contract.event_contract import Parsed, from_table, parse
from app.contract.parsing.block import MOST_TEXT_BYTES
from state.events import COMMON, KIND_INDEX, KINDS, SCHEMA
from state.jobs import DECLARED, JOBS, readers
from tests.unit.contract.records import line, record

Reason = tuple[str, str, str | None]


def validated(*records: dict[str, Any] | bytes, jobs: tuple[str, ...] = JOBS) -> Parsed:
    lines = [one if isinstance(one, bytes) else line(one) for one in records]
    return parse(pa.array(lines, pa.binary()), jobs)


def reasons(*records: dict[str, Any] | bytes, jobs: tuple[str, ...] = JOBS) -> list[list[Reason]]:
    """Code, detail and job of every failed rule, by record; the same for typed records."""
    parsed = validated(*records, jobs=jobs)
    told: list[list[Reason]] = [[] for _ in records]
    for bad in parsed.bad.to_pylist():
        told[bad["row"]].append((bad["reason_code"], bad["detail"], bad["job"]))
    return told


def test_every_kind_has_a_record_that_breaks_no_rule() -> None:
    kinds = [kind.name for kind in KINDS if kind.name != "bad_document"]
    parsed = validated(*(record(kind) for kind in kinds))
    assert parsed.bad.to_pylist() == []
    assert parsed.valid.all() and parsed.archivable.all()
    assert parsed.kind.tolist() == [KIND_INDEX[kind] for kind in kinds]
    for job in JOBS:
        assert parsed.job_ok[job].tolist() == [kind in DECLARED[job].kinds for kind in kinds]


def test_a_bad_document_is_refused_with_its_problem() -> None:
    told = record("bad_document", problem="internal.ledgers: is missing", ts_wall_ms=None)
    assert reasons(told) == [[("BAD_DOCUMENT", "internal.ledgers: is missing", None)]]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("3:0..4", True),
        ("3:0..4,5:2..2", True),
        ("3:4", False),
        ("3:0..4,", False),
        ("3:-1..4", False),
        ("3:0..4 5:1..1", False),
        ("3:0..12345678901234567890", False),
    ],
)
def test_ranges_of_entries_are_positions(text: str, holds: bool) -> None:
    found = reasons(record("cursor_state", acked_ranges=text))
    assert found == [[] if holds else [("BAD_POSITION", "acked_ranges", None)]]


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k.name != "bad_document"], ids=lambda kind: kind.name
)
def test_what_a_kind_requires_must_be_there_and_not_empty(kind: Any) -> None:
    for column in ("source_feed", "cluster", "broker", *kind.required):
        expected = [[("MISSING_REQUIRED", column, None)]]
        assert reasons(record(kind.name, **{column: ...})) == expected
        assert reasons(record(kind.name, **{column: None})) == expected
        if SCHEMA.field(column).type == pa.string():
            assert reasons(record(kind.name, **{column: ""}))[0][0] == expected[0][0]
    everything = [c.name for c in SCHEMA if c.name in COMMON[1:] or c.name in kind.required]
    dropped = record(kind.name, **dict.fromkeys(everything, ...))
    assert reasons(dropped)[0][0] == ("MISSING_REQUIRED", ",".join(everything), None)


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("odd", ["", "\u00e9"])  # the second is left to the decoder
def test_a_text_of_more_than_eight_mebibytes_does_not_fit(typed: bool, odd: str) -> None:
    longest = odd.ljust(MOST_TEXT_BYTES - len(odd), "x")
    records = [
        record("publish", producer_name=name)
        for name in ("short", longest, longest + "x", "short", None)
    ]
    if typed:
        columns = pa.Table.from_pylist(records, schema=SCHEMA)
        parsed = from_table(columns, JOBS)
    else:
        parsed = validated(*records)
    assert parsed.bad.to_pylist() == [
        {"row": 2, "reason_code": "BAD_TYPE", "detail": "producer_name", "job": None}
    ]
    assert parsed.table.column("producer_name").to_pylist() == [
        "short",
        longest,
        None,
        "short",
        None,
    ]
    assert parsed.table.nbytes < 2 * MOST_TEXT_BYTES


A_PUBLISH = record("publish")
CHUNK = {"uuid": "u", "chunk_id": 0, "num_chunks": 3, "total_chunk_bytes": 9}
POLICY = {"scope": "topic", "name": "a/b/c", "limits": {"publishRateInMsgs": 5}}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        # UNPARSEABLE
        (b"", [("UNPARSEABLE", "blank", None)]),
        (b"null", [("UNPARSEABLE", "not an object", None)]),
        (b"[]", [("UNPARSEABLE", "not an object", None)]),
        (b'{"seq":1', [("UNPARSEABLE", "Input data was truncated", None)]),
        (b'{"topic":"\xff"}', [("UNPARSEABLE", "not UTF-8", None)]),
        # BAD_TYPE: joined in the contract's order, and not tested again
        (record("publish", seq="7"), [("BAD_TYPE", "seq", None)]),
        (record("publish", seq=1.0), [("BAD_TYPE", "seq", None)]),
        (record("publish", seq=True), [("BAD_TYPE", "seq", None)]),
        (record("publish", seq=2**63), [("BAD_TYPE", "seq", None)]),
        (record("publish", partition=2**31), [("BAD_TYPE", "partition", None)]),
        (record("publish", payload="no base64"), [("BAD_TYPE", "payload", None)]),
        (record("publish", payload="YQ"), [("BAD_TYPE", "payload", None)]),
        (record("publish", marker_ids="1:2"), [("BAD_TYPE", "marker_ids", None)]),
        (record("publish", marker_ids=[1]), [("BAD_TYPE", "marker_ids", None)]),
        (record("publish", durable=1), [("BAD_TYPE", "durable", None)]),
        (record("publish", topic=3, entry_bytes="x"), [("BAD_TYPE", "topic,entry_bytes", None)]),
        (record("publish", ts_mono_ns="x"), [("BAD_TYPE", "ts_mono_ns", None)]),
        (record("publish", event_type=3), [("BAD_TYPE", "event_type", None)]),
        (record("cursor_state", mark_delete=1), [("BAD_TYPE", "mark_delete", None)]),
        (record("dispatch", num_chunks="3"), [("BAD_TYPE", "num_chunks", None)]),
        (record("dispatch", **{**CHUNK, "uuid": 4}), [("BAD_TYPE", "uuid", None)]),
        # UNKNOWN_EVENT_TYPE: nothing that kinds require is tested
        (
            {**A_PUBLISH, "event_type": "produce", "topic": None},
            [("UNKNOWN_EVENT_TYPE", "event_type", None)],
        ),
        (
            record("publish", event_type=None),
            [("UNKNOWN_EVENT_TYPE", "event_type", None), ("MISSING_REQUIRED", "event_type", None)],
        ),
        (
            {},
            [
                ("UNKNOWN_EVENT_TYPE", "event_type", None),
                ("MISSING_REQUIRED", "event_type,source_feed,cluster,broker", None),
            ],
        ),
        (
            {**A_PUBLISH, "event_type": "x", "producer_id": -1},
            [("UNKNOWN_EVENT_TYPE", "event_type", None)],
        ),
        # MISSING_REQUIRED of cursor_state: one of the two
        (
            record("cursor_state", mark_delete=...),
            [("MISSING_REQUIRED", "mark_delete,read_pos", None)],
        ),
        (record("cursor_state", mark_delete=..., read_pos="1:2"), []),
        # MISSING_CLOCK: a row per job
        (record("publish", ts_mono_ns=...), [("MISSING_CLOCK", "ts_mono_ns", "rate_limits")]),
        (record("publish", ts_wall_ms=...), []),
        (
            record("entry_added", ts_wall_ms=...),
            [("MISSING_CLOCK", "ts_wall_ms", "chunks"), ("MISSING_CLOCK", "ts_wall_ms", "backlog")],
        ),
        (
            record("entry_added", ts_wall_ms=..., ts_mono_ns=...),
            [
                ("MISSING_CLOCK", "ts_mono_ns", "rate_limits"),
                ("MISSING_CLOCK", "ts_wall_ms", "chunks"),
                ("MISSING_CLOCK", "ts_wall_ms", "backlog"),
                ("MISSING_CLOCK", "ts_mono_ns", "entry_cache"),
            ],
        ),
        (record("policy", ts_mono_ns=...), []),
        (
            record("policy", ts_wall_ms=...),
            [
                ("MISSING_CLOCK", "ts_wall_ms", "rate_limits"),
                ("MISSING_CLOCK", "ts_wall_ms", "producer_ids"),
                ("MISSING_CLOCK", "ts_wall_ms", "backlog"),
                ("MISSING_CLOCK", "ts_wall_ms", "entry_cache"),
                ("MISSING_CLOCK", "ts_wall_ms", "client_quotas"),
            ],
        ),
        (record("cursor_state", source_feed="pulsar_admin", ts_mono_ns=...), []),
        (record("publish", source_feed="pulsar_admin", ts_mono_ns=..., ts_wall_ms=...), []),
        # CLOCK_OUT_OF_RANGE
        (record("publish", ts_wall_ms=-1), [("CLOCK_OUT_OF_RANGE", "ts_wall_ms", None)]),
        (record("publish", ts_mono_ns=-1), []),
        (
            record("publish", publish_time_ms=-1, broker_time_ms=-2, ledger_close_ms=-3),
            [("CLOCK_OUT_OF_RANGE", "publish_time_ms,broker_time_ms,ledger_close_ms", None)],
        ),
        (record("publish", ts_wall_ms=2**62), []),
        # NEGATIVE_AMOUNT
        (record("publish", entry_bytes=0, num_messages=0), []),
        (
            record("publish", entry_bytes=-1, num_messages=-1, total_chunk_bytes=-1),
            [("NEGATIVE_AMOUNT", "entry_bytes,num_messages,total_chunk_bytes", None)],
        ),
        (
            record("ledger_state", ledger_entries=-1, ledger_bytes=-5),
            [("NEGATIVE_AMOUNT", "ledger_entries,ledger_bytes", None)],
        ),
        # BAD_POSITION
        (record("ack", ledger_id=-1, entry_id=-1), [("BAD_POSITION", "ledger_id,entry_id", None)]),
        (record("cursor_state", mark_delete="5:-1", read_pos="0:0"), []),
        (record("cursor_state", mark_delete="5:-2"), [("BAD_POSITION", "mark_delete", None)]),
        (
            record("cursor_state", mark_delete="-5:2", read_pos="x"),
            [("BAD_POSITION", "mark_delete,read_pos", None)],
        ),
        (record("dispatch", marker_ids=["1:2", "3:0"]), []),
        (record("dispatch", marker_ids=[]), []),
        (record("dispatch", marker_ids=["1:2", "3:-1"]), [("BAD_POSITION", "marker_ids", None)]),
        # BAD_PRODUCER_ID
        (record("publish", producer_id=-1), [("BAD_PRODUCER_ID", "producer_id", None)]),
        (record("produce_batch", producer_id=-1), []),
        (record("produce_batch", producer_id=-2), [("BAD_PRODUCER_ID", "producer_id", None)]),
        # BAD_TOPIC
        (record("publish", topic="acme/orders"), [("BAD_TOPIC", "topic", None)]),
        (record("publish", topic="http://a/b/c"), [("BAD_TOPIC", "topic", None)]),
        (record("publish", topic="a/b/c"), []),
        (record("publish", topic="orders", source_feed="kafka_messages"), []),
        (record("produce_batch", topic="orders", source_feed="contract"), []),
        # BAD_SUB_TYPE
        (record("dispatch", sub_type="Shared"), [("BAD_SUB_TYPE", "sub_type", None)]),
        (record("dispatch", sub_type="key_shared"), []),
        # chunks
        (record("dispatch", **CHUNK), []),
        (
            record("dispatch", **{**CHUNK, "uuid": None, "total_chunk_bytes": None}),
            [("CHUNK_FIELDS_INCOMPLETE", "uuid,total_chunk_bytes", None)],
        ),
        (record("dispatch", num_chunks=1, chunk_id=7), []),
        (record("dispatch", chunk_id=-7), []),
        (
            record("dispatch", **{**CHUNK, "chunk_id": 3}),
            [("CHUNK_ID_OUT_OF_RANGE", "chunk_id", None)],
        ),
        (
            record("dispatch", **{**CHUNK, "chunk_id": -1}),
            [("CHUNK_ID_OUT_OF_RANGE", "chunk_id", None)],
        ),
        (record("dispatch", **CHUNK, num_messages=2), [("CHUNK_IN_BATCH", "num_messages", None)]),
        (
            record("dispatch", **CHUNK, topic="non-persistent://a/b/c"),
            [("CHUNK_NON_PERSISTENT", "topic", None)],
        ),
        # BAD_POLICY
        (record("policy", policy_json=json.dumps(POLICY)), []),
        (record("policy", policy_json="[]"), [("BAD_POLICY", "not an object", None)]),
        (record("policy", policy_json="{"), [("BAD_POLICY", "not JSON", None)]),
        (
            record("policy", policy_json=json.dumps({**POLICY, "limits": {"rate": 1}})),
            [("BAD_POLICY", "unknown limit 'rate' in scope topic", None)],
        ),
        (
            record("policy", policy_json=json.dumps({**POLICY, "name": "a/b"})),
            [("BAD_POLICY", "name 'a/b' is not a topic ([scheme://]tenant/namespace/name)", None)],
        ),
        # several rules, in order
        (
            record("publish", topic="x", entry_bytes=-1, producer_id=-1, ts_mono_ns=..., seq="1"),
            [
                ("BAD_TYPE", "seq", None),
                ("MISSING_CLOCK", "ts_mono_ns", "rate_limits"),
                ("NEGATIVE_AMOUNT", "entry_bytes", None),
                ("BAD_PRODUCER_ID", "producer_id", None),
                ("BAD_TOPIC", "topic", None),
            ],
        ),
    ],
)
def test_a_record_is_refused_with_every_reason(made: Any, expected: list[Reason]) -> None:
    good = record("publish")
    # whatever stands beside it: the good record is not affected
    assert reasons(good, made, good) == [[], expected, []]
    slow = line(good, ensure_ascii=True).replace(b"publish", b"publi\\u0073h", 1)
    assert reasons(slow, made) == [[], expected]


def test_only_enabled_jobs_miss_their_clock() -> None:
    bare = record("entry_added", ts_mono_ns=...)
    parsed = validated(bare, jobs=("backlog",))
    assert parsed.bad.num_rows == 0
    assert parsed.job_ok["backlog"].tolist() == [True]
    parsed = validated(
        bare, record("dispatch", ts_mono_ns=..., ts_wall_ms=...), jobs=("rate_limits",)
    )
    assert [row["job"] for row in parsed.bad.to_pylist()] == ["rate_limits"]
    assert parsed.valid.tolist() == [True, True]
    assert parsed.job_ok["rate_limits"].tolist() == [False, False]
    # backlog could apply the first; no rule refuses the second
    assert parsed.archivable.tolist() == [True, True]


def test_a_policy_with_an_unknown_limit_holds_without_it() -> None:
    made = json.dumps(
        {
            "scope": "broker",
            "name": "*",
            "limits": {"newInTheNextRelease": 1, "alsoNew": "x", "managedLedgerCacheSizeMB": 8},
        }
    )
    bad_too = {"entry_bytes": -1}
    parsed = validated(
        record("policy", policy_json=made),
        record("policy", policy_json=made, **bad_too),
        record("policy", policy_json="{}"),
    )
    assert parsed.valid.tolist() == [True, False, False]
    assert parsed.archivable.tolist() == [True, False, False]
    for job in JOBS:
        assert parsed.job_ok[job].tolist() == [job != "chunks", False, False]
    told = "unknown limits 'newInTheNextRelease','alsoNew' in scope broker"
    assert [(row["row"], row["reason_code"], row["detail"]) for row in parsed.bad.to_pylist()] == [
        (0, "BAD_POLICY", told),
        (1, "NEGATIVE_AMOUNT", "entry_bytes"),
        (1, "BAD_POLICY", told),
        (2, "BAD_POLICY", "unknown scope None"),
    ]


def test_a_record_that_no_job_can_apply_is_in_quarantine_alone() -> None:
    parsed = validated(record("publish", ts_mono_ns=...), record("publish", topic="x"))
    assert parsed.archivable.tolist() == [False, False]
    assert parsed.valid.tolist() == [True, False]
    assert sorted(set(parsed.bad["row"].to_pylist())) == [0, 1]


def test_polled_feeds_drive_jobs_that_are_polled() -> None:
    kinds = [kind.name for kind in KINDS if kind.name != "bad_document"]
    polled = [record(kind, source_feed="kafka_groups", ts_mono_ns=...) for kind in kinds]
    parsed = validated(*polled)
    assert parsed.bad.num_rows == 0
    for job in JOBS:
        read = [kind for kind in kinds if job in readers(kind)]
        expected = [k in read and (DECLARED[job].polled or k == "policy") for k in kinds]
        assert parsed.job_ok[job].tolist() == expected


def test_no_verdict_depends_on_the_time_of_reading() -> None:
    far = pa.array([line(record("publish", ts_wall_ms=2**62))], pa.binary())
    assert parse(far, JOBS).valid.tolist() == [True]


def test_rows_of_a_block_are_told_in_order() -> None:
    records = [
        record("publish", topic="x", seq=i) if i % 3 else record("publish", seq="x")
        for i in range(3000)
    ]
    rows = validated(*records).bad
    assert rows["row"].to_pylist() == list(range(3000))
    assert rows["reason_code"].to_pylist() == [
        "BAD_TOPIC" if i % 3 else "BAD_TYPE" for i in range(3000)
    ]


def test_typed_records_are_validated_as_parsed_ones() -> None:
    records = [record(kind.name) for kind in KINDS]
    records += [
        record("publish", topic="x"),
        record("publish", ts_mono_ns=...),
        {},
        record("ack", topic=""),
        record("cursor_state", mark_delete="5:-2"),
        record("dispatch", marker_ids=["3:-1"]),
        record("dispatch", payload="aGk=", partition=3, durable=False),
    ]
    parsed = validated(*records)
    plain = parsed.table.cast(SCHEMA)
    for table in (parsed.table, plain, pa.concat_tables([plain.slice(0, 9), plain.slice(9)])):
        typed = from_table(table, JOBS)
        assert typed.bad.to_pylist() == parsed.bad.to_pylist()
        assert typed.table.to_pylist() == parsed.table.to_pylist()
        assert typed.valid.tolist() == parsed.valid.tolist()
        assert typed.topic.to_pylist() == parsed.topic.to_pylist()


def test_topics_are_spelt_in_one_way() -> None:
    parsed = validated(
        record("publish", topic="a/b/c"),
        record("publish", topic="persistent://a/b/c"),
        record("publish", topic="a/b/c", partition=1),
        record("publish", topic="a/b/c-partition-1"),
        record("produce_batch", topic="a/b/c", partition=1),
        record("broker_started"),
        record("publish", topic="a/b/c", partition=1),
    )
    assert parsed.topic.to_pylist() == [
        "persistent://a/b/c",
        "persistent://a/b/c",
        "persistent://a/b/c-partition-1",
        "persistent://a/b/c-partition-1",
        "a/b/c-partition-1",
        None,
        "persistent://a/b/c-partition-1",
    ]


def test_a_client_rate_is_of_a_type_that_brokers_have() -> None:
    assert reasons(record("client_rate", quota_type="bytes")) == [
        [("BAD_QUOTA_TYPE", "quota_type", None)]
    ]


def test_only_tokens_may_be_below_zero() -> None:
    tokens = record("client_rate", quota_type="controller_mutation", value_milli=-80_000)
    rate = record("client_rate", quota_type="fetch", value_milli=-1)
    assert reasons(tokens, rate) == [[], [("NEGATIVE_AMOUNT", "value_milli", None)]]


def test_the_last_columns_of_the_contract_are_checked_as_the_first_are() -> None:
    """There are more columns than a word has bits."""
    late = {"bound_milli": 1.5, "throttle_avg_milli": -1}
    assert reasons(record("client_rate", **late), record("client_rate")) == [
        [("BAD_TYPE", "bound_milli", None), ("NEGATIVE_AMOUNT", "throttle_avg_milli", None)],
        [],
    ]
    parsed = validated(record("client_rate", bound_milli=7), record("client_rate"))
    assert parsed.table.column("bound_milli").to_pylist() == [7, None]
    assert parsed.table.column("throttle_avg_milli").to_pylist() == [None, None]
    twice = line(record("client_rate", bound_milli=7))[:-1] + b',"bound_milli":8}'
    assert validated(twice).table.column("bound_milli").to_pylist() == [8]
