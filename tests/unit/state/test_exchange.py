"""The exchange of PIP-385 on small traces: the core and the reference, each by itself."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.reference.job import judge
from tests.reference.tracker import SharedCounter
from tests.reference.words import words
from tests.support import records
from tests.unit.state import trace as core
from tests.unit.state.recorded import vectors

VECTORS = "rate_limits.json"
MS = 1_000_000
START_MS, START_NS = 1_767_621_600_250, 10_368_000_000_000_001
A, B = "persistent://t/ns/a", "persistent://t/ns/b-partition-1"
TOPIC, BROKER = "TopicPublishRate", "BrokerPublishRate"
IN_FLIGHT = "ConnectionMaxPendingPublishRequestsExceeded"
PARAMS: dict[str, Any] = {
    "observed_wait_ms": 1000,
    "idle_state_ms": 3_600_000,
    "stats_window_ms": 60_000,
    "extra_outputs": ("publish_verdicts",),
}
EXCHANGE = {**PARAMS, "protocol": "pip385"}
Rows = dict[str, list[dict[str, Any]]]


def record(kind: str, at_ns: int, seq: int, **columns: Any) -> dict[str, Any]:
    return records.record(kind, START_MS + at_ns // MS, START_NS + at_ns, seq=seq, **columns)


def opened(seq: int, supports: bool | None = True, cnx: str = "c1", **columns: Any) -> Any:
    return record("connection_opened", 0, seq, cnx_id=cnx, supports_throttle=supports, **columns)


def publish(
    at_ns: int,
    seq: int,
    messages: int = 1,
    topic: str = A,
    producer: int = 1,
    size: int = 1,
    cnx: str = "c1",
) -> dict[str, Any]:
    return record(
        "publish",
        at_ns,
        seq,
        cnx_id=cnx,
        topic=topic,
        producer_id=producer,
        producer_name=f"p{producer}",
        num_messages=messages,
        entry_bytes=size,
    )


def receipt(at_ns: int, seq: int, request: int, cnx: str = "c1") -> dict[str, Any]:
    return record("throttle_receipt", at_ns, seq, cnx_id=cnx, request_id=request)


def timeout(at_ns: int, seq: int, **columns: Any) -> dict[str, Any]:
    return record(
        "send_timeout",
        at_ns,
        seq,
        **{"cnx_id": "c1", "topic": A, "producer_id": 1, "sequence_id": seq, **columns},
    )


def document(scope: str, name: str, **limits: Any) -> str:
    return json.dumps({"scope": scope, "name": name, "limits": limits})


def topic_limit(rate: int, name: str = "t/ns/a") -> str:
    return document("topic", name, publishRateInMsgs=rate)


def of_broker(**limits: Any) -> str:
    return document("broker", "*", **limits)


BROKER_LIMIT = of_broker(brokerPublisherThrottlingMaxMessageRate=1)


RUNNER = ["core"]


@pytest.fixture(autouse=True, params=["core", "reference"])
def runner(request: pytest.FixtureRequest) -> Iterator[str]:
    """Who judges the traces of a test."""
    RUNNER[0] = request.param
    yield request.param


def play(
    trace: list[dict[str, Any]],
    policies: list[str],
    params: dict[str, Any] = PARAMS,
    **switches: str,
) -> Rows:
    """Rows by table, those without rows too, ten minutes after the start."""
    params = {**params, **switches}
    if RUNNER[0] == "reference":
        return judge(trace, params, policies, START_MS + 600_000)
    rows = core.play([trace], params, policies, drain_ms=START_MS - core.START_MS + 600_000)
    found = {
        table: sorted(mine, key=lambda r: (r["ts_mono_ns"], r["row_no"]))
        for table, mine in rows.items()
        if table != "quarantine"
    }
    return defaultdict(list, found)


def pick(rows: list[dict[str, Any]], *names: str, **wanted: Any) -> list[tuple[Any, ...]]:
    """Columns of the rows that have the values wanted."""
    return [
        tuple(r[name] - START_NS if name == "ts_mono_ns" else r[name] for name in names)
        for r in rows
        if all(r[name] == value for name, value in wanted.items())
    ]


@pytest.mark.parametrize("vector", vectors(VECTORS, "protocol"), ids=lambda v: v["id"])
def test_exchange_vector(vector: dict[str, Any]) -> None:
    """RC1 to RC6: one throttle that lasts longer than the wait for its receipt."""
    p, given = vector["params"], vector["given"]
    wait = {"throttleProducerReceiptWaitTimeMillis": p["throttleProducerReceiptWaitTimeMillis"]}
    policies = {
        "TopicProduceQuotaExceeded": [of_broker(**wait), topic_limit(1)],
        "BrokerProduceQuotaExceeded": [
            of_broker(**wait, brokerPublisherThrottlingMaxMessageRate=1)
        ],
    }[given["reason"]]
    trace = [opened(1, given["supports_throttle"]), publish(0, 2, 5)]
    if given["receipt_after_ns"] is not None:
        trace.append(receipt(given["receipt_after_ns"], 3, 1))
    switches = {name: p[name] for name in ("protocol", "receipt_model")}
    rows = play(trace, policies, **switches)
    events = rows["throttle_events"]
    assert {r["reason"] for r in events} == {given["reason"]}
    paused = [offset for (offset,) in pick(events, "ts_mono_ns", reads_paused=True)]
    ((state, left_paused),) = pick(events, "receipt_state", "reads_paused", action="unmark")
    assert not left_paused
    assert {
        "command_sent": any(r["request_id"] is not None for r in rows["producer_throttle"]),
        "receipt_state": state,
        "reads_paused": bool(paused),
        "paused_after_ns": paused[0] if paused else None,
    } == vector["expect"]
    counted = {r["topic"]: r["limited_times"] for r in rows["topic_throttle_stats"]}
    assert sum(counted.values()) == (1 if paused else 0)


def test_without_the_exchange_every_mark_pauses() -> None:
    trace = [opened(1), publish(0, 2, 5), receipt(5, 3, 1), timeout(9, 4)]
    rows = play(trace, [topic_limit(1)])
    assert pick(rows["throttle_events"], "action", "request_id", "receipt_state") == [
        ("mark", None, None),
        ("unmark", None, None),
    ]
    assert rows["producer_throttle"] == []


def test_receipt_rows_and_the_pause_that_a_time_out_begins() -> None:
    """Two marks of one connection: the receipt of one comes, that of the other does not."""
    trace = [
        opened(1),
        publish(0, 2, 5),
        publish(10 * MS, 3, 1, B, 2),
        publish(20 * MS, 4, 5, B, 2),
        receipt(30 * MS, 5, 2),
    ]
    policies = [topic_limit(1), topic_limit(1, "t/ns/b")]
    rows = play(trace, policies, EXCHANGE, receipt_model="observed")
    names = words(
        "ts_mono_ns topic action rule transition reads_paused request_id receipt_state"
        " collateral_topics waiting pause_model_ns"
    )
    first = "ConnectionStateChanged"
    assert pick(rows["throttle_events"], *names)[:5] == [
        (0, A, "mark", "bucket_empty", first, False, 1, None, [], 1, 5_000_000_000),
        (
            10 * MS,
            B,
            "mark",
            "bucket_empty",
            "TypeStateChanged",
            False,
            2,
            None,
            [],
            1,
            1_000_000_000,
        ),
        (
            20 * MS,
            B,
            "mark",
            "bucket_empty",
            "TypeStateChanged",
            False,
            3,
            None,
            [],
            2,
            6_000_000_000,
        ),
        (
            30 * MS,
            B,
            "receipt",
            "receipt_in_time",
            "TypeStateChanged",
            False,
            2,
            "received",
            [],
            None,
            None,
        ),
        (
            100 * MS + 1,
            A,
            "receipt",
            "receipt_timeout",
            first,
            True,
            1,
            "timed_out",
            [B],
            None,
            None,
        ),
    ]
    late = pick(rows["throttle_events"], *names)[5]
    assert late == (
        120 * MS + 1,
        B,
        "receipt",
        "receipt_timeout",
        "TypeStateChanged",
        True,
        3,
        "timed_out",
        [A],
        None,
        None,
    )
    counts = ("topic", "limited_times", "culprit_times", "collateral_times", "limited_by_limiter")
    assert pick(rows["topic_throttle_stats"], *counts) == [
        (A, 1, 1, 0, [("topic", 1)]),
        (B, 1, 0, 1, [("topic", 1)]),
    ]
    (b_ns,) = pick(rows["topic_throttle_stats"], "culprit_ns", "collateral_ns", topic=B)
    # B is to blame from its own time-out on
    assert b_ns[1] == 20 * MS


def test_release_before_the_end_of_the_wait_leaves_nothing_to_time_out() -> None:
    trace = [opened(1), publish(0, 2, 50)]
    rows = play(trace, [topic_limit(50)], EXCHANGE, receipt_model="observed")
    names = ("ts_mono_ns", "action", "reads_paused", "request_id", "receipt_state")
    assert pick(rows["throttle_events"], *names) == [
        (0, "mark", False, 1, None),
        (20 * MS + 1, "unmark", False, 1, None),
    ]


def test_receipts_that_are_ignored() -> None:
    """Of an unknown request, an unknown connection, and a second one."""
    trace = [
        opened(1),
        publish(0, 2, 5),
        receipt(1, 3, 7),
        receipt(2, 4, 1, "c2"),
        receipt(3, 5, 1),
        receipt(4, 6, 1),
    ]
    rows = play(trace, [topic_limit(1)], EXCHANGE, receipt_model="observed")
    assert pick(rows["throttle_events"], "ts_mono_ns", "rule", action="receipt") == [
        (3, "receipt_in_time")
    ]


@pytest.mark.parametrize(
    ("model", "announced", "state"),
    [
        ("none", True, "not_supported"),
        ("supported", True, "received"),
        ("supported", None, "not_supported"),
        ("observed", False, "not_supported"),
        ("all", False, "received"),
    ],
)
def test_receipt_models(model: str, announced: bool | None, state: str) -> None:
    trace = [opened(1, announced), publish(0, 2, 5)]
    rows = play(trace, [topic_limit(1)], EXCHANGE, receipt_model=model)
    seen = pick(rows["throttle_events"], "action", "receipt_state", "request_id", "reads_paused")
    request = 1 if state == "received" else None
    assert seen == [
        ("mark", state, request, state == "not_supported"),
        ("unmark", state, request, False),
    ]
    assert pick(rows["producer_throttle"], "rule", "request_id") == [
        ("bucket_empty", 1) if request else ("client_unsupported", None)
    ]


def created(seq: int, topic: str, producer: int, cnx: str = "c1") -> dict[str, Any]:
    return record(
        "producer_created",
        0,
        seq,
        cnx_id=cnx,
        topic=topic,
        producer_id=producer,
        producer_name=f"p{producer}",
    )


def test_informing_commands_go_to_every_producer_of_the_connection() -> None:
    trace = [opened(1), created(2, B, 9), created(3, A, 3), publish(0, 4, 1, B, 3)]
    for broker_reason, expected in (
        (
            "inform",
            [(A, 3, 1, "informed_only"), (B, 3, 2, "informed_only"), (B, 9, 3, "informed_only")],
        ),
        ("wait", [(B, 3, 1, "bucket_empty")]),
    ):
        rows = play(
            trace, [BROKER_LIMIT], EXCHANGE, receipt_model="all", broker_reason=broker_reason
        )
        if broker_reason == "inform":
            # in the order in which A and B were opened under id 3
            assert [r["request_id"] for r in rows["producer_throttle"]] == [1, 2, 3]
        names = ("topic", "producer_id", "request_id", "rule")
        assert pick(rows["producer_throttle"], *names) == expected
        (mark,) = pick(
            rows["throttle_events"], "request_id", "receipt_state", "reads_paused", action="mark"
        )
        informs = broker_reason == "inform"
        assert mark == ((2, "not_waited", True) if informs else (1, "received", False))


def test_buffer_command_on_a_connection_without_a_triggering_producer() -> None:
    limits = of_broker(maxMessagePublishBufferSizeInMB=1, numIOThreads=1024 * 1024)
    trace = [
        opened(1, io_thread=0),
        opened(2, cnx="c2", io_thread=0),
        opened(3, False, cnx="c3", io_thread=0),
        opened(4, cnx="c4", io_thread=0),
        created(5, B, 8, "c2"),
        created(6, A, 5, "c2"),
        publish(0, 7, size=2),
    ]
    rows = play(trace, [limits], EXCHANGE, receipt_model="supported")
    names = ("cnx_id", "producer_id", "request_id", "receipt_state", "reads_paused")
    assert pick(rows["throttle_events"], *names) == [
        ("c1", 1, 1, "not_waited", True),
        ("c2", None, 1, "not_waited", True),
        ("c3", None, None, "not_supported", True),
        ("c4", None, None, "not_waited", True),
    ]
    names = ("cnx_id", "producer_id", "partition", "request_id", "pause_ms", "row_no")
    assert pick(rows["producer_throttle"], *names) == [
        ("c1", 1, None, 1, 0, 0),
        ("c2", 5, None, 1, 0, 1),
        ("c2", 8, 1, 2, 0, 2),
    ]


def test_second_broker_mark_is_dropped_or_counted() -> None:
    """With one flag the first release ends the only mark; with a counter each has its own."""
    trace = [opened(1), publish(0, 2), publish(1, 3, producer=2)]
    names = ("action", "producer_id", "transition", "request_id", "receipt_state", "reads_paused")
    flag = play(trace, [BROKER_LIMIT], EXCHANGE, receipt_model="all", broker_reason="wait")
    assert pick(flag["throttle_events"], *names) == [
        ("mark", 1, "ConnectionStateChanged", 1, "received", False),
        ("mark", 2, "Dropped", None, None, False),
        ("unmark", 1, "ConnectionStateChanged", 1, "received", False),
        ("unmark", 2, "Dropped", None, None, False),
    ]
    counter = play(
        trace,
        [BROKER_LIMIT],
        EXCHANGE,
        receipt_model="all",
        broker_reason="wait",
        throttle_tracker="shared_counter",
    )
    assert pick(counter["throttle_events"], *names) == [
        ("mark", 1, "ConnectionStateChanged", 1, "received", False),
        ("mark", 2, "TypeStateChanged", 2, "received", False),
        ("unmark", 1, "TypeStateChanged", 1, "received", False),
        ("unmark", 2, "ConnectionStateChanged", 2, "received", False),
    ]


def test_shared_counter() -> None:
    t = SharedCounter()
    steps = [
        ("mark", BROKER),
        ("mark", BROKER),
        ("mark", IN_FLIGHT),
        ("mark", IN_FLIGHT),
        ("unmark", BROKER),
        ("unmark", IN_FLIGHT),
        ("unmark", IN_FLIGHT),
        ("unmark", BROKER),
    ]
    assert [getattr(t, action)(kind) for action, kind in steps] == [
        *words(
            "ConnectionStateChanged TypeStateChanged TypeStateChanged Dropped TypeStateChanged"
            " TypeStateChanged Dropped ConnectionStateChanged"
        )
    ]


def test_pauses_that_are_sent_and_their_sum() -> None:
    """The trace starts 250 ms into a second."""
    closed = record("producer_closed", 9_000 * MS, 5, cnx_id="c1", topic=A, producer_id=1)
    trace = [
        opened(1),
        publish(0, 2, 5),
        publish(800 * MS, 3),
        publish(1_000 * MS, 4, producer=2),
        closed,
        record("producer_closed", 9_000 * MS, 6, cnx_id="c1", topic=A, producer_id=2),
        publish(9_000 * MS, 7, 20),
    ]
    names = ("start_ms", "pause_ms", "end_ms", "throttled_ms_total", "request_id")
    pip = play(trace, [topic_limit(1)], EXCHANGE, receipt_model="all")
    assert pick(pip["producer_throttle"], *names) == [
        (START_MS, 750, START_MS + 750, 750, 1),
        (START_MS + 800, 950, START_MS + 1750, 1700, 2),
        (START_MS + 1000, 750, START_MS + 1750, 2450, 3),
        (START_MS + 9000, 750, START_MS + 9750, 750, 4),
    ]
    model = play(trace, [topic_limit(1)], EXCHANGE, receipt_model="all", pause_rule="model")
    assert [r["pause_ms"] for r in model["producer_throttle"]] == [5000, 6000, 6000, 20_000]


@pytest.mark.parametrize("timeout_rule", ["active", "seen"])
@pytest.mark.parametrize("repeat_throttle", ["replace", "max"])
def test_timeouts(timeout_rule: str, repeat_throttle: str) -> None:
    """A long pause, then the informing command of the broker, whose pause is 0."""
    trace = [
        opened(1),
        publish(0, 2, 3),
        publish(100 * MS, 3, 5, B, 2),
        timeout(150 * MS, 4),
        timeout(150 * MS, 5, cnx_id=None),
        timeout(150 * MS, 6, publish_time_ms=START_MS + 100),
        timeout(150 * MS, 7, publish_time_ms=START_MS + 101),
        timeout(750 * MS, 8),
        timeout(750 * MS, 9, producer_id=5),
    ]
    policies = [topic_limit(1), of_broker(brokerPublisherThrottlingMaxMessageRate=5)]
    rows = play(
        trace,
        policies,
        EXCHANGE,
        receipt_model="all",
        timeout_rule=timeout_rule,
        repeat_throttle=repeat_throttle,
    )
    names = ("sequence_id", "exception", "reason", "pause_ms", "request_id", "rule")
    seen = pick(rows["producer_throttle"], *names, rule="send_timeout")
    throttled = {
        "replace": ("BrokerProduceQuotaExceeded", 0, 2),
        "max": ("TopicProduceQuotaExceeded", 750, 1),
    }[repeat_throttle]
    yes = ("ProducerThrottledException", *throttled, "send_timeout")
    no = ("TimeoutException", None, None, None, "send_timeout")
    expected = {
        ("active", "replace"): [no, no, no, no, no, no],
        ("active", "max"): [yes, yes, yes, yes, no, no],
        ("seen", "replace"): [yes, yes, yes, no, yes, no],
        ("seen", "max"): [yes, yes, yes, no, yes, no],
    }[timeout_rule, repeat_throttle]
    assert seen == [(4 + i, *row) for i, row in enumerate(expected)]
    totals = [r["throttled_ms_total"] for r in rows["producer_throttle"]]
    assert totals == [750, 0, 0, *[None] * 6]


def test_reading_of_a_timeout_without_connection_takes_the_producer_opened_last() -> None:
    trace = [
        opened(1),
        opened(2, cnx="c2"),
        publish(0, 3, cnx="c2"),
        publish(1, 4),
        publish(2, 5, cnx="c2"),
        timeout(3, 6, cnx_id=None),
        timeout(3, 7, cnx_id="c9"),
        timeout(3, 8, topic=B, cnx_id=None),
    ]
    rows = play(trace, [], EXCHANGE, receipt_model="all")
    names = ("cnx_id", "producer_name", "topic", "partition", "exception")
    assert pick(rows["producer_throttle"], *names) == [
        ("c1", "p1", A, None, "TimeoutException"),
        ("c9", None, A, None, "TimeoutException"),
        (None, None, B, 1, "TimeoutException"),
    ]


def test_limit_removed_while_producers_wait() -> None:
    """RL14: released where the task was scheduled, or at once."""
    (vector,) = vectors(VECTORS, "limit_change")
    scheduled = vector["params"]["scheduled_in_ns"]
    waiting = vector["params"]["waiting_producers"]
    trace = [publish(0, 1, 5000)]
    trace += [publish(0, i, 0, producer=i) for i in range(2, waiting + 1)]
    trace += [record("policy", 10 * MS, 9, policy_json=document("topic", "t/ns/a"))]
    for value, released in (("immediate", 10 * MS + 1), ("scheduled", scheduled + 1)):
        rows = play(trace, [topic_limit(1000)], limit_change=value)
        unmarks = pick(rows["throttle_events"], "ts_mono_ns", "rule", action="unmark")
        assert unmarks == [(released, "limit_removed")] * vector["expect"][value]["released"]


def test_release_at_a_positive_balance() -> None:
    """The target of rate 1000 is 10 tokens; 5 are enough for the older rule."""
    trace = [publish(0, 1, 1000), publish(20 * MS, 2, 15)]
    released = {}
    for value in ("target", "positive"):
        rows = play(trace, [topic_limit(1000)], release_condition=value)
        verdicts = pick(rows["publish_verdicts"], "balance_msgs", "pause_model_ns")
        assert verdicts == [(0, 10 * MS), (5, 5 * MS)]
        released[value] = pick(
            rows["throttle_events"], "ts_mono_ns", "balance_msgs", "pause_model_ns", action="unmark"
        )
    # task at 10 ms sees the old balance, the next at 20 ms + 2 ns comes after the charge
    assert released["positive"] == [(20 * MS + 2, 5, 5 * MS)]
    assert released["target"][0][0] > 25 * MS


def test_older_bucket_passes_a_whole_tick() -> None:
    """RL4-per_tick through the limiter: the mark shows the number that its verdict is from."""
    trace = [publish(0, 1, 600), publish(0, 2, 600), publish(0, 3, 1000), publish(0, 4, 1)]
    rows = play(trace, [topic_limit(1000)], tokenbucket="per_tick")
    verdicts = pick(rows["publish_verdicts"], "balance_msgs", "messages_ok", "pause_model_ns")
    assert verdicts == [
        (400, True, 0),
        (400, True, 216 * MS),
        (0, False, 1216 * MS),
        (-1201, False, 1217 * MS),
    ]
    names = ("action", "ts_mono_ns", "balance_msgs", "pause_model_ns", "waiting")
    events = pick(rows["throttle_events"], *names)
    assert events[:2] == [("mark", 0, 0, 1216 * MS, 1), ("mark", 0, -1201, 1217 * MS, 2)]
    # the task finds 1216 - 1201 tokens
    assert events[2:] == [("unmark", 1216 * MS + 1, 15, 0, 1), ("unmark", 1216 * MS + 1, 15, 0, 0)]


def test_use_of_limiters() -> None:
    limits = of_broker(
        brokerPublisherThrottlingMaxByteRate=1000,
        maxPendingPublishRequestsPerConnection=2,
        maxMessagePublishBufferSizeInMB=1,
        numIOThreads=1024,
    )
    trace = [
        opened(1, io_thread=7),
        publish(0, 2, 300, size=100),
        publish(1, 3, 300, size=3000),
        record("entry_added", 2, 4, topic=A, ledger_id=1, entry_id=1, entry_bytes=100),
        publish(3, 5, 1, B, 2, size=10),
    ]
    rows = play(trace, [limits, topic_limit(100)])
    names = words(
        "window_start_ms row_no limiter limiter_name messages bytes limit_msgs limit_bytes"
        " max_level limit_level min_balance_msgs min_balance_bytes throttles max_waiting"
        " utilisation"
    )
    first = START_MS // 60_000 * 60_000
    assert pick(rows["limiter_stats"], *names, window_start_ms=first) == [
        (first, 0, "connection", "c1", None, None, None, None, 2, 2, None, None, 2, None, 1.0),
        (
            first,
            1,
            "io_thread",
            "7",
            None,
            None,
            None,
            None,
            3100,
            1024,
            None,
            None,
            1,
            None,
            3100 / 1024,
        ),
        (first, 2, "topic", A, 600, 3100, 100.0, None, None, None, -500, None, 2, 2, 0.1),
        (
            first,
            3,
            "broker",
            "b1",
            601,
            3110,
            None,
            1000.0,
            None,
            None,
            None,
            -2110,
            2,
            2,
            3110 / 60 / 1000,
        ),
    ]
    # requests in flight and bytes stay, so the connection stays paused and windows go on
    second = pick(rows["limiter_stats"], *names, window_start_ms=first + 60_000)
    assert second == [
        (
            first + 60_000,
            0,
            "connection",
            "c1",
            None,
            None,
            None,
            None,
            2,
            2,
            None,
            None,
            0,
            None,
            1.0,
        ),
        (
            first + 60_000,
            1,
            "io_thread",
            "7",
            None,
            None,
            None,
            None,
            3010,
            1024,
            None,
            None,
            0,
            None,
            3010 / 1024,
        ),
    ]
