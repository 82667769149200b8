"""Looser limits: what they never make worse, and traces in which they do (docs/policies.md)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from state.backlog.declaration import NAME as BACKLOG
from state.producer_ids.declaration import NAME as PRODUCER_IDS
from state.rate_limits.declaration import NAME as RATE_LIMITS
from tests.reference.words import words
from tests.support.effort import LOOKED_FOR, drawn
from tests.unit.state.contract.jobs import (
    JOBS,
    Rows,
    Sample,
    batch,
    document,
    ledger,
    publish,
    record,
    topic,
)
from tests.unit.state.shipping import Row
from tests.unit.state.trace import START_MS

RATES = frozenset(
    {
        *words(
            "publishRateInMsgs publishRateInBytes brokerPublisherThrottlingMaxMessageRate"
            " brokerPublisherThrottlingMaxByteRate maxPublishRatePerTopicInMessages"
            " maxPublishRatePerTopicInBytes"
        )
    }
)
BUCKETS = ("topic", "resource_group", "broker")
"""Limiters of rates."""
PAUSES = ("reads_paused", "reads_resumed")
IDS, SIZE, TIME = (frozenset({key}) for key in ("producer_ids_rate", "limitSize", "limitTime"))
Looser = Callable[[float], float]


def times(factor: float) -> Looser:
    """A limit so many times as high; one that is off stays so."""
    return lambda value: value * factor if value > 0 else value


def loosened(by: Sample, keys: frozenset[str], looser: Looser) -> Sample:
    """A sample with other values of these limits in every document, of the configuration and of the
    stream."""

    def changed(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            k: looser(v) if k in keys and isinstance(v, int | float) else changed(v)
            for k, v in value.items()
        }

    def text(document_: str) -> str:
        return json.dumps(changed(json.loads(document_)))

    records = [
        {**r, "policy_json": text(r["policy_json"])} if r.get("policy_json") else r
        for r in by.records
    ]
    return Sample(records, by.params, [text(p) for p in by.policies], by.until_ms)


def both(
    job: str, trace: Any, keys: frozenset[str], looser: Looser, **params: Any
) -> tuple[Rows, Rows]:
    """The rows of a trace, and those under looser limits; neither knows the pauses that a broker
    reported under the limits that it had."""
    sample = JOBS[job].sample(trace)
    records = [r for r in sample.records if r["event_type"] not in PAUSES]
    by = Sample(records, {**sample.params, **params}, sample.policies, sample.until_ms)
    said = Counter((r["ts_wall_ms"], r["seq"]) for r in by.records if r.get("policy_json"))
    assume(all(count == 1 for count in said.values()))  # of one time, their text decides
    samples = by, loosened(by, keys, looser)
    strict, loose = (JOBS[job].play([one.records], one) for one in samples)
    return strict, loose


def counted(rows: Sequence[Row], *names: str) -> Counter[tuple[Any, ...]]:
    """How often each combination of values is there."""
    return Counter(tuple(row[name] for name in names) for row in rows)


# -- what holds ------------------------------------------------------------------------------


def marks(rows: Rows) -> list[Row]:
    return [r for r in rows["throttle_events"] if r["action"] == "mark"]


def paused(rows: Rows) -> Counter[tuple[Any, ...]]:
    """Paused time by broker and topic (ns)."""
    found: Counter[tuple[Any, ...]] = Counter()
    for r in rows["topic_throttle_stats"]:
        time = r["culprit_ns"] + (r["shared_ns"] or 0) + r["collateral_ns"]
        found[r["broker"], r["topic"]] += time
    return found


@pytest.mark.parametrize("traces", JOBS[RATE_LIMITS].traces)
def test_twice_the_rates_throttle_no_other_publish(traces: str) -> None:
    seen: Counter[str] = Counter()

    @drawn(60, LOOKED_FOR)
    @given(JOBS[RATE_LIMITS].traces[traces], st.sampled_from((2, 3, 10)))
    def check(trace: Any, factor: int) -> None:
        strict, loose = both(RATE_LIMITS, trace, RATES, times(factor))
        before, after = (
            counted(
                [r for r in marks(rows) if r["limiter"] in BUCKETS],
                "broker",
                "ts_mono_ns",
                "limiter",
                "limiter_name",
                "cnx_id",
                "producer_id",
                "topic",
            )
            for rows in (strict, loose)
        )
        assert after <= before
        seen["fewer"] += after.total() < before.total()

    check()
    assert seen["fewer"]


def bad(rows: Rows) -> list[Row]:
    return [r for r in rows["producer_id_decisions"] if r["verdict"] != "counted"]


@pytest.mark.parametrize("traces", JOBS[PRODUCER_IDS].traces)
def test_a_higher_bound_throttles_no_other_id_if_permissive(traces: str) -> None:
    seen: Counter[str] = Counter()

    @drawn(100, LOOKED_FOR)
    @given(JOBS[PRODUCER_IDS].traces[traces], st.sampled_from((1.001, 2, 1000)), st.booleans())
    def check(trace: Any, factor: float, added: bool) -> None:
        looser = (lambda v: v + factor if v >= 0 else v) if added else times(factor)
        rows = both(PRODUCER_IDS, trace, IDS, looser, enforcement="permissive")
        before, after = (
            counted(bad(r), "broker", "user", "ts_wall_ms", "producer_id", "row_no") for r in rows
        )
        assert after <= before
        seen["fewer"] += after.total() < before.total()

    check()
    assert seen["fewer"]


@pytest.mark.parametrize("traces", JOBS[PRODUCER_IDS].traces)
def test_a_higher_bound_never_has_rejected_more_ids_if_each_counts_once(traces: str) -> None:
    """With `insert_rejected` an id is new once, whatever its verdict. Which ids are rejected may
    differ; at no time are they more."""
    seen: Counter[str] = Counter()

    @drawn(100, LOOKED_FOR)
    @given(JOBS[PRODUCER_IDS].traces[traces], st.sampled_from((1.001, 2, 1000)))
    def check(trace: Any, factor: float) -> None:
        rows = both(
            PRODUCER_IDS,
            trace,
            IDS,
            times(factor),
            enforcement="strict",
            insert_rejected=True,
            quota_math="token_bucket",
        )
        before, after = (rejected_so_far(one["producer_id_decisions"]) for one in rows)
        assert before.keys() == after.keys()
        assert all(after[place] <= before[place] for place in after)
        seen["fewer"] += after != before

    check()
    assert seen["fewer"]


def rejected_so_far(rows: Sequence[Row]) -> dict[tuple[Any, ...], int]:
    """Rejected ids of a user up to each of its decisions."""
    found, sums = {}, Counter[tuple[str, str]]()
    for r in sorted(rows, key=lambda r: (r["ts_wall_ms"], r["row_no"])):
        user = r["broker"], r["user"]
        sums[user] += r["verdict"] == "rejected"
        found[(*user, r["ts_wall_ms"], r["row_no"])] = sums[user]
    return found


@pytest.mark.parametrize("traces", JOBS[BACKLOG].traces)
@pytest.mark.parametrize("raised", ["both", "time"])
def test_higher_backlog_quotas_are_exceeded_in_no_other_check(traces: str, raised: str) -> None:
    """And refuse no other producer. Evictions are no more by size, and with the time limits alone
    raised no more at all."""
    seen: Counter[str] = Counter()

    @drawn(160, LOOKED_FOR)
    @given(JOBS[BACKLOG].traces[traces], st.sampled_from((1.5, 2, 10)))
    def check(trace: Any, factor: float) -> None:
        keys = SIZE | TIME if raised == "both" else TIME
        rows = both(BACKLOG, trace, keys, lambda v: int(times(factor)(v)), apply_evictions=False)
        for exceeded in ("exceeded_size", "exceeded_time"):
            before, after = (
                counted([r for r in one["backlog_checks"] if r[exceeded]], "topic", "pass_ms")
                for one in rows
            )
            assert after <= before
            seen["fewer"] += after.total() < before.total()
        before, after = (
            counted(one["producer_refusals"], "topic", "ts_wall_ms", "producer_id") for one in rows
        )
        assert after <= before
        types = ("size",) if raised == "both" else ("size", "time")
        strict, loose = (
            [r for r in one["backlog_evictions"] if r["quota_type"] in types and not r["phantom"]]
            for one in rows
        )
        assert len(loose) <= len(strict)
        assert sum(r["entries_skipped"] for r in loose) <= sum(r["entries_skipped"] for r in strict)

    check()
    assert seen["fewer"]


# -- what does not ---------------------------------------------------------------------------


def published(events: Sequence[tuple[float, int]]) -> list[Row]:
    """Publishes of one producer: time (ms) and messages."""
    found = []
    for number, (at_ms, messages) in enumerate(events):
        row = publish(0, number, key="b1", num_messages=messages, source_offset=number)
        found.append(
            {
                **row,
                "ts_mono_ns": row["ts_mono_ns"] + round(at_ms * 1e6),
                "ts_wall_ms": START_MS + int(at_ms),
            }
        )
    return found


def throttled(records: Sequence[Row], documents: Sequence[str], **params: Any) -> dict[str, int]:
    """Marks, pauses and paused time (ns) of topic x."""
    rows = JOBS[RATE_LIMITS].play(
        [records], Sample((), {"stats_window_ms": 1000, **params}, documents, START_MS + 100_000)
    )
    found = marks(rows)
    return {
        "marks": len(found),
        "pauses": sum(r["transition"] == "ConnectionStateChanged" for r in found),
        "paused_ns": paused(rows).total(),
    }


def rate(value: int) -> str:
    return document("topic", "t/ns/x", publishRateInMsgs=value)


def test_a_long_pause_becomes_several_short_ones() -> None:
    """The first batch leaves a debt of 10 under the limit of 10, and the second one comes while it
    is repaid. Under 20 the first pause is over by then."""
    records = published([(0, 20), (500, 20)])
    assert throttled(records, [rate(10)]) == {"marks": 2, "pauses": 1, "paused_ns": 3_100_000_002}
    assert throttled(records, [rate(20)]) == {"marks": 2, "pauses": 2, "paused_ns": 600_000_002}


def test_a_little_more_can_throttle_what_less_does_not() -> None:
    """A bucket refills when more than 16 ms have passed since its last refill. At 100 ms the limit
    of 1000 throttles, and its release refills at 120 ms; at 137 ms it refills again, to 37. Under
    1001 nobody is released: the publish at 122 ms refills, and at 137 ms 15 ms are too few."""
    first = [(100, 1000), (122, 1), (137, 25)]
    twice = published([*first, (137.1, 1)])
    assert [throttled(twice, [rate(r)])["marks"] for r in (1000, 1001)] == [1, 2]
    assert [throttled(twice, [rate(r)])["marks"] for r in (1000, 2000)] == [1, 0]
    longer = published([*first[:-1], (137, 35)])
    assert [throttled(longer, [rate(r)])["paused_ns"] for r in (1000, 1001)] == [
        20_000_002,
        22_977_023,
    ]


def test_a_removed_limit_gives_way_to_that_of_the_next_level() -> None:
    records = published([(0, 7)])
    namespace = document("namespace", "t/ns", publishRateInMsgs=5)
    assert throttled(records, [namespace, rate(10)])["marks"] == 0
    assert throttled(records, [namespace])["marks"] == 1


def test_a_higher_limit_of_pending_requests_can_mark_and_pause_more() -> None:
    """Under 1 the connection stays paused: one request is always pending. Under 2 it is released
    when one is left, and paused again by the next."""
    first, second, third = published([(0, 1), (10, 1), (30, 1)])
    added = record(
        "entry_added",
        20,
        7,
        topic=topic("x"),
        cnx_id="c1",
        ledger_id=1,
        entry_id=1,
        entry_bytes=10,
        source_offset=7,
    )
    found = [
        throttled(
            [first, second, added, third],
            [document("broker", "*", maxPendingPublishRequestsPerConnection=limit)],
        )
        for limit in (1, 2)
    ]
    assert [(one["marks"], one["pauses"]) for one in found] == [(1, 1), (2, 2)]


def rejected(events: Sequence[tuple[int, int]], bound: float, **params: Any) -> list[int]:
    """The ids of rejected batches; each event is a time (ms) and an id."""
    records = [
        batch(at_ms, n, number=pid, source_offset=n) for n, (at_ms, pid) in enumerate(events)
    ]
    rows = JOBS[PRODUCER_IDS].play(
        [records],
        Sample(
            (),
            {
                "membership": "exact",
                "producer.id.quota.window.size.seconds": 1,
                "producer.id.quota.window.num": 2,
                **params,
            },
            [document("user", "a", producer_ids_rate=bound)],
            START_MS + 100_000,
        ),
    )
    return [r["producer_id"] for r in bad(rows) if r["verdict"] == "rejected"]


def test_an_id_that_is_let_in_can_cost_two_rejections_of_another() -> None:
    """Strict quotas charge nothing for a rejected id. Under 0.25 id 3 is rejected, so that the
    balance is back when id 1 comes. Under 0.375 id 3 passes into debt, and id 1 is rejected each
    time that it tries."""
    events = [(500, 2), (2000, 3), (2500, 1), (3499, 1)]
    assert rejected(events, 0.25) == [3]
    assert rejected(events, 0.375) == [1, 1]


def test_with_sampled_rates_a_higher_bound_can_reject_more() -> None:
    events = [
        (501, 7),
        (502, 1),
        (1501, 1),
        (2500, 1),
        (3499, 2),
        (3749, 1),
        (3749, 1),
        (4250, 2),
        (4350, 2),
    ]
    found = [
        len(
            rejected(
                events,
                bound,
                window_mode="L",
                quota_math="sampled_rate",
                **{"producer.id.quota.window.count": 2},
            )
        )
        for bound in (1, 1.5)
    ]
    assert found == [2, 3]


def evicted(records: Sequence[Row], quota: Mapping[str, Any], **params: Any) -> list[Any]:
    """The evictions of topic a: quota and entries, with checks at every minute."""
    rows = JOBS[BACKLOG].play(
        [records],
        Sample(
            (),
            {"backlogQuotaCheckIntervalInSeconds": 60, **params},
            [document("topic", "t/ns/a", backlog_quota=quota)],
            START_MS + 130_000,
        ),
    )
    return [
        (r["quota_type"], r["entries_skipped"])
        for r in rows["backlog_evictions"]
        if not r["phantom"]
    ]


def cursor(at_ms: int, seq: int) -> Row:
    return record(
        "cursor_state",
        at_ms,
        seq,
        topic=topic("a"),
        subscription="s",
        durable=True,
        mark_delete="1:-1",
        source_offset=seq,
    )


def closed(at_ms: int, seq: int, number: int, close_ms: int | None) -> Row:
    """A ledger of 100 entries and 1000 bytes."""
    return ledger(
        at_ms,
        seq,
        number=number,
        ledger_entries=100,
        ledger_bytes=1000,
        source_offset=seq,
        ledger_close_ms=None if close_ms is None else START_MS + close_ms,
    )


EVICTION = "consumer_backlog_eviction"


def test_an_exceeded_size_keeps_the_time_quota_from_acting() -> None:
    """A check acts on one quota only. Down to 0.9 * 2000 bytes 20 of 200 entries are skipped; with
    no size exceeded, the ledger that was closed before the time limit."""
    records = [closed(1, 1, 1, 1), closed(2, 2, 2, None), cursor(3, 3), cursor(70_000, 4)]
    found = [
        evicted(
            records,
            {
                "destination_storage": {"limitSize": size, "policy": EVICTION},
                "message_age": {"limitTime": 30, "policy": EVICTION},
            },
        )
        for size in (2000, 4000)
    ]
    assert found == [[("size", 20)] * 2, [("time", 100)] * 2]


def test_applied_evictions_come_one_by_one_where_the_limit_is_higher() -> None:
    """Ledgers are closed at 1 and 50 s. At 60 s a limit of 2 s skips both, one of 15 s only the
    first: the second one is another eviction at 120 s."""
    records = [
        closed(1000, 1, 1, 1000),
        closed(50_000, 2, 2, 50_000),
        closed(50_001, 3, 3, None),
        cursor(50_002, 4),
    ]
    found = [
        evicted(
            records, {"message_age": {"limitTime": limit, "policy": EVICTION}}, apply_evictions=True
        )
        for limit in (2, 15)
    ]
    assert found == [[("time", 200)], [("time", 100), ("time", 100)]]
