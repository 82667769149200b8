"""Weir's numbers for a span: whole windows, single records at the ends, and their bounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from app.config.settings import Settings
from app.jobs.entry_cache.reconcile import early_reads
from app.read.relations import Warehouse
from app.show.reconcile.counted import weir
from app.show.reconcile.side import WeirSide
from app.show.reconcile.spans import Counted, ReadingSpan, WeirValue, differs, rows_of
from app.show.reconcile.spans import shown as shown_by
from tests.support.throttle_rows import COMMON, OTHER, START_MS, TOPIC, event, window, write
from tests.unit.show.reconcile.scrapes import BROKER, scrape

MINUTE = 60_000
MINE = {"broker": BROKER}
MESSAGES, BYTES = ("messages_in", TOPIC), ("bytes_in", TOPIC)
Ask = Callable[..., WeirValue]


@pytest.fixture
def ask(make_settings: Callable[..., Settings]) -> Ask:
    """Weir's side of a span over tables of rows."""

    def answer(
        span: ReadingSpan,
        keys: dict[str, Any] | None = None,
        source: dict[str, Any] | None = None,
        **tables: Any,
    ) -> WeirValue:
        settings = make_settings(
            reconcile={"brokers": {BROKER: "http://b1:8080"}, **(keys or {})},
            **({} if source is None else {"source": source}),
        )
        read = {
            "cluster": "east",
            **MINE,
            "minute_ms": START_MS - MINUTE,
            "received": 1,
            "quarantined": 0,
        }
        for name, rows in {"coverage_counts": [read], **tables}.items():
            write(settings.warehouse, name, rows)
        return weir(WeirSide(settings, Warehouse.of(settings.location), span))

    return answer


def publish(at_ms: int, **changes: Any) -> dict[str, Any]:
    return {
        "event_type": "publish",
        "cluster": "east",
        **MINE,
        "source_feed": "f",
        "seq": at_ms,
        "ts_wall_ms": START_MS + at_ms,
        "topic": TOPIC,
        "num_messages": 3,
        "entry_bytes": 50,
        "event_date": date(2023, 11, 14),
        **changes,
    }


def test_windows_between_aligned_readings(ask: Ask) -> None:
    found = ask(
        ReadingSpan(scrape(0), scrape(2 * MINUTE)),
        topic_throttle_stats=[window(n, **MINE, messages=10 + n, bytes=1000) for n in range(-1, 4)]
        + [window(0), window(0, **MINE, cluster="west")],
    )
    assert found.counted == {MESSAGES: Counted(10 + 11), BYTES: Counted(2000)}


def test_records_at_the_two_ends_are_counted_one_by_one(ask: Ask) -> None:
    """Readings at 10 s and 130 s: the first window without its first 10 s, the second one, and 10 s
    of the third, which the table does not have yet."""
    records = [
        publish(2000),  # before the first reading
        publish(9_900),
        publish(10_100),  # within its request
        publish(59_000),  # in the window
        publish(121_000),
        publish(121_000),  # the same record, archived twice
        publish(121_000, seq=7, num_messages=None, partition=None, topic=OTHER),
        publish(129_950),
        publish(130_050),  # within the second request
        publish(122_000, event_type="entry_added"),
        publish(122_000, broker="b2"),
    ]
    found = ask(
        ReadingSpan(scrape(10_000, took_ms=400), scrape(130_000, took_ms=400)),
        events=records,
        topic_throttle_stats=[
            window(0, **MINE, messages=100, bytes=1000),
            window(1, **MINE, messages=10, bytes=100),
        ],
    )
    assert found.counted == {
        # 110 - 2 * 3 + 2 * 3; of each request two records are in doubt.
        MESSAGES: Counted(110, 12),
        BYTES: Counted(1100, 200),
        ("messages_in", OTHER): Counted(1),
        ("bytes_in", OTHER): Counted(50),
    }
    assert found.reached == {"rate_limits"}


def test_a_digest_over_an_edge_is_in_doubt(ask: Ask) -> None:
    """Readings at 10 s and 20 s: which publishes of the third one came before the second reading is
    not known."""
    digest = {"event_type": "publish_digest", "publishes": 2}
    begun = "digest_from_wall_ms"
    found = ask(
        ReadingSpan(scrape(10_000), scrape(20_000)),
        topic_throttle_stats=[window(0, **MINE)],
        events=[
            publish(9_999, **digest, **{begun: START_MS + 9_000}),
            publish(15_999, **digest, **{begun: START_MS + 15_000}),
            publish(20_999, **digest, **{begun: START_MS + 19_999}),
        ],
    )
    assert found.counted == {MESSAGES: Counted(3, 3), BYTES: Counted(50, 50)}


def test_a_span_within_one_window(ask: Ask) -> None:
    found = ask(
        ReadingSpan(scrape(10_000), scrape(20_000)),
        topic_throttle_stats=[window(0, **MINE)],
        events=[publish(9_000), publish(15_000), publish(21_000)],
    )
    assert found.counted == {MESSAGES: Counted(3), BYTES: Counted(50)}


def test_the_partition_of_a_record_is_part_of_its_topic(ask: Ask) -> None:
    found = ask(
        ReadingSpan(scrape(0), scrape(5_000)),
        events=[
            publish(1000, topic="acme/orders/created", partition=3),
            publish(2000, topic=f"{TOPIC}-partition-3", partition=3),
        ],
    )
    assert found.counted["messages_in", f"{TOPIC}-partition-3"] == Counted(6)


def test_pauses_count_for_every_topic_on_the_connection(ask: Ask) -> None:
    """The broker's number is that since its last update, up to a period (20 s here) ago."""
    joined = {"transition": "TypeStateChanged"}
    found = ask(
        ReadingSpan(scrape(0), scrape(MINUTE)),
        {"stats_period_ms": 20_000},
        throttle_events=[
            event(39_700, "mark", **MINE),  # in the period before
            event(39_900, "mark", **MINE),  # so near that it may be in this one
            event(45_000, "mark", **MINE),
            event(46_000, "unmark", **MINE),
            event(50_000, "mark", **MINE, collateral_topics=[]),
            event(50_500, "mark", **MINE, **joined, collateral_topics=[]),
            event(51_000, "mark", **MINE, transition="Dropped"),
            event(60_150, "mark", **MINE),
            event(60_300, "mark", **MINE),
            event(50_000, "mark"),
        ],
    )
    assert found.counted == {
        ("publish_limited_times", TOPIC): Counted(0, 0, 5),
        ("publish_limited_times", OTHER): Counted(0, 0, 3),
    }


def cached(minute: int, **changes: Any) -> dict[str, Any]:
    """A minute of a broker's cache with 60 of everything."""
    return {
        **COMMON,
        **MINE,
        "job": "entry_cache",
        "policy": "expected_reads",
        "max_bytes": None,
        "window_start_ms": START_MS + minute * MINUTE,
        "window_ms": MINUTE,
        "topic": None,
        "hits": 60,
        "misses": 60,
        "inserted": 60,
        "evicted_time": 30,
        "evicted_size": 20,
        "invalidated": 10,
        "entries": minute,
        "used_bytes": 100 * minute,
        "max_used_bytes": 1000,
        **changes,
    }


def test_windows_of_the_cache_are_shared_by_time(ask: Ask) -> None:
    """Readings at 15 s and 130 s: 45, 60 and 10 of three windows; 45 of the first and 50 of the
    third may be wrong."""
    found = ask(
        ReadingSpan(scrape(15_000), scrape(130_000)),
        cache_stats=[
            *(cached(n) for n in range(5)),
            cached(1, topic=TOPIC),
            cached(1, policy="lru"),
        ],
    )
    for name in ("cache_inserted", "cache_evicted", "cache_misses", "cache_hits"):
        assert found.counted[name, None] == Counted(45 + 60 + 10, 45 + 50)
    # Between the ends of the second and the third window, with what came and went meanwhile.
    assert found.counted["cache_entries", None] == Counted(0, 0, 2 + 60)
    assert found.counted["cache_used_bytes", None] == Counted(0, 0, 1000)
    assert "entry_cache" in found.reached


@pytest.mark.parametrize(
    ("windows", "entries", "used"),
    [
        ([(1, 0), (2, 0)], (1, 62), (100, 1000)),
        ([(9, 0), (5, 3)], (2, 69), (200, 1000)),
        ([(9, 0), (5, 5)], (0, 69), (0, 1000)),
        ([(9, 0)], (0, 9), (0, 900)),
        ([None, (2, 0)], (0, 62), (0, 1000)),
        ([None, None, (3, 0)], (0, 0), (0, 0)),
    ],
)
def test_the_level_of_a_cache_in_its_window(
    ask: Ask, windows: list[tuple[int, int] | None], entries: tuple[int, int], used: tuple[int, int]
) -> None:
    """A window without a row is one of an empty cache."""
    rows = [
        cached(
            n,
            entries=one[0],
            used_bytes=100 * one[0],
            evicted_time=one[1],
            evicted_size=0,
            invalidated=0,
        )
        for n, one in enumerate(windows, 1)
        if one is not None
    ]
    found = ask(ReadingSpan(scrape(15_000), scrape(130_000)), cache_stats=rows).counted
    for name, (least, most) in (("entries", entries), ("used_bytes", used)):
        assert found[f"cache_{name}", None] == Counted(least, 0, most)


CHUNKED = [{**COMMON, **MINE, "job": "chunks", "topic": topic} for topic in (TOPIC, OTHER)]


@pytest.mark.parametrize(
    ("waiting", "shown", "apart"),
    [
        (3, {"cache_entries": 62 + 3, "cache_used_bytes": 1000 + 900}, []),
        (3, {"cache_entries": 62, "cache_used_bytes": 100}, []),
        (3, {"cache_entries": 62 + 4, "cache_used_bytes": 1000 + 901}, [1, 1]),
        (3, {"cache_entries": 0, "cache_used_bytes": 99}, [-1, -1]),
        # it went on
        (0, {"cache_entries": 62 + 1, "cache_used_bytes": 1000 + 1}, [1, 1]),
        (0, {"cache_entries": 62, "cache_used_bytes": 1000}, []),
    ],
)
def test_what_is_read_again_and_again_is_told_by_topic_and_hides_nothing_else(
    ask: Ask, waiting: int, shown: dict[str, float], apart: list[int]
) -> None:
    """The broker keeps the chunk that a dispatcher puts back; large as it is, neither the backlog of
    another topic explains anything, nor what waits for a consumer of ordinary messages."""
    topics = {
        TOPIC: {"in_replay": float(waiting), "backlog_bytes": 900.0},
        OTHER: {"in_replay": 0.0, "backlog_bytes": 1e9},
        "persistent://acme/orders/by-key": {"in_replay": 199.0, "backlog_bytes": 1e9},
    }
    of = ReadingSpan(scrape(15_000), scrape(130_000, topics, shown))
    windows = [cached(n, evicted_time=0, evicted_size=0, invalidated=0) for n in (1, 2)]
    side = ask(of, cache_stats=windows, chunk_topic_stats=CHUNKED)
    rows = rows_of(of, shown_by(of, lambda topic: True), side)
    cache = [row for row in rows if row["measure"] in shown]
    named = [(row["topic"], row["broker_value"]) for row in cache if row["topic"]]
    assert named == ([(TOPIC, 3), (TOPIC, 900)] if waiting else [])
    assert {row["reason"] for row in cache if row["topic"]} <= {"READ_AGAIN"}
    assert [row["difference"] for row in cache if differs(row)] == apart


def test_a_silent_broker_keeps_what_is_read_again_and_again(ask: Ask) -> None:
    """Without a window, and with a backlog that is larger than what waits. Once it waits no more, the
    cache still has it for a moment; then it is no explanation any more."""
    waits, on, later = (
        scrape(at * MINUTE, {TOPIC: {"in_replay": n, "backlog_bytes": size}})
        for at, n, size in ((1, 2.0, 1e9), (2, 0.0, 0.0), (3, 0.0, 0.0))
    )
    size = 2 * ((5 << 20) + (10 << 10))
    kept = {
        ("cache_entries", None): Counted(0, 0, 2),
        ("cache_used_bytes", None): Counted(0, 0, size),
        ("cache_entries", TOPIC): Counted(2),
        ("cache_used_bytes", TOPIC): Counted(size),
    }
    found = ask(ReadingSpan(scrape(0), waits), chunk_topic_stats=CHUNKED).counted
    assert found == {("cache_evicted", None): Counted(0, 0, 0), **kept}
    found = ask(ReadingSpan(waits, on)).counted
    assert found == {("cache_evicted", None): Counted(0, 0, 2), **kept}
    assert ask(ReadingSpan(on, later)).counted == {}


def test_the_window_of_the_second_reading_must_be_there(ask: Ask) -> None:
    found = ask(ReadingSpan(scrape(15_000), scrape(130_000)), cache_stats=[cached(0), cached(1)])
    assert "entry_cache" not in found.reached
    assert found.counted["cache_entries", None] == Counted(0, 0, 1)


def test_entries_that_are_delivered_before_they_are_there(
    make_settings: Callable[..., Settings],
) -> None:
    def record(kind: str, entry: int, mono_ns: int, **changes: Any) -> dict[str, Any]:
        return publish(
            1000,
            event_type=kind,
            ledger_id=7,
            entry_id=entry,
            ts_mono_ns=mono_ns,
            seq=mono_ns,
            **changes,
        )

    settings = make_settings()
    write(
        settings.warehouse,
        "events",
        [
            record("dispatch", 1, 10),
            record("dispatch", 1, 11),
            record("entry_added", 1, 12),
            record("entry_added", 2, 20),
            record("dispatch", 2, 21),
            record("dispatch", 3, 30),  # from storage: it was there
            record("dispatch", 2, 5, topic=OTHER),
        ],
    )
    span = ReadingSpan(scrape(0), scrape(MINUTE))
    assert early_reads(WeirSide(settings, Warehouse.of(settings.location), span)) == 1


def check(at_ms: int, size: int, topic: str = TOPIC) -> dict[str, Any]:
    return {
        **COMMON,
        **MINE,
        "job": "backlog",
        "topic": topic,
        "ts_wall_ms": START_MS + at_ms,
        "pass_ms": START_MS + at_ms,
        "backlog_bytes": size,
    }


def test_a_backlog_is_between_the_checks_before_and_after(ask: Ask) -> None:
    checks = [
        check(0, 10),
        check(30_000, 20),
        check(90_000, 50),
        check(160_000, 90),
        check(90_000, 7, OTHER),
        # silent topics, whose checks are behind: one with a backlog, one without at last
        check(5_000, 9, "behind"),
        check(5_000, 9, "read"),
        check(10_000, 0, "read"),
    ]
    backlogs = [
        {**check(at, 0), "subscription": name, "backlog_entries": n}
        for at, name, n in ((30_000, "a", 1), (30_000, "b", 2), (90_000, "a", 5))
    ]
    # The broker counts neither replicators nor deduplication among the subscriptions.
    backlogs += [
        {**backlogs[0], "subscription": kind, "kind": kind, "backlog_entries": 1000}
        for kind in ("replicator", "deduplication")
    ]
    found = ask(
        ReadingSpan(scrape(0), scrape(MINUTE)),
        backlog_checks=checks,
        backlog_subscriptions=backlogs,
    )
    assert found.counted == {
        ("backlog_bytes", TOPIC): Counted(20, 0, 50),
        ("backlog_bytes", OTHER): Counted(0, 0, 7),  # it had no backlog at the first one
        ("backlog_bytes", "behind"): Counted(0, 0, 9),
        ("backlog_bytes", "read"): Counted(0, 0, 0),
        ("backlog_entries", TOPIC): Counted(3, 0, 5),
    }
    assert "backlog" in found.reached and found.blind == {}


POLLED = {
    "format": "pulsar_admin",
    "admin": {"cluster": "mine", "url": "http://b1:8080", "namespaces": ["acme/orders"]},
}


def polled_from(begin_ms: int, end_ms: int) -> dict[str, Any]:
    """A poll that has ended."""
    of = {"cluster": "mine", "source_feed": "pulsar_admin", "seq": end_ms}
    times = {"gap_from_wall_ms": START_MS + begin_ms, "ts_wall_ms": START_MS + end_ms}
    return {**of, **times}


@pytest.mark.parametrize(
    ("polls", "expected", "reached"),
    [
        # that at 65 s knows what the poll before it had read
        ([(53_000, 58_000), (58_001, 62_000), (62_001, 66_000)], (2, 9000), True),
        # those at 65 and 70 s have nothing of the time after the reading
        ([(53_000, 58_000), (58_001, 71_000), (71_001, 86_000)], (1, 9000), True),
        ([(53_000, 58_000), (58_001, 62_000)], (9000, 9000), False),
    ],
)
def test_a_check_knows_what_was_polled_before_it(
    ask: Ask, polls: list[tuple[int, int]], expected: tuple[int, int], reached: bool
) -> None:
    """The backlog was read to its end before the reading, and the checks behind it do not know yet."""
    sizes = {55_000: 9000, 60_000: 9000, 65_000: 9000, 70_000: 2, 90_000: 1, 170_000: 1}
    found = ask(
        ReadingSpan(scrape(0), scrape(MINUTE, took_ms=200)),
        source=POLLED,
        backlog_checks=[{**check(at, n), "cluster": "mine"} for at, n in sizes.items()],
        coverage_polls=[polled_from(*poll) for poll in polls],
    )
    least, most = expected
    assert found.counted["backlog_bytes", TOPIC] == Counted(least, 0, most)
    assert ("backlog" in found.reached) is reached


@pytest.mark.parametrize(("check_ms", "least"), [(60_900, 9), (61_100, 1)])
def test_a_plug_in_looks_at_cursors_once_in_a_while(ask: Ask, check_ms: int, least: int) -> None:
    checks = [check(59_000, 9), check(check_ms, 9 if check_ms < 61_000 else 1), check(170_000, 9)]
    found = ask(ReadingSpan(scrape(0), scrape(MINUTE)), backlog_checks=checks)
    assert found.counted["backlog_bytes", TOPIC] == Counted(least, 0, 9)


def test_beside_polls_the_brokers_own_counts_are_what_may_come_and_go(ask: Ask) -> None:
    """Polls have no publishes, and name the cluster as they are told to."""
    ends = [
        scrape(at, {TOPIC: {"messages_in": n, "bytes_in": 10.0 * n, "subscriptions": 2.0}})
        for at, n in ((0, 100.0), (MINUTE, 130.0))
    ]
    checks = [{**check(at, 500), "cluster": "mine"} for at in (30_000, 90_000, 160_000)]
    polls = [polled_from(at - 9000, at) for at in (29_000, 61_000, 89_000)]
    found = ask(ReadingSpan(*ends), source=POLLED, backlog_checks=checks, coverage_polls=polls)
    assert found.counted["backlog_bytes", TOPIC] == Counted(200, 0, 800)
    assert found.counted["backlog_entries", TOPIC] == Counted(0, 0, 60)
    assert "backlog" in found.reached


def test_what_is_published_between_two_checks_may_come_and_go(ask: Ask) -> None:
    """Of the windows from 30 s to 90 s 30 messages and 300 bytes; two subscriptions have them."""
    end = scrape(MINUTE, {TOPIC: {"subscriptions": 2.0}, OTHER: {}})
    found = ask(
        ReadingSpan(scrape(0), end),
        backlog_checks=[check(30_000, 1000), check(90_000, 1200)],
        topic_throttle_stats=[
            window(0, **MINE, messages=10, bytes=100),
            window(1, **MINE, messages=20, bytes=200),
            window(2, **MINE),
            window(0, **MINE, topic=OTHER, messages=5, bytes=50),
        ],
    )
    assert found.counted["backlog_bytes", TOPIC] == Counted(700, 0, 1500)
    assert found.counted["backlog_bytes", OTHER] == Counted(0, 0, 50)
    assert found.counted["backlog_entries", TOPIC] == Counted(0, 0, 60)
    assert found.counted["backlog_entries", OTHER] == Counted(0, 0, 5)


@pytest.mark.parametrize(("newest_ms", "reached"), [(159_999, False), (160_000, True)])
def test_checks_of_idle_topics_come_later(ask: Ask, newest_ms: int, reached: bool) -> None:
    """A window and the advance after the first check behind the span."""
    checks = [check(30_000, 20), check(30_000, 7, OTHER), check(90_000, 20), check(newest_ms, 20)]
    found = ask(ReadingSpan(scrape(0), scrape(MINUTE)), backlog_checks=checks)
    assert ("backlog" in found.reached) is reached


@pytest.mark.parametrize(
    ("newest_ms", "reason"),
    [
        (MINUTE + 70_000, "NO_CHECK"),
        (MINUTE + 69_999, "NOT_REACHED"),
    ],
)
def test_without_checks_around_it_a_backlog_is_not_compared(
    ask: Ask, newest_ms: int, reason: str
) -> None:
    found = ask(ReadingSpan(scrape(0), scrape(MINUTE)), events=[publish(newest_ms)])
    assert found.blind == {"backlog": reason}


def gap(from_ms: int | None, end_ms: int, until_ms: int, job: str) -> dict[str, Any]:
    return {
        "cluster": "east",
        **MINE,
        "source_feed": "f",
        "seq": 1,
        "ts_wall_ms": START_MS + end_ms,
        "blind_until_ms": START_MS + until_ms,
        "job": job,
        "gap_from_wall_ms": None if from_ms is None else START_MS + from_ms,
    }


@pytest.mark.parametrize(
    ("row", "blind"),
    [
        (gap(10_000, 20_000, 30_000, "rate_limits"), True),
        (gap(-20_000, -10_000, 1, "rate_limits"), True),  # blind into the span
        (gap(-20_000, -10_000, 0, "rate_limits"), False),  # sees again when it begins
        (gap(None, 10_000, 20_000, "rate_limits"), True),  # since ever
        (gap(MINUTE, 70_000, 80_000, "rate_limits"), False),  # behind it
        (gap(10_000, 20_000, 30_000, "chunks"), False),
    ],
)
def test_a_job_that_is_blind_in_the_span(ask: Ask, row: dict[str, Any], blind: bool) -> None:
    found = ask(ReadingSpan(scrape(0), scrape(MINUTE)), coverage_gaps=[row]).blind
    assert (found.get("rate_limits") == "GAP") is blind


@pytest.mark.parametrize(("first_ms", "began"), [(500, True), (-1, False)])
def test_a_feed_that_began_in_mid_minute(ask: Ask, first_ms: int, began: bool) -> None:
    read = {
        "cluster": "east",
        **MINE,
        "received": 1,
        "quarantined": 0,
        "minute_ms": START_MS if first_ms >= 0 else START_MS - MINUTE,
    }
    found = ask(
        ReadingSpan(scrape(0), scrape(MINUTE)),
        coverage_counts=[read],
        events=[publish(first_ms), publish(5000)],
    ).blind
    assert (set(found.values()) == {"FEED_BEGAN"}) is began


@pytest.mark.parametrize(
    ("sampled", "blind"),
    [
        ("none", set()),
        ("topic", {"entry_cache"}),
        ("connection", {"entry_cache", "rate_limits"}),
    ],
)
def test_a_sampled_feed(ask: Ask, sampled: str, blind: set[str]) -> None:
    found = ask(ReadingSpan(scrape(0), scrape(MINUTE)), {"sampled_by": sampled}).blind
    assert {job for job, reason in found.items() if reason == "SAMPLED"} == blind


def test_a_topic_that_was_unloaded_in_the_span(ask: Ask) -> None:
    left = {"event_type": "entry_invalidated", "ledger_id": 1}
    found = ask(
        ReadingSpan(scrape(0), scrape(MINUTE)),
        events=[
            publish(1000, **left),
            publish(-1000, topic=OTHER, **left),
        ],
    )
    assert found.reloaded == {TOPIC}


@pytest.mark.parametrize(
    ("rows", "reached"),
    [
        ({"topic_throttle_stats": [window(0, **MINE)], "events": [publish(MINUTE)]}, True),
        ({"topic_throttle_stats": [window(-1, **MINE)], "events": [publish(MINUTE)]}, False),
        ({"topic_throttle_stats": [window(0, **MINE)], "events": [publish(59_999)]}, False),
        ({"events": [publish(MINUTE + 70_000)]}, True),  # a window and the advance later
        ({"events": [publish(MINUTE + 69_999)]}, False),
    ],
)
def test_how_far_the_job_must_be(ask: Ask, rows: dict[str, Any], reached: bool) -> None:
    found = ask(ReadingSpan(scrape(0), scrape(MINUTE)), **rows)
    assert ("rate_limits" in found.reached) is reached
