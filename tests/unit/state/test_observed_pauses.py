"""Reported pauses correct those of the model: by hand, for the core and the reference."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import drawn
from tests.unit.state.contract.jobs import JOBS, MS, Rows, Sample, document
from tests.unit.state.shipping import Row, params_of
from tests.unit.state.trace import START_MS, START_NS, publish, record

A, B, C = (f"persistent://t/ns/{name}" for name in "abc")
TEN = document("topic", "t/ns/a", publishRateInMsgs=10)
S = 1000 * MS
JOB = JOBS["rate_limits"]


def opened(cnx: str = "c1", reports: bool | None = True, **columns: Any) -> Row:
    return record("connection_opened", 0, cnx_id=cnx, reports_pauses=reports, **columns)


def paused(at_ns: int, cnx: str = "c1") -> Row:
    return record("reads_paused", at_ns, cnx_id=cnx)


def resumed(at_ns: int, cnx: str = "c1") -> Row:
    return record("reads_resumed", at_ns, cnx_id=cnx)


def numbered(records: list[Row]) -> list[Row]:
    return [{"source_offset": 0, **r, "seq": seq} for seq, r in enumerate(records)]


def judged(
    runner: str, records: list[Row], *policies: str, until_ms: int = 3_600_000, **params: Any
) -> Rows:
    """Rows by table, an hour after the start."""
    read = JOB.read(numbered(records))
    by = Sample(
        read,
        params_of("rate_limits", **{"stats_window_ms": 10_000, **params}),
        policies,
        START_MS + until_ms,
    )
    if runner == "reference":
        return JOB.in_order(JOB.judge(by))
    return JOB.play([[r] for r in read] if runner == "core in pieces" else [read], by)


def events(rows: Rows, *names: str) -> list[tuple[Any, ...]]:
    """Times in ms after the start, and columns."""
    found = rows["throttle_events"]
    return [((r["ts_mono_ns"] - START_NS) // MS, *(r[name] for name in names)) for r in found]


def counted(rows: Rows, table: str, key: str, *names: str) -> dict[str, tuple[Any, ...]]:
    """Sums over the windows."""
    found: dict[str, tuple[Any, ...]] = {}
    for r in rows[table]:
        before = found.get(r[key], (0,) * len(names))
        found[r[key]] = tuple(b + r[name] for b, name in zip(before, names, strict=True))
    return found


WHAT = ("action", "rule", "reads_paused", "pause_observed_ns")


def test_a_pause_lasts_from_its_report_to_the_reported_end(runner: str) -> None:
    """20 of 10 a second leave -10: the model alone would pause from 0 to 1.1 s."""
    rows = judged(
        runner, [opened(), publish(0, A, messages=20), paused(3 * MS), resumed(500 * MS)], TEN
    )
    assert events(rows, *WHAT) == [
        (0, "mark", "bucket_empty", False, None),
        (3, "pause", "mark_observed", True, None),
        (500, "unmark", "observed_resume", False, 497 * MS),
    ]
    assert counted(
        rows, "topic_throttle_stats", "topic", "limited_times", "culprit_times", "culprit_ns"
    ) == {A: (1, 1, 497 * MS)}
    assert counted(rows, "limiter_stats", "limiter", "observed_pauses", "predicted_pauses")[
        "topic"
    ] == (1, 1)


def test_at_a_reported_end_the_limiter_has_what_a_release_waits_for(runner: str) -> None:
    """Of 10 a second the target is one token: the next message takes it."""
    rows = judged(
        runner,
        [
            opened(),
            publish(0, A, messages=20),
            paused(0),
            resumed(500 * MS),
            publish(501 * MS, A),
            paused(501 * MS),
            resumed(600 * MS),
        ],
        TEN,
    )
    assert [
        (at, balance)
        for at, action, balance in events(rows, "action", "balance_msgs")
        if action != "pause"
    ] == [(0, -10), (500, 1), (501, 0), (600, 1)]


def test_a_pause_without_a_mark_is_that_of_the_nearest_limiter(runner: str) -> None:
    """a has 9 of 10 left, b 30 of 100; c has no limit."""
    rows = judged(
        runner,
        [
            opened(),
            publish(0, A),
            publish(0, B, producer=2, messages=70),
            publish(0, C, producer=3),
            paused(1 * MS),
            resumed(200 * MS),
        ],
        TEN,
        document("topic", "t/ns/b", publishRateInMsgs=100),
    )
    assert events(rows, "action", "rule", "culprit_topic", "balance_msgs", "reads_paused") == [
        (1, "mark", "observed_pause", B, 0, True),
        (200, "unmark", "observed_resume", B, 20, False),
    ]
    assert counted(
        rows,
        "topic_throttle_stats",
        "topic",
        "culprit_times",
        "collateral_times",
        "culprit_ns",
        "collateral_ns",
    ) == {A: (0, 1, 0, 199 * MS), B: (1, 0, 199 * MS, 0), C: (0, 1, 0, 199 * MS)}
    assert counted(
        rows, "limiter_stats", "limiter_name", "observed_pauses", "predicted_pauses", "throttles"
    )[B] == (1, 0, 1)


def test_levels_are_compared_with_balances_by_the_share_that_is_left(runner: str) -> None:
    """3 of 4 requests are in flight, so a quarter is left; 7 of 10 tokens are."""
    rows = judged(
        runner,
        [opened(), *(publish(0, A) for _ in range(3)), paused(MS), resumed(9 * MS)],
        TEN,
        document("broker", "*", maxPendingPublishRequestsPerConnection=4),
    )
    assert events(rows, "action", "rule", "limiter", "limiter_name", "trigger_topic") == [
        (1, "mark", "observed_pause", "connection", "c1", A),
        (9, "unmark", "observed_resume", "connection", "c1", A),
    ]


def test_only_what_was_charged_since_the_last_resume_can_be_the_reason(runner: str) -> None:
    off = document("broker", "*", maxPendingPublishRequestsPerConnection=0)
    rows = judged(
        runner,
        [
            opened(),
            publish(0, A, messages=9),
            paused(MS),
            resumed(2 * MS),
            publish(3 * MS, C, producer=3),
            paused(4 * MS),
            resumed(9 * MS),
        ],
        TEN,
        off,
    )
    assert events(
        rows, "action", "throttle_type", "reason", "limiter", "culprit_topic", "limiter_name"
    )[2:] == [
        (4, "mark", "Unknown", "UNMAPPED", "unknown", None, None),
        (9, "unmark", "Unknown", "UNMAPPED", "unknown", None, None),
    ]
    sums = counted(
        rows,
        "topic_throttle_stats",
        "topic",
        "limited_times",
        "culprit_times",
        "shared_times",
        "collateral_times",
    )
    assert sums == {A: (2, 1, 1, 0), C: (1, 0, 1, 0)}


def test_a_mark_without_a_report_ends_after_its_wait(runner: str) -> None:
    """The model would end it after 110 ms; a report may come for 1000 ms, the limit included."""
    rows = judged(runner, [opened(), publish(0, A, messages=10)], TEN)
    assert events(rows, *WHAT) == [
        (0, "mark", "bucket_empty", False, None),
        (1000, "unmark", "not_observed", False, None),
    ]
    assert rows["throttle_events"][1]["ts_mono_ns"] == START_NS + 1000 * MS + 1
    late = judged(
        runner, [opened(), publish(0, A, messages=10), paused(1000 * MS)], TEN, until_ms=1002
    )
    assert events(late, *WHAT)[1] == (1000, "pause", "mark_observed", True, None)


def test_a_mark_whose_model_end_is_later_waits_for_it(runner: str) -> None:
    """-20 of 10 a second need 2.1 s to the target of one token."""
    rows = judged(runner, [opened(), publish(0, A, messages=30)], TEN)
    assert events(rows, "action", "rule") == [
        (0, "mark", "bucket_empty"),
        (2100, "unmark", "not_observed"),
    ]
    assert counted(rows, "topic_throttle_stats", "topic", "limited_times", "culprit_ns") == {
        A: (0, 0)
    }


def test_a_flag_without_a_report_ends_after_its_wait(runner: str) -> None:
    limit = document("broker", "*", maxPendingPublishRequestsPerConnection=2)
    rows = judged(
        runner,
        [
            opened(),
            publish(0, A),
            publish(0, A),
            record(
                "entry_added", 5 * MS, topic=A, cnx_id="c1", ledger_id=1, entry_id=1, entry_bytes=1
            ),
        ],
        limit,
    )
    assert events(rows, "action", "rule", "limiter", "reads_paused") == [
        (0, "mark", "in_flight_limit", "connection", False),
        (1000, "unmark", "not_observed", "connection", False),
    ]


def test_producers_of_other_connections_stay_with_the_timer(runner: str) -> None:
    rows = judged(
        runner,
        [
            opened(),
            opened("c2", None),
            publish(0, A, messages=20),
            publish(MS, A, cnx="c2"),
            paused(2 * MS),
            resumed(300 * MS),
        ],
        TEN,
    )
    assert events(rows, "cnx_id", "action", "rule", "waiting") == [
        (0, "c1", "mark", "bucket_empty", 1),
        (1, "c2", "mark", "bucket_empty", 2),
        (2, "c1", "pause", "mark_observed", 2),
        (300, "c1", "unmark", "observed_resume", 1),
        (1100, "c2", "unmark", "released", 0),
    ]


def test_all_limits_that_were_marked_begin_a_pause_and_the_first_one_counts(runner: str) -> None:
    rows = judged(
        runner,
        [
            opened(),
            publish(0, B, producer=2, messages=5),
            publish(MS, A, messages=10),
            publish(MS, A),
            paused(2 * MS),
            resumed(52 * MS),
        ],
        TEN,
        document("topic", "t/ns/b", publishRateInMsgs=5),
    )
    assert events(rows, "action", "culprit_topic", "transition")[3:5] == [
        (2, "pause", B, "ConnectionStateChanged"),
        (2, "pause", A, "TypeStateChanged"),
    ]
    assert counted(
        rows,
        "topic_throttle_stats",
        "topic",
        "limited_times",
        "culprit_times",
        "collateral_times",
        "culprit_ns",
    ) == {A: (1, 0, 1, 50 * MS), B: (1, 1, 0, 50 * MS)}


def test_a_connection_is_observed_from_its_first_report_on(runner: str) -> None:
    """The first pause begins with the model's mark, the second with the report."""
    rows = judged(
        runner,
        [
            opened(reports=None),
            publish(0, A, messages=20),
            paused(5 * MS),
            resumed(200 * MS),
            publish(300 * MS, A, messages=9),
            paused(301 * MS),
            resumed(400 * MS),
        ],
        TEN,
    )
    assert events(rows, *WHAT) == [
        (0, "mark", "bucket_empty", True, None),
        (200, "unmark", "observed_resume", False, 195 * MS),
        (300, "mark", "bucket_empty", False, None),
        (301, "pause", "mark_observed", True, None),
        (400, "unmark", "observed_resume", False, 99 * MS),
    ]


def test_a_gap_ends_observation(runner: str) -> None:
    rows = judged(
        runner,
        [
            opened(),
            publish(0, A, messages=20),
            paused(MS),
            record("gap", 50 * MS, dropped=1),
            publish(100 * MS, A, messages=20),
        ],
        TEN,
    )
    assert events(rows, "action", "rule", "reads_paused")[2:] == [
        (50, "unmark", "gap", False),
        (100, "mark", "bucket_empty", True),
        (1200, "unmark", "released", False),
    ]


def test_a_closed_connection_takes_its_pause_with_it(runner: str) -> None:
    rows = judged(
        runner,
        [
            opened(),
            publish(0, A, messages=20),
            paused(MS),
            record("connection_closed", 31 * MS, cnx_id="c1"),
        ],
        TEN,
    )
    assert events(rows, *WHAT)[-1] == (31, "unmark", "connection_closed", False, 30 * MS)


def test_what_ifs_ignore_reports(runner: str) -> None:
    """Of other limits, and of a protocol that no broker has."""
    records = [opened(), publish(0, A, messages=20), paused(3 * MS), resumed(500 * MS)]
    for params in ({"observed_pauses": "ignore"}, {"protocol": "pip385"}):
        rows = judged(runner, records, TEN, **params)
        assert events(rows, "action", "rule", "reads_paused", "pause_observed_ns") == [
            (0, "mark", "bucket_empty", True, None),
            (1100, "unmark", "released", False, 497 * MS),
        ]
        assert counted(rows, "limiter_stats", "limiter", "observed_pauses")["topic"] == (0,)


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from((1, 1, 1, 3, 12)), st.sampled_from((A, B))),
        min_size=3,
        max_size=25,
    )
)
@drawn(40)
def test_reports_of_the_pauses_of_the_model_change_no_decision(
    publishes: list[tuple[int, int, str]],
) -> None:
    """Reported at the very times at which the model begins and ends them."""
    limits = (TEN, document("topic", "t/ns/b", publishRateInMsgs=20))
    at, records = 0, [opened(reports=None)]
    for step, messages, topic in publishes:
        at += step * MS
        records.append(publish(at, topic, producer=1 if topic == A else 2, messages=messages))
    alone = judged("core", records, *limits)
    reports = [
        (
            record(
                "reads_paused" if r["reads_paused"] else "reads_resumed",
                r["ts_mono_ns"] - START_NS,
                cnx_id="c1",
            )
        )
        for r in alone["throttle_events"]
        if r["transition"] == "ConnectionStateChanged"
    ]
    observed = judged(
        "core",
        [
            opened(),
            *sorted(
                [*records[1:], *reports],
                key=lambda r: (r["ts_mono_ns"], r["event_type"] != "publish"),
            ),
        ],
        *limits,
    )
    same = ("ts_mono_ns", "action", "topic", "balance_msgs", "pause_model_ns", "waiting")
    for rows in (alone, observed):
        rows["kept"] = [
            tuple(r[name] for name in same)
            for r in rows["throttle_events"]
            if r["action"] != "pause"
        ]
    assert observed["kept"] == alone["kept"]
    names = ("limited_times", "culprit_times", "collateral_times", "culprit_ns", "collateral_ns")
    assert counted(observed, "topic_throttle_stats", "topic", *names) == counted(
        alone, "topic_throttle_stats", "topic", *names
    )
    for was, now in zip(alone["limiter_stats"], observed["limiter_stats"], strict=True):
        changes = {name for name in was if was[name] != now[name]}
        # the wall clock of a report has no ns, so that the end of a window may move
        assert changes <= {"observed_pauses", "predicted_pauses", "ts_mono_ns"}
        assert now["observed_pauses"] == now["predicted_pauses"]


# -- digests ---------------------------------------------------------------------------------


def digest(
    at_ns: int, topic: str, cnx: str = "c1", messages: int = 1, size: int = 1, **columns: Any
) -> Row:
    """The publishes of one producer of a topic up to a time, in one record."""
    summed = {"publishes": messages, "num_messages": messages, "entry_bytes": size}
    more = {"topic": topic, "cnx_id": cnx, "producer_id": 1, "producer_name": "p1"}
    return record("publish_digest", at_ns, **{**more, **summed, **columns})


def test_a_digest_throttles_nobody(runner: str) -> None:
    """A hundred messages under a limit of ten: when they came within the second is not known."""
    rows = judged(
        runner, [opened(), digest(1 * S, A, messages=100, size=900)], TEN, until_ms=10_000
    )
    assert rows["throttle_events"] == rows["publish_verdicts"] == []
    assert counted(rows, "topic_throttle_stats", "topic", "messages", "bytes", "limited_times") == {
        A: (100, 900, 0)
    }
    (limiter,) = rows["limiter_stats"]
    used = ("limiter", "messages", "utilisation", "min_balance_msgs", "throttles")
    assert tuple(limiter[name] for name in used) == ("topic", 100, 1.0, None, 0)


def test_a_pause_after_digests_belongs_to_the_limiter_with_the_least_left(runner: str) -> None:
    """Of ten a second A has used eleven since the resume, B one."""
    rows = judged(
        runner,
        [
            opened(),
            digest(1 * S, B, messages=1),
            digest(1 * S, A, messages=11),
            paused(1 * S),
            resumed(3 * S),
        ],
        TEN,
        document("topic", "t/ns/b", publishRateInMsgs=10),
        until_ms=10_000,
    )
    columns = ("topic", "limited_times", "culprit_times", "collateral_times", "culprit_ns")
    assert counted(rows, "topic_throttle_stats", *columns) == {A: (1, 1, 0, 2 * S), B: (1, 0, 1, 0)}
    assert [r["rule"] for r in rows["throttle_events"]] == ["observed_pause", "observed_resume"]


def test_whole_publishes_after_a_digest_are_charged_to_what_it_left(runner: str) -> None:
    """Of ten a second nine are gone: the second message finds none."""
    rows = judged(
        runner,
        [opened(), digest(1 * S, A, messages=8), publish(1 * S, A), publish(1 * S + 1, A)],
        TEN,
    )
    assert events(rows, "action", "rule", "balance_msgs")[0] == (1000, "mark", "bucket_empty", 0)


def test_a_digest_has_nothing_in_flight(runner: str) -> None:
    one = document("broker", "*", maxPendingPublishRequestsPerConnection=2)
    rows = judged(
        runner, [opened(), digest(1 * S, A, messages=8), publish(1 * S, A)], one, until_ms=10_000
    )
    assert rows["throttle_events"] == []
    assert [r["max_level"] for r in rows["limiter_stats"]] == [1]
