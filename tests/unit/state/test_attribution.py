"""Whose limit a pause is for: worked out by hand from the specification, for the core and the
reference alike."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tests.reference.job import judge
from tests.reference.words import words
from tests.unit.state.trace import PARAMS, START_MS, START_NS, play, publish, record
from tests.unit.state.traces import document

A, B, C = "persistent://t/ns/a", "persistent://t/ns/b", "persistent://t/other/c"
S, MS = 1_000_000_000, 1_000_000
OF_GROUP = [
    document("namespace", "t/ns", resource_group="g"),
    document("resource_group", "g", publishRateInMsgs=10),
]
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(params=["core", "reference"], autouse=True)
def runner(request: pytest.FixtureRequest) -> str:
    """Who judges the traces of a test."""
    return str(request.param)


def judged(
    runner: str,
    records: list[dict[str, Any]],
    policies: list[str],
    split: bool = False,
    **params: Any,
) -> Rows:
    """Rows by table, an hour after the start; `split`: every record is a batch of its own."""
    if runner == "reference":
        return judge(records, {**PARAMS, **params}, policies, START_MS + 3_600_000)
    batches = [[r] for r in records] if split else [records]
    return defaultdict(list, play(batches, params, policies, drain_ms=3_600_000))


def opened(cnx: str = "c1", **columns: Any) -> dict[str, Any]:
    return record("connection_opened", 0, cnx_id=cnx, **columns)


def created(topic: str, producer: int, cnx: str = "c1", at_ns: int = 0) -> dict[str, Any]:
    return record(
        "producer_created",
        at_ns,
        cnx_id=cnx,
        topic=topic,
        producer_id=producer,
        producer_name=f"p{producer}",
    )


def numbered(*records: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**r, "seq": seq} for seq, r in enumerate(records)]


def added(at_ns: int, topic: str, size: int, cnx: str = "c1") -> dict[str, Any]:
    return record(
        "entry_added", at_ns, cnx_id=cnx, topic=topic, ledger_id=1, entry_id=1, entry_bytes=size
    )


def named(rows: Rows, action: str) -> list[tuple[Any, ...]]:
    """Of marks or unmarks: connection, limit, culprit and trigger."""
    return [
        (r["cnx_id"], r["limiter"], r["limiter_name"], r["culprit_topic"], r["trigger_topic"])
        for r in rows["throttle_events"]
        if r["action"] == action
    ]


def classes(rows: Rows) -> dict[str, tuple[tuple[int, int, int], tuple[int, int, int]]]:
    """By topic: pauses and paused time (ns) as culprit, shared and collateral."""
    found = {}
    for r in rows["topic_throttle_stats"]:
        times, paused = (
            (r["culprit" + unit], r["shared" + unit], r["collateral" + unit])
            for unit in ("_times", "_ns")
        )
        assert r["limited_times"] == sum(times) == sum(n for _, n in r["limited_by_limiter"])
        found[r["topic"]] = times, paused
    return found


ALL_THREE = [opened(io_thread=0), created(A, 1), created(B, 2), created(C, 3)]
PAUSE = 100 * MS + 1
"""Ten messages of ten a second leave nothing: the next one is there after a tenth of a second."""


def test_a_topic_is_culprit_for_its_own_limit(runner: str) -> None:
    rows = judged(
        runner,
        numbered(*ALL_THREE, publish(S, A, messages=10)),
        [document("topic", A, publishRateInMsgs=10)],
    )
    assert named(rows, "mark") == named(rows, "unmark") == [("c1", "topic", A, A, A)]
    assert classes(rows) == {
        A: ((1, 0, 0), (PAUSE, 0, 0)),
        B: ((0, 0, 1), (0, 0, PAUSE)),
        C: ((0, 0, 1), (0, 0, PAUSE)),
    }


def test_topics_of_a_group_share_its_limit_and_others_are_collateral(runner: str) -> None:
    rows = judged(runner, numbered(*ALL_THREE, publish(S, B, producer=2, messages=10)), OF_GROUP)
    assert named(rows, "mark") == named(rows, "unmark") == [("c1", "resource_group", "g", None, B)]
    assert classes(rows) == {
        A: ((0, 1, 0), (0, PAUSE, 0)),
        B: ((0, 1, 0), (0, PAUSE, 0)),
        C: ((0, 0, 1), (0, 0, PAUSE)),
    }


def test_every_topic_shares_the_limit_of_the_broker(runner: str) -> None:
    limit = document("broker", "*", brokerPublisherThrottlingMaxMessageRate=10)
    rows = judged(runner, numbered(*ALL_THREE, publish(S, C, producer=3, messages=10)), [limit])
    assert named(rows, "mark") == named(rows, "unmark") == [("c1", "broker", "b1", None, C)]
    assert classes(rows) == dict.fromkeys((A, B, C), ((0, 1, 0), (0, PAUSE, 0)))


def test_topics_of_a_connection_share_its_limit(runner: str) -> None:
    limit = document("broker", "*", maxPendingPublishRequestsPerConnection=1)
    rows = judged(runner, numbered(*ALL_THREE, publish(S, A), added(S + 100 * MS, A, 1)), [limit])
    assert named(rows, "mark") == named(rows, "unmark") == [("c1", "connection", "c1", None, A)]
    assert classes(rows) == dict.fromkeys((A, B, C), ((0, 1, 0), (0, 100 * MS, 0)))


def test_a_connection_resumes_once_half_of_an_odd_limit_is_in_flight(runner: str) -> None:
    limit = document("broker", "*", maxPendingPublishRequestsPerConnection=3)
    ended = [added(S + at * MS, A, 1) for at in (100, 200, 300)]
    records = numbered(opened(), created(A, 1), *(publish(S, A) for _ in range(3)), *ended)
    rows = judged(runner, records, [limit])
    assert named(rows, "mark") == named(rows, "unmark") == [("c1", "connection", "c1", None, A)]
    assert classes(rows) == {A: ((0, 1, 0), (0, 200 * MS, 0))}


def test_topics_on_an_io_thread_share_its_limit_on_every_connection(runner: str) -> None:
    limit = document("broker", "*", maxMessagePublishBufferSizeInMB=1, numIOThreads=1024 * 1024)
    trace = numbered(
        opened(io_thread=7),
        opened("c2", io_thread=7),
        opened("c3", io_thread=8),
        created(A, 1),
        created(B, 2, "c2"),
        created(C, 3, "c3"),
        publish(S, A, size=2),
        added(S + 100 * MS, A, 2),
    )
    rows = judged(runner, trace, [limit])
    assert (
        named(rows, "mark")
        == named(rows, "unmark")
        == [("c1", "io_thread", "7", None, A), ("c2", "io_thread", "7", None, A)]
    )
    shared = (0, 1, 0), (0, 100 * MS, 0)
    assert classes(rows) == {A: shared, B: shared, C: ((0, 0, 0), (0, 0, 0))}


def test_an_unmark_names_the_thread_of_its_mark(runner: str) -> None:
    """The connection has moved to another IO thread meanwhile."""
    limit = document("broker", "*", maxMessagePublishBufferSizeInMB=1, numIOThreads=1024 * 1024)
    moved = record("connection_opened", S + MS, cnx_id="c1", io_thread=8)
    closed = record("connection_closed", S + 2 * MS, cnx_id="c1")
    rows = judged(
        runner,
        numbered(opened(io_thread=7), created(A, 1), publish(S, A, size=2), moved, closed),
        [limit],
        split=True,
    )
    assert named(rows, "mark") == [("c1", "io_thread", "7", None, A)]
    assert named(rows, "unmark") == [("c1", "io_thread", "7", None, A)]


@pytest.mark.parametrize("split", [False, True])
def test_within_a_pause_a_topic_shares_only_while_a_shared_limit_holds_it(
    runner: str, split: bool
) -> None:
    """A's limit pauses at 1 s until 1.1 s; at 1.05 s B takes the broker's 95 tokens to -5, which
    lasts 60 ms. A stays culprit of the pause, B and C share it from 1.05 s on."""
    limits = [
        document("topic", A, publishRateInMsgs=10),
        document("broker", "*", brokerPublisherThrottlingMaxMessageRate=100),
    ]
    rows = judged(
        runner,
        numbered(
            *ALL_THREE,
            publish(S, A, messages=10),
            publish(S + 50 * MS, B, producer=2, messages=100),
        ),
        limits,
        split,
    )
    assert named(rows, "mark") == [("c1", "topic", A, A, A), ("c1", "broker", "b1", None, B)]
    assert classes(rows) == {
        A: ((1, 0, 0), (110 * MS + 1, 0, 0)),
        B: ((0, 0, 1), (0, 60 * MS + 1, 50 * MS)),
        C: ((0, 0, 1), (0, 60 * MS + 1, 50 * MS)),
    }


@pytest.mark.parametrize("split", [False, True])
def test_own_limit_within_a_shared_pause_makes_a_culprit_from_then_on(
    runner: str, split: bool
) -> None:
    """The broker's limit pauses at 1 s for 110 ms; at 1.05 s A uses up its own, for 100 ms."""
    limits = [
        document("topic", A, publishRateInMsgs=10),
        document("broker", "*", brokerPublisherThrottlingMaxMessageRate=100),
    ]
    rows = judged(
        runner,
        numbered(
            *ALL_THREE,
            publish(S, B, producer=2, messages=110),
            publish(S + 50 * MS, A, messages=10),
        ),
        limits,
        split,
    )
    ends = {
        r["limiter"]: r["ts_mono_ns"] - START_NS - S
        for r in rows["throttle_events"]
        if r["action"] == "unmark" and r["transition"] != "Dropped"
    }
    assert ends["topic"] == 150 * MS + 1
    # 110 of 100 and 10 more leave -15 at 1.05 s; the flag falls when it is at 1 again
    broker = ends["broker"]
    last = max(ends.values())
    assert classes(rows)[A] == ((0, 1, 0), (last - 50 * MS, 50 * MS, 0))
    assert classes(rows)[B] == ((0, 1, 0), (0, broker, last - broker))


@pytest.mark.parametrize("split", [False, True])
def test_a_topic_that_leaves_a_group_no_longer_shares_its_limit(runner: str, split: bool) -> None:
    """Twenty of ten a second: 1.1 s from 1 s on. At 1.5 s the namespace moves to another group."""
    moved = record(
        "policy", S + S // 2, policy_json=document("namespace", "t/ns", resource_group="h")
    )
    rows = judged(runner, numbered(*ALL_THREE, publish(S, A, messages=20), moved), OF_GROUP, split)
    assert classes(rows) == {
        A: ((0, 1, 0), (0, S // 2, 600 * MS + 1)),
        B: ((0, 1, 0), (0, S // 2, 600 * MS + 1)),
        C: ((0, 0, 1), (0, 0, 1100 * MS + 1)),
    }


@pytest.mark.parametrize("split", [False, True])
def test_a_group_that_was_idle_is_still_shared_by_its_silent_topics(
    runner: str, split: bool
) -> None:
    """Between records the state drops a limiter that is as good as new; A has been silent since."""
    rows = judged(
        runner,
        numbered(
            *ALL_THREE, publish(5 * S, C, producer=3), publish(10 * S, B, producer=2, messages=10)
        ),
        OF_GROUP,
        split,
        idle_state_ms=400,
    )
    assert classes(rows)[A] == ((0, 1, 0), (0, PAUSE, 0))
    assert classes(rows)[B] == ((0, 1, 0), (0, PAUSE, 0))


@pytest.mark.parametrize("split", [False, True])
def test_a_topic_that_comes_into_the_pause_of_its_group_shares_it(runner: str, split: bool) -> None:
    rows = judged(
        runner,
        numbered(
            opened(),
            created(A, 1),
            created(C, 3),
            publish(S, A, messages=10),
            created(B, 2, at_ns=S + 40 * MS),
        ),
        OF_GROUP,
        split,
    )
    assert classes(rows) == {
        A: ((0, 1, 0), (0, PAUSE, 0)),
        B: ((0, 0, 0), (0, 60 * MS + 1, 0)),
        C: ((0, 0, 1), (0, 0, PAUSE)),
    }


@pytest.mark.parametrize("split", [False, True])
def test_a_group_without_a_receipt_is_shared_from_the_end_of_the_wait(
    runner: str, split: bool
) -> None:
    """Twenty of ten a second: 1.1 s from 1 s on; reads go on for the 100 ms of the wait."""
    rows = judged(
        runner,
        numbered(opened(supports_throttle=True), *ALL_THREE[1:], publish(S, A, messages=20)),
        OF_GROUP,
        split,
        protocol="pip385",
        receipt_model="observed",
    )
    assert [
        (r["action"], r["limiter_name"], r["culprit_topic"], r["trigger_topic"], r["reads_paused"])
        for r in rows["throttle_events"]
    ] == [
        ("mark", "g", None, A, False),
        ("receipt", "g", None, A, True),
        ("unmark", "g", None, A, False),
    ]
    assert classes(rows) == {
        A: ((0, 1, 0), (0, S, 0)),
        B: ((0, 1, 0), (0, S, 0)),
        C: ((0, 0, 1), (0, 0, S)),
    }


def test_a_client_that_does_not_know_the_command_has_a_row_without_one(runner: str) -> None:
    """For a topic or group the producer that would have had the command, for the other reasons
    every producer of the connection."""
    limits = [
        document("topic", A, publishRateInMsgs=10),
        document("broker", "*", brokerPublisherThrottlingMaxMessageRate=100),
    ]
    rows = judged(
        runner,
        numbered(
            opened(supports_throttle=False),
            created(A, 1),
            created(B, 2),
            publish(S, A, messages=10),
            publish(5 * S, B, producer=2, messages=100),
        ),
        limits,
        protocol="pip385",
    )
    assert [
        (r["action"], r["receipt_state"], r["reads_paused"])
        for r in rows["throttle_events"]
        if r["action"] != "unmark"
    ] == [("mark", "not_supported", True)] * 2
    shown = words(
        "rule cnx_id topic producer_id producer_name reason request_id start_ms pause_ms end_ms"
        " throttled_ms_total exception"
    )
    nothing = (None,) * 6
    assert [tuple(r[name] for name in shown) for r in rows["producer_throttle"]] == [
        ("client_unsupported", "c1", A, 1, "p1", "TopicProduceQuotaExceeded", *nothing),
        ("client_unsupported", "c1", A, 1, "p1", "BrokerProduceQuotaExceeded", *nothing),
        ("client_unsupported", "c1", B, 2, "p2", "BrokerProduceQuotaExceeded", *nothing),
    ]


def test_waiting_for_a_broker_receipt_announces_no_pause_and_holds_nobody(runner: str) -> None:
    """`broker_reason=wait`: the pause sent for a broker limit is 0, unknown. Reads stay on and the
    client is throttled for no time; with `pause_rule=model` it is told what the bucket asks for."""
    limit = document("broker", "*", brokerPublisherThrottlingMaxMessageRate=10)
    trace = numbered(
        opened(supports_throttle=True),
        created(A, 1),
        publish(S, A, messages=20),
        record("send_timeout", S + 10 * MS, cnx_id="c1", topic=A, producer_id=1, sequence_id=1),
    )
    for rule, pause, exception in (
        ("pip", 0, "TimeoutException"),
        ("model", 1100, "ProducerThrottledException"),
    ):
        rows = judged(
            runner,
            trace,
            [limit],
            protocol="pip385",
            receipt_model="supported",
            broker_reason="wait",
            pause_rule=rule,
        )
        mark = rows["throttle_events"][0]
        assert (mark["receipt_state"], mark["reads_paused"], mark["pause_pip_ms"]) == (
            "received",
            False,
            0,
        )
        command, timeout = rows["producer_throttle"]
        assert (command["rule"], command["pause_ms"]) == ("bucket_empty", pause)
        assert timeout["exception"] == exception
        assert classes(rows) == {A: ((0, 0, 0), (0, 0, 0))}
