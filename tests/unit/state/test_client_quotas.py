"""Decisions, windows and use of `client_quotas`, each rule by a few records."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.client_quotas.topics import topics_of
from state.engine.names import Names
from state.jobs import DECLARED
from tests.reference import client_quotas as reference
from tests.support.effort import drawn
from tests.unit.state import client_quota_traces
from tests.unit.state.client_quota_trace import (
    PARAMS,
    T0,
    blob,
    numbered,
    other,
    play,
    policy,
    quota,
    request,
)
from tests.unit.state.drawn_trace import Trace
from tests.unit.state.shipping import Row, called

MS = 1_000_000


def judged(
    *records: Row, policies: tuple[str, ...] = (), until: int = 10_000, **params: Any
) -> dict[str, list[Row]]:
    """Rows by table."""
    return play([numbered(records)], {**PARAMS, **params}, policies, T0 + until)


def verdicts(rows: dict[str, list[Row]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(r[c] for c in columns) for r in rows["client_quota_verdicts"]]


RULED = ("rule", "quota_type", "throttle_ms")
HUNDRED = (quota("a", producer_byte_rate=100),)


# -- bytes and time --------------------------------------------------------------------------


def test_a_rate_that_equals_the_bound_passes() -> None:
    rows = judged(request(0, charged_bytes=1000), policies=HUNDRED)
    assert verdicts(rows, *RULED, "rate") == [("within_bound", "produce", 0, 100.0)]
    assert "client_quota_decisions" not in rows


def test_a_limit_of_the_name_default_is_that_of_its_name_alone() -> None:
    """KAFKA-18808. Here somebody has the name."""
    limits = (
        quota("<default>", producer_byte_rate=100),
        quota("\\<default>", producer_byte_rate=1),
        quota("\\<default>", "\\<default>", producer_byte_rate=2),
    )
    names = (
        ("<default>", "<default>"),
        ("<default>", "c"),
        ("a", "<default>"),
        ("\\<default>", "c"),
    )
    sent = [
        request(at, user=user, client_id=client, charged_bytes=1)
        for at, (user, client) in enumerate(names)
    ]
    assert verdicts(judged(*sent, policies=limits), "bound", "bound_level") == [
        (2.0, "user_client"),
        (1.0, "user"),
        (100.0, "default_user"),
        (100.0, "default_user"),
    ]


@pytest.mark.parametrize(
    ("said", "kinds", "charged", "entity"),
    [
        ({}, "remembered", [2000.0], ("", "app")),
        ({}, "in_force", [0.0], ("a", "")),
        ({"quota_kinds": "remembered"}, "in_force", [2000.0], ("", "app")),
        ({"quota_kinds": "in_force"}, "remembered", [0.0], ("a", "")),
        ({"quota_kinds": "of 5.0"}, "remembered", [2000.0], ("", "app")),
    ],
)
def test_brokers_from_4_2_forget_a_kind_with_its_last_limit(
    said: dict[str, str], kinds: str, charged: list[float], entity: tuple[str, str]
) -> None:
    """KAFKA-19282: the type is measured no longer, or who shares a limit is another. What the document
    of a poll says of its broker goes before the parameter."""
    sent = [request(at, charged_bytes=1000) for at in (5, 6)]
    set_, removed = (
        policy(at, json.dumps(json.loads(quota("a", **limits)) | said))
        for at, limits in ((0, {"producer_byte_rate": 10}), (2, {}))
    )
    first = request(1, charged_bytes=0)
    rows = judged(set_, first, removed, *sent, until=60_000, quota_kinds=kinds)
    assert [row["charged"] for row in rows["client_quota_stats"]] == charged
    others = quota("b", producer_byte_rate=10)
    set_, removed = (
        policy(at, json.dumps(json.loads(quota(None, "c", **limits)) | said))
        for at, limits in ((0, {"producer_byte_rate": 10}), (2, {}))
    )
    rows = judged(set_, first, removed, *sent, policies=(others,), quota_kinds=kinds)
    assert verdicts(rows, "user", "client")[1:] == [entity] * 2


def test_a_fetch_that_is_throttled_is_taken_back() -> None:
    """The second is judged as if the first had never been."""
    fetches = [request(at, "FETCH", charged_bytes=2000) for at in (0, 1)]
    rows = judged(*fetches, policies=(quota("a", consumer_byte_rate=100),), until=60_000)
    assert verdicts(rows, *RULED) == [
        ("rate_over_bound", "fetch", 10_000),
        ("rate_over_bound", "fetch", 9_999),
    ]
    (stats,) = rows["client_quota_stats"]
    assert (stats["requests"], stats["charged"], stats["throttled"]) == (2, 0.0, 2)


def test_a_fetch_that_request_time_alone_throttles_is_taken_back_as_well() -> None:
    limits = (quota("a", consumer_byte_rate=1000, request_percentage=1),)
    fetch = request(0, "FETCH", charged_bytes=10_000, handler_time_ns=10**9)
    rows = judged(fetch, request(1, "FETCH", charged_bytes=5000), policies=limits)
    assert verdicts(rows, *RULED, "rate") == [
        ("request_time_over_bound", "request", 1000, 10.0),
        ("within_bound", "fetch", 0, pytest.approx(499.95, abs=0.01)),
    ]


def test_the_size_of_a_throttled_fetch_follows_from_its_throttle_time() -> None:
    """Its answer is empty, so no log has it."""
    limits = (quota("a", consumer_byte_rate=100),)
    before = request(0, "FETCH", charged_bytes=900)
    sized = request(1, "FETCH", charged_bytes=2000, throttle_ms=18_999)
    unsized = {**sized, "charged_bytes": None}
    shown = (*RULED, "rate", "charged", "window_ms", "observed_throttle_ms")
    expected, found = (
        verdicts(judged(before, one, policies=limits), *shown)[1] for one in (sized, unsized)
    )
    assert found[:3] == expected[:3] == ("rate_over_bound", "fetch", 18_999)
    assert found[3:] == pytest.approx(expected[3:], rel=1e-4)
    again = judged(before, unsized, request(2, "FETCH", charged_bytes=90), policies=limits)
    assert verdicts(again, *RULED, "rate")[2] == ("within_bound", "fetch", 0, 990 / 10.002)


@pytest.mark.parametrize(
    ("limits", "columns"),
    [
        ({"consumer_byte_rate": 100, "request_percentage": 1}, {"handler_time_ns": 10**9}),
        ({"producer_byte_rate": 100}, {}),
        ({"consumer_byte_rate": 100}, {"exempt": True}),
    ],
)
def test_a_throttle_time_that_is_not_of_bytes_says_nothing_of_them(
    limits: dict[str, float], columns: dict[str, Any]
) -> None:
    fetch = request(0, "FETCH", throttle_ms=1000, **columns)
    (found,) = verdicts(judged(fetch, policies=(quota("a", **limits),)), "quota_type")
    assert found[0] in (None, "request")


PERCENT = (quota("a", request_percentage=1),)


def answered(share: float, count: int) -> list[Row]:
    """Requests of a client that waits while it is throttled, by a broker whose network threads take such
    a share of the time of its request handlers."""
    made: list[Row] = []
    charged: list[Row] = []
    at = 0
    for n in range(count):
        handler_ns = (3 + n % 5) * MS // 5
        charged.append(request(at, handler_time_ns=round(handler_ns * (1 + share))))
        (throttle,) = verdicts(judged(*charged, policies=PERCENT, until=90_000), "throttle_ms")[-1]
        made.append(request(at, handler_time_ns=handler_ns, throttle_ms=throttle))
        at += 40 + throttle
    return made


@pytest.mark.parametrize("share", [0.0, 0.3, 4.0])
def test_the_time_of_network_threads_follows_from_throttle_times(share: float) -> None:
    """No record has it. Once a throttle time has told it, requests are judged as by the broker."""
    made = answered(share, 150)
    shown = ("throttle_ms", "observed_throttle_ms", "charged")
    found = verdicts(judged(*made, policies=PERCENT, until=90_000), *shown)
    first = next(n for n, row in enumerate(found) if 0 < row[1] < 1000)
    assert sum(observed > 0 for _, observed, _ in found) > 10
    for request_, (throttle, observed, charged) in list(zip(made, found, strict=True))[first + 1 :]:
        assert abs(throttle - observed) <= 2
        raw = request_["handler_time_ns"] * 100 / 1e9
        assert charged == pytest.approx(raw * (1 + share), rel=1e-3)
    plain = judged(*made, policies=PERCENT, until=90_000, broker_reports="ignore")
    assert (verdicts(plain, *shown) == found) == (share == 0)


def test_an_answer_without_throttle_time_tells_that_there_is_less_of_it() -> None:
    made = [{**r, "throttle_ms": 0} if n > 80 else r for n, r in enumerate(answered(1.0, 120))]
    found = verdicts(judged(*made, policies=PERCENT, until=90_000), "charged", "rate")
    raw = [r["handler_time_ns"] * 100 / 1e9 for r in made]
    assert found[80][0] == pytest.approx(2 * raw[80], rel=1e-3)
    assert raw[-1] <= found[-1][0] < 1.9 * raw[-1]  # no more than the rate was at most


@pytest.mark.parametrize(
    ("limits", "api", "columns"),
    [
        # the controller's
        ({}, "CREATE_TOPICS", {}),
        # of bytes that are not known
        ({"producer_byte_rate": 100}, "PRODUCE", {}),
        # of bytes, which are nearer to their limit
        ({"producer_byte_rate": 100}, "PRODUCE", {"charged_bytes": 999}),
        # of bytes: longer than one of request time can be
        ({}, "PRODUCE", {"throttle_ms": 1001}),
        # of a limit that is not known here: more than network threads can take
        ({"request_percentage": 50}, "PRODUCE", {}),
    ],
)
def test_a_throttle_time_that_is_not_of_request_time_says_nothing_of_network_threads(
    limits: dict[str, float], api: str, columns: dict[str, Any]
) -> None:
    policies = (quota("a", **{"request_percentage": 1, **limits}),)
    made = [
        request(at, api, **{"handler_time_ns": 90 * MS, "throttle_ms": 10, **columns})
        for at in (0, 1)
    ]
    charged = verdicts(judged(made[0], policies=policies), "quota_type", "charged")
    stats = judged(*made, policies=policies, until=60_000)["client_quota_stats"]
    (time,) = (row["charged"] for row in stats if row["quota_type"] == "request")
    assert time == pytest.approx(2 * 90 * MS * 100 / 1e9), charged


def test_a_share_fetch_is_charged_as_a_fetch() -> None:
    limits = (quota("a", consumer_byte_rate=100),)
    made = [request(n, "SHARE_FETCH", charged_bytes=2000) for n in (0, 1)]
    made.append(request(2, "SHARE_ACKNOWLEDGE", charged_bytes=2000))
    rows = judged(*made, policies=limits)
    assert verdicts(rows, *RULED) == [
        ("rate_over_bound", "fetch", 10_000),
        ("rate_over_bound", "fetch", 9999),  # the first was taken back
        ("no_bound", None, 0),
    ]


def test_a_followers_fetch_is_never_charged() -> None:
    limits = (quota("a", consumer_byte_rate=1, request_percentage=0.001),)
    fetch = request(0, "FETCH", charged_bytes=10**9, handler_time_ns=10**9, exempt=True)
    assert verdicts(judged(fetch, policies=limits), *RULED) == [("exempt", None, 0)]


def test_a_produce_without_acks_pays_bytes_and_no_time() -> None:
    limits = (quota("a", producer_byte_rate=100, request_percentage=0.001),)
    made = request(0, charged_bytes=2000, handler_time_ns=10**9, exempt=True)
    assert verdicts(judged(made, policies=limits), *RULED) == [
        ("rate_over_bound", "produce", 10_000)
    ]


def test_request_time_decides_on_a_tie_and_where_it_is_longer() -> None:
    limits = (quota("a", producer_byte_rate=100, request_percentage=1),)
    made = [request(0, charged_bytes=n, handler_time_ns=10**9) for n in (1100, 1000, 1101)]
    found = [verdicts(judged(one, policies=limits), *RULED)[0] for one in made]
    assert found == [
        ("request_time_over_bound", "request", 1000),
        ("request_time_over_bound", "request", 1000),
        ("rate_over_bound", "produce", 1010),
    ]


def test_bytes_that_are_not_known_are_not_judged() -> None:
    rows = judged(request(0), policies=HUNDRED, until=60_000)
    assert verdicts(rows, *RULED) == [("no_bound", None, 0)]
    assert "client_quota_stats" not in rows
    assert [(r["requests"], r["bytes"]) for r in rows["client_usage"]] == [(1, 0)]


def test_a_type_is_measured_once_a_quota_of_it_was_set() -> None:
    records = [
        request(0, user="b", charged_bytes=10**6),
        policy(1, quota("a", producer_byte_rate=100)),
        request(2, user="b", charged_bytes=10**6),
        policy(3, quota("a")),
        request(4, user="b", charged_bytes=10**6),
    ]
    found = verdicts(judged(*records), "rule", "user", "rate")
    assert found == [
        ("no_bound", None, None),
        ("no_bound", "b", 100_000.0),
        ("no_bound", "b", pytest.approx(199_960.0, abs=1)),
    ]


def test_a_throttle_time_wraps_with_q1() -> None:
    limits, made = (quota("a", producer_byte_rate=1),), request(0, charged_bytes=10**10)
    times = [
        verdicts(judged(made, policies=limits, defects=defects), "throttle_ms", "verdict")
        for defects in ([], ["Q1"])
    ]
    # 9,999,999,990,000 ms as 32 bits; below 0 nobody is throttled
    assert times == [[(2**31 - 1, "throttled")], [(1_316_124_912, "throttled")]]


# -- mutations -------------------------------------------------------------------------------


def test_strict_refuses_after_one_overshoot_and_does_not_charge() -> None:
    limits = (quota("a", controller_mutation_rate=10),)
    made = [request(0, "CREATE_TOPICS", mutations=n) for n in (90, 90, 90)]
    rows = judged(
        *[{**r, "ts_wall_ms": T0 + i} for i, r in enumerate(made)],
        policies=limits,
        controller_window_num=10,
    )
    found = verdicts(rows, "rule", "verdict", "tokens")
    assert [f[:2] for f in found] == [
        ("within_bound", "allowed"),
        ("within_bound", "allowed"),
        ("refused_over_bound", "refused"),
    ]
    assert [round(f[2], 2) for f in found] == [10.0, -79.99, -79.98]
    assert [r["throttle_ms"] for r in rows["client_quota_decisions"]] == [7998]


def test_permissive_throttles_and_charges() -> None:
    limits = (quota("a", controller_mutation_rate=10),)
    made = [request(0, "DELETE_TOPICS", mutations=90, source_offset=i) for i in range(3)]
    rows = judged(
        *made, policies=limits, controller_window_num=10, controller_enforcement="permissive"
    )
    assert verdicts(rows, "rule", "throttle_ms") == [
        ("within_bound", 0),
        ("tokens_below_zero", 8000),
        ("tokens_below_zero", 17_000),
    ]


@pytest.mark.parametrize(
    ("api", "strict_since"), [("CREATE_TOPICS", 6), ("CREATE_PARTITIONS", 3), ("DELETE_TOPICS", 5)]
)
@pytest.mark.parametrize("unknown", ["strict", "permissive"])
def test_the_version_of_a_request_decides_whether_it_is_refused(
    api: str, strict_since: int, unknown: str
) -> None:
    limits = (quota("a", controller_mutation_rate=10),)
    versions = (strict_since, strict_since, strict_since - 1, strict_since + 1, None)
    made = [
        request(0, api, mutations=90, api_version=version, source_offset=i)
        for i, version in enumerate(versions)
    ]
    ordered = judged(*[{**r, "ts_wall_ms": T0 + i} for i, r in enumerate(made)], policies=limits)
    assert verdicts(ordered, "verdict") == [
        ("allowed",),
        ("allowed",),
        ("throttled",),
        ("refused",),
        ("refused",),
    ]
    found = judged(
        *[{**r, "ts_wall_ms": T0 + i} for i, r in enumerate(made)],
        policies=limits,
        controller_enforcement=unknown,
    )
    assert verdicts(found, "verdict")[3:] == [
        ("refused",),
        ("refused" if unknown == "strict" else "throttled",),
    ]


# -- limits ----------------------------------------------------------------------------------


def test_the_limit_of_the_stream_holds_where_both_name_an_entity() -> None:
    records = [
        request(0, charged_bytes=1),
        policy(1, quota("a", producer_byte_rate=7)),
        request(2, charged_bytes=1),
        policy(3, quota("a")),
        request(4, charged_bytes=1),
    ]
    assert verdicts(judged(*records, policies=HUNDRED), "bound") == [(100.0,), (7.0,), (100.0,)]


def test_a_broker_that_starts_forgets_use_and_kinds() -> None:
    """With limits of users and of clients remembered, the client shares; after the start only
    those of users are there."""
    records = [
        policy(0, quota("b", producer_byte_rate=100)),
        policy(0, quota(None, "app", producer_byte_rate=100)),
        request(1, charged_bytes=5000),
        policy(2, quota(None, "app")),
        request(3, charged_bytes=1),
        other("broker_started", 4),
        request(5, charged_bytes=1),
    ]
    assert verdicts(judged(*records), "user", "client", "bound_level", "rate") == [
        ("", "app", "client", 500.0),
        ("", "app", "none", pytest.approx(500.0, abs=0.1)),
        ("a", "", "none", 0.1),
    ]


def test_a_level_that_returns_within_an_hour_meets_its_history() -> None:
    def found(pause_ms: int) -> float:
        records = [
            request(0, charged_bytes=100),
            policy(1, quota("a", "app", producer_byte_rate=5)),
            request(2, charged_bytes=100),
            policy(3 + pause_ms, quota("a", "app")),
            request(4 + pause_ms, charged_bytes=0),
        ]
        rows = judged(*records, policies=HUNDRED, until=10**7, quota_window_num=10_000)
        return verdicts(rows, "rate")[-1][0]

    assert found(3_599_000) > 0
    assert found(3_600_001) == 0


def test_two_brokers_judge_apart() -> None:
    made = [request(0, charged_bytes=1000, broker=broker) for broker in ("b1", "b2")]
    assert verdicts(judged(*made, policies=HUNDRED), "broker", "rate") == [
        ("b1", 100.0),
        ("b2", 100.0),
    ]


# -- measured rates --------------------------------------------------------------------------


def test_rates_of_a_broker_are_windows_of_their_own_basis() -> None:
    about = {"principal": "a", "client_id": "", "quota_type": "produce"}
    records = [
        other("client_rate", 0, value_milli=50_000, **about),
        other("client_rate", 1, value_milli=150_000, throttle_avg_milli=2_500, **about),
        other("client_rate", 2, **{**about, "quota_type": "fetch"}, value_milli=7, bound_milli=14),
        other(
            "client_rate", 3, **{**about, "quota_type": "controller_mutation"}, value_milli=-1000
        ),
    ]
    rows = judged(*records, policies=HUNDRED, until=60_000)
    columns = ("quota_type", "rule", "basis", "rate_avg", "rate_max", "bound", "bound_level")
    assert [tuple(r[c] for c in columns) for r in rows["client_quota_stats"]] == [
        ("controller_mutation", "measured", "metrics", None, None, None, "none"),
        ("fetch", "measured", "metrics", 0.007, 0.007, 0.014, "none"),
        ("produce", "measured", "metrics", 100.0, 150.0, 100.0, "user"),
    ]
    assert [(r["throttled"], r["requests"]) for r in rows["client_quota_stats"]] == [
        (1, None),
        (0, None),
        (1, None),
    ]


def test_a_mean_of_throttle_times_outlives_its_limit() -> None:
    """Where limits are known, whoever has none is not throttled; where none is, the mean is all there is."""
    about = {"principal": "b", "client_id": "", "quota_type": "produce"}
    record = other("client_rate", 0, value_milli=0, throttle_avg_milli=600_000, **about)
    for policies, throttled in ((HUNDRED, 0), ((), 1), ((quota("b", producer_byte_rate=1),), 1)):
        rows = judged(record, policies=policies, until=60_000)["client_quota_stats"]
        assert [row["throttled"] for row in rows] == [throttled]


def test_a_window_keeps_the_limit_that_throttled_in_it_and_went() -> None:
    about = {"principal": "a", "client_id": "", "quota_type": "produce"}
    other_limit = (quota("b", producer_byte_rate=1),)
    set_, gone = policy(0, quota("a", producer_byte_rate=100)), policy(2, quota("a"))
    first, second = (
        other("client_rate", at, value_milli=9, throttle_avg_milli=7, **about) for at in (1, 3)
    )
    columns = ("bound", "bound_level", "throttled")
    for records, expected in (
        ((set_, first, gone, second), (100.0, "user", 1)),
        ((set_, gone, second), (None, "none", 0)),
        (
            (set_, first, gone, policy(3, quota("a", producer_byte_rate=7)), second),
            (7.0, "user", 2),
        ),
    ):
        (row,) = judged(*records, policies=other_limit, until=60_000)["client_quota_stats"]
        assert tuple(row[column] for column in columns) == expected


def test_a_what_if_holds_measured_rates_against_the_policies_alone() -> None:
    """What the broker reports is under its own limits: a rate above that of the policies counts, and
    tokens, which another limit would have had others of, do not."""
    about = {"principal": "a", "client_id": "", "quota_type": "produce"}
    tokens = {**about, "quota_type": "controller_mutation"}
    records = [
        other("client_rate", 0, value_milli=100_000, throttle_avg_milli=7, bound_milli=90, **about),
        other("client_rate", 1, value_milli=100_001, bound_milli=200_000, **about),
        other("client_rate", 2, value_milli=150_000, **about),
        other("client_rate", 3, value_milli=-1000, throttle_avg_milli=9, **tokens),
    ]
    rows = judged(*records, policies=HUNDRED, until=60_000, broker_reports="ignore")
    columns = ("quota_type", "bound", "utilisation", "throttled")
    assert [tuple(r[c] for c in columns) for r in rows["client_quota_stats"]] == [
        ("controller_mutation", None, None, 0),
        ("produce", 100.0, 1.5, 2),
    ]


# -- use -------------------------------------------------------------------------------------


def test_bytes_go_to_their_topics_and_the_rest_to_the_largest() -> None:
    made = request(
        0, charged_bytes=100, topic_bytes='{"t":60,"u":30}', handler_time_ns=2 * MS, throttle_ms=5
    )
    columns = ("topic", "requests", "bytes", "handler_time_ms", "throttle_ms")
    rows = judged(made, until=60_000)["client_usage"]
    assert [tuple(r[c] for c in columns) for r in rows] == [
        ("t", 1, 70, 2.0, 5),
        ("u", 0, 30, 0.0, 0),
    ]


def test_beyond_the_largest_one_row_has_the_rest() -> None:
    made = [request(0, charged_bytes=n, client_id=f"c{n}", source_offset=n) for n in (5, 3, 9, 1)]
    rows = judged(*made, until=60_000, usage_rows=2)["client_usage"]
    assert [(r["client_id"], r["bytes"], r["requests"], r["row_no"]) for r in rows] == [
        ("c9", 9, 1, 0),
        ("c5", 5, 1, 1),
        ("<others>", 4, 2, 2),
    ]


NAMES_OF_TOPICS = st.text(max_size=6)


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.dictionaries(NAMES_OF_TOPICS, st.integers(-3, 10**18), max_size=4).map(
                lambda d: json.dumps(d, ensure_ascii=len(d) % 2 == 0)
            ),
            st.text(alphabet='{}":, 01a\\', max_size=12),
        ),
        max_size=12,
    )
)
def test_topics_are_read_as_json_reads_them(texts: list[str | None]) -> None:
    names = Names()
    ids = names.intern(pa.array(texts, pa.string()))
    found = topics_of(np.ascontiguousarray(ids), names)
    got = [
        list(
            zip(names.lookup(found.topic[a:b]).to_pylist(), found.bytes[a:b].tolist(), strict=True)
        )
        for a, b in zip(found.start[:-1], found.start[1:], strict=True)
    ]
    wanted = [reference.topics_of(text) for text in texts]
    assert [dict(one) for one in got] == wanted


# -- state -----------------------------------------------------------------------------------


def test_a_silent_entity_takes_a_few_bytes() -> None:
    """Ten thousand entities whose samples have expired."""
    core = DECLARED["client_quotas"].core(PARAMS, (quota("<default>", producer_byte_rate=1e6),))
    many = [request(i % 900, user=f"u{i}", charged_bytes=i) for i in range(10_000)]
    states: list[bytes] = []
    called(core, [numbered(many), [request(120_000, user="u0")]], blob, 0, None, states)
    assert len(states[-1]) / 10_000 < 40


@drawn(60)
@given(client_quota_traces.traces())
def test_what_is_written_fits_together(trace: Trace) -> None:
    """A throttled request is over its bound; windows and uses count every request once."""
    params = {**PARAMS, **trace.params, "usage_rows": 10**6}
    until = trace.end_ms + 2 * params["stats_window_ms"]
    found = play([numbered(trace.records)], params, tuple(trace.configured), until)
    judged_ = found.get("client_quota_verdicts", [])
    for r in judged_:
        assert (r["quota_type"] is None) == (r["bound"] is None)
        if r["rule"] in ("rate_over_bound", "request_time_over_bound"):
            assert r["rate"] > r["bound"]
        if r["rule"] == "request_time_over_bound":
            assert r["throttle_ms"] <= params["quota_window_ms"]
        if r["rule"] in ("tokens_below_zero", "refused_over_bound"):
            assert r["tokens"] < 0
        if r["rule"] == "within_bound" and r["quota_type"] != "controller_mutation":
            assert r["rate"] <= r["bound"] or params["defects"] == ["Q1"]
    usage, stats = found.get("client_usage", []), found.get("client_quota_stats", [])
    assert sum(r["requests"] for r in usage) == len(judged_)
    decided = [r for r in judged_ if r["verdict"] != "allowed"]
    assert found.get("client_quota_decisions", []) == [
        {**r, "row_no": d["row_no"]}
        for r, d in zip(decided, found.get("client_quota_decisions", []), strict=True)
    ]
    own = [r for r in stats if r["basis"] == "requests"]
    assert sum(r["throttled"] for r in own) == len(decided)
    assert sum(r["throttle_ms"] for r in own) == sum(r["throttle_ms"] for r in decided)
