"""The reference of backlog against its vectors, a recorded broker, and random traces."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from typing import Any

from hypothesis import given

from tests.reference.backlog import (
    HOLDS,
    OWN,
    SAMPLES_PER_SECOND,
    TABLES,
    AgeCache,
    Cursor,
    Ledgers,
    Policies,
    Position,
    Row,
    Topic,
    age_of,
    evict_time_estimated,
    growth_rate,
    judge,
    key_of,
    keys_of,
    position_of,
    records_of,
    slowest,
    time_in,
    topic_for,
    topic_stats,
)
from tests.reference.wall import play
from tests.support.effort import LOOKED_FOR, drawn
from tests.unit.state.backlog_reference import (
    BROKER_QUOTAS,
    PHASE_MS,
    POLLS,
    ROLES,
    RUN,
    events_of_the_run,
)
from tests.unit.state.backlog_trace import T0, cursor, entry, quota_of, record
from tests.unit.state.backlog_traces import Trace, traces

PRECISE = {"preciseTimeBasedBacklogQuotaCheck": True, "backlogQuotaCheckIntervalInSeconds": 1}
random_traces = drawn(60)


# -- a recorded broker ---------------------------------------------------------------------------


def ledgers_of(poll: dict[str, Any]) -> Ledgers:
    found, internal = Ledgers(), poll["internal"]
    *closed, newest = internal["ledgers"]
    for x in closed:
        found.state(x["ledgerId"], x["entries"], x["size"], None)
    found.state(
        newest["ledgerId"], internal["currentLedgerEntries"], internal["currentLedgerSize"], None
    )
    return found


def marks_of(poll: dict[str, Any]) -> dict[str, Position]:
    cursors = poll["internal"]["cursors"].items()
    return {name: position_of(c["markDeletePosition"]) for name, c in cursors}


def test_every_polled_size() -> None:
    before: dict[str, dict[str, Position]] = {}
    compared, moved = 0, []
    for poll in POLLS:
        found, stats, topic = ledgers_of(poll), poll["stats"], poll["topic"]
        expected = {
            name: (s["msgBacklog"], s["backlogSize"]) for name, s in stats["subscriptions"].items()
        }

        def answers(
            marks: dict[str, Position], found: Ledgers = found
        ) -> tuple[int, dict[str, tuple[int, int]]]:
            oldest = slowest(marks)
            return found.backlog_bytes(None if oldest is None else marks[oldest]), {
                name: (found.after(at), found.backlog_bytes(at)) for name, at in marks.items()
            }

        now = marks_of(poll)
        if answers(now) != (stats["backlogSize"], expected):
            # the answers of one poll are not one snapshot: a cursor moved between two of them
            assert answers(before[topic]) == (stats["backlogSize"], expected)
            moved.append((topic, poll["t_ms"]))
        before[topic] = now
        compared += 1
    assert compared == 146 and len(moved) == 1


def rows_of_the_run(**params: Any) -> dict[str, list[Row]]:
    configured = [
        json.dumps(
            {
                "scope": "namespace",
                "name": f"public/{name}",
                "limits": {"backlog_quota": BROKER_QUOTAS[role]},
            }
        )
        for name, role in ROLES.items()
    ]
    chosen = {
        **PRECISE,
        "backlogQuotaCheckIntervalInSeconds": 2,
        "check_rows": "all",
        "eviction_count_rule": "every_call",
        "apply_evictions": True,
        **params,
    }
    end = POLLS[-1]["wall_after_ms"] - PHASE_MS
    return judge(events_of_the_run(), chosen, configured, end + 1)


def last_before(rows: list[Row], poll: dict[str, Any]) -> Row | None:
    name, at = f"persistent://public/{poll['topic']}", poll["wall_before_ms"] - PHASE_MS
    found = [r for r in rows if r["topic"] == name and r["pass_ms"] <= at]
    return found[-1] if found else None


def test_every_polled_age() -> None:
    """Against what the broker had cached. Two exceptions: between the first poll and the first
    pass a subscription moved, which no poll saw, and one poll came while a pass was going on."""
    rows, compared, other = rows_of_the_run()["backlog_checks"], 0, []
    for poll in POLLS:
        row, stats = last_before(rows, poll), poll["stats"]
        if row is None:
            continue
        compared += 1
        assert (row["limit_bytes"] or -1, row["limit_s"] or -1) == (
            stats["backlogQuotaLimitSize"],
            stats["backlogQuotaLimitTime"],
        )
        first = last = -1
        if row["oldest_timestamp_ms"] is not None:
            first, last = (
                age_of(poll[k] - PHASE_MS, row["oldest_timestamp_ms"])
                for k in ("wall_before_ms", "wall_after_ms")
            )
        name = stats.get("oldestBacklogMessageSubscriptionName")
        if not first <= stats["oldestBacklogMessageAgeSeconds"] <= last or (
            row["oldest_subscription"] != name
        ):
            other.append((poll["topic"][0], poll["t_ms"]))
    assert compared > 130
    assert other == [("b", 7121), ("b", 7975), ("s", 16978)]


def test_every_eviction_of_the_broker() -> None:
    """Each predicted position is where the next poll finds the cursor, and no other move is."""
    moves = defaultdict(list)
    for poll in POLLS:
        if ROLES[poll["topic"].split("/")[0]].endswith("-evict"):
            moves[poll["topic"]].append(poll["internal"]["cursors"]["slow"]["markDeletePosition"])
    rows = rows_of_the_run()["backlog_evictions"]
    assert all(r["phantom"] is False and r["count_delta"] == 1 for r in rows)
    for topic, polled in moves.items():
        found = [r["to_position"] for r in rows if r["topic"].endswith(topic)]
        observed = [p for p, before in zip(polled[1:], polled, strict=False) if p != before]
        assert [p for p in found if p in observed] == observed
        # one eviction fell into three seconds without polls
        assert len(found) - len(observed) <= 1
    kinds = {r["topic"].split("/")[3][0]: r["rule"] for r in rows}
    assert kinds == {"s": "same_cursor", "a": "expired"}


def test_producers_of_the_recorded_run() -> None:
    rows = [r for r in rows_of_the_run()["backlog_checks"] if "/h" in r["topic"]]
    acted = [r for r in rows if r["action"] != "none"]
    assert acted and {r["retention_policy"] for r in acted} == {"producer_exception"}
    assert acted[0]["producers_disconnected"] == 1
    assert {r["producers_disconnected"] for r in acted[1:]} == {0}
    again = record("producer_created", 0, cnx_id="c", producer_id=2)
    topic, last = rows[-1]["topic"], max(r["ts_wall_ms"] for r in events_of_the_run())
    events = [*events_of_the_run(), {**again, "topic": topic, "ts_wall_ms": last + 1}]
    configured = json.dumps(
        {
            "scope": "topic",
            "name": topic,
            "limits": {"backlog_quota": BROKER_QUOTAS["size-exception"]},
        }
    )
    refusal = judge(events, PRECISE, [configured])["producer_refusals"]
    error = next(r for r in RUN if "producer_error" in r)["class"].rpartition("$")[2]
    assert [(r["error"], r["quota_type"]) for r in refusal] == [(error, "size")]


# -- parts ---------------------------------------------------------------------------------------


def test_a_cursor_at_the_end_has_no_bytes() -> None:
    found = Ledgers()
    found.state(1, 11, 6629, None)
    assert found.backlog_bytes((1, 10)) == 0
    assert found.backlog_bytes((1, 9)) == 6629 - 10 * 602
    found.state(2, 1, 5, None)
    # the rest of the division stays while something follows
    assert found.backlog_bytes((1, 10)) == 5 + 6629 - 11 * 602
    assert found.backlog_bytes((1, 11)) == 5
    assert found.backlog_bytes((7, 0)) == 0


def test_live_ledger() -> None:
    found = Ledgers()
    found.add(3, 0, 100)
    assert (found.open_id, found[3].entries, found.has_state) == (3, 1, False)
    found.state(3, 5, 500, None)
    for number in (4, 5, 5, 9):
        found.add(3, number, 10)
    assert (found[3].entries, found[3].size) == (10, 520)
    found.add(2, 0, 10)
    assert found.ids == [3]
    found.add(5, 0, 7)
    found.add(3, 10, 10)
    assert (found[3].entries, found[5].size, found.open_id) == (10, 7, 5)
    found.state(5, 1, 7, 0)
    found.state(5, 1, 7, None)
    assert found.open_id is None
    found.delete(3)
    found.delete(5)
    assert (found.ids, found.deleted_entries, found.has_state) == ([], 11, False)


def test_acknowledged_ranges() -> None:
    found = Ledgers()
    found.state(1, 5, 50, 7)
    found.state(2, 0, 0, 7)
    found.state(3, 2, 20, None)
    c = Cursor("s", True, (1, -1))
    for at in ((1, 2), (1, 1), (1, 4), (3, 0)):
        c.acknowledged(at, found)
    assert (c.mark_delete, c.ranges) == ((1, -1), [(1, 1, 2), (1, 4, 4), (3, 0, 0)])
    c.acknowledged((1, 0), found)
    assert (c.mark_delete, c.ranges) == ((1, 2), [(1, 4, 4), (3, 0, 0)])
    c.acknowledged((1, 3), found)
    assert (c.mark_delete, c.ranges) == ((3, 0), [])
    c.acknowledged((3, 2), found)
    c.observed((3, 1), (5, "publish_time"), found)
    assert (c.mark_delete, c.first) == ((3, 2), None)
    c.acknowledged((3, 9), found)
    c.observed((1, 0), (5, "publish_time"), found)
    assert (c.mark_delete, c.ranges, c.first) == ((1, 0), [], (5, "publish_time"))
    c.evicted_to((1, 3), found)
    c.observed((1, 1), (5, "publish_time"), found)
    assert (c.mark_delete, c.first) == ((1, 3), None)


def test_levels_of_quotas() -> None:
    def document(scope: str, name: str, **limits: Any) -> dict[str, Any]:
        return {"scope": scope, "name": name, "limits": limits}

    found = Policies({"backlogQuotaDefaultLimitBytes": 7})
    part = "persistent://t/a/p-partition-3"

    def in_force(kind: str = "destination_storage") -> tuple[int, str, str]:
        q = found.quota(kind, part, "b1")
        return q.limit, q.policy, q.source

    assert in_force() == (7, "producer_request_hold", "broker")
    found.put(
        document(
            "broker",
            "*",
            backlogQuotaDefaultLimitBytes=9,
            backlogQuotaDefaultRetentionPolicy="producer_exception",
        )
    )
    found.put(document("broker", "b1", backlogQuotaDefaultLimitBytes=-1))
    assert in_force() == (9, "producer_exception", "broker")
    found.put(document("broker", "b1", backlogQuotaDefaultLimitGB=1e-6))
    assert in_force() == (1073, "producer_exception", "broker")
    assert in_force("message_age") == (-1, "producer_exception", "broker")
    found.put(document("namespace", "t/a", backlog_quota=quota_of("message_age", 5.9)))
    assert in_force() == (1073, "producer_exception", "broker")
    assert in_force("message_age") == (5, "producer_request_hold", "namespace")
    found.put(document("topic", "t/a/p", backlog_quota={"message_age": {}}))
    assert in_force("message_age") == (-1, "producer_exception", "topic")
    found.put(document("topic", part, backlog_quota=quota_of("message_age", 1)))
    assert in_force("message_age") == (-1, "producer_exception", "topic")
    found.put(document("topic", "persistent://t/a/p"))
    assert in_force("message_age") == (5, "producer_request_hold", "namespace")
    found.put(document("namespace", "t/a", backlog_quota=quota_of("destination_storage", -1)))
    assert in_force() == (-1, "producer_request_hold", "namespace")
    assert in_force("message_age") == (-1, "producer_exception", "broker")


def test_whole_ledgers_expire() -> None:
    found = Ledgers()
    for number, close in ((2, 1000), (3, 2000), (5, 9000), (6, None)):
        found.state(number, 5, 50, close)
    done = evict_time_estimated(found, {"a": (1, 3), "b": (3, 2)}, 5, 8001)
    assert (done.rule, done.rounds) == ("ledger_jump", 4)
    assert [(m.subscription, m.start, m.end) for m in done.moves] == [
        ("a", (1, 3), (5, -1)),
        ("b", (3, 2), (5, -1)),
    ]
    assert evict_time_estimated(found, {"a": (1, 3)}, 6, 8000).rounds == 2
    done = evict_time_estimated(found, {"a": (5, 3)}, 5, 14_000)
    assert (done.rule, done.rounds, done.moves[0].end) == ("no_closed_ledger", 0, (5, 3))


def test_slopes() -> None:
    assert growth_rate([(0, 5), (1000, 7), (3000, 3)]) == -2 / 3
    assert growth_rate([(0, 0), (1000, 1), (2000, 2), (3000, 3)]) == 1.0


# -- random traces -------------------------------------------------------------------------------


def rows_of(trace: Trace, **params: Any) -> dict[str, list[Row]]:
    return judge(trace.records, {**trace.params, **params}, trace.configured, trace.end_ms)


def row_key(row: Row) -> tuple[str, str]:
    return row["cluster"], row["topic"]


def by_key(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[row_key(row)].append(row)
    return found


class Remembering:
    """Every entry's time and arrival, without bounds."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.times: dict[Position, int] = {}
        self.arrivals: dict[Position, int] = {}
        self.per_second: Counter[int] = Counter()
        self.highest: Position = (-1, -1)

    def take(self, record: dict[str, Any], topic: Topic) -> None:
        """A record that the topic has taken."""
        now = record["ts_wall_ms"]
        if not topic.ledgers.ids:
            self.forget()
        elif record["event_type"] == "entry_added" and record["ledger_id"] in topic.ledgers:
            told = time_in(record)
            self._put([(record["ledger_id"], record["entry_id"])], told[0] if told else now, now)
        elif record["event_type"] == "ledger_state":
            close = topic.ledgers[record["ledger_id"]].close_ms
            time = close if close is not None and 0 < close < now else now
            entries = range(record["ledger_entries"])
            self._put([(record["ledger_id"], number) for number in entries], time, now)

    def _put(self, positions: list[Position], time: int, now: int) -> None:
        new = [p for p in positions if p > self.highest]
        self.times |= dict.fromkeys(new, time)
        self.arrivals |= dict.fromkeys(new, now)
        self.per_second[now // 1000] += bool(new)
        self.highest = max([self.highest, *new])

    def of(self, position: Position) -> int:
        """Time of an entry, of the last one before it if it fell into a hole."""
        return self.times[max(p for p in self.times if p <= position)]

    def arrival(self, position: Position) -> int:
        return self.arrivals[max(p for p in self.arrivals if p <= position)]


class Watched(Topic):
    """A topic whose passes are compared with everything that came."""

    compared = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.all = Remembering()

    def take(self, record: dict[str, Any]) -> None:
        super().take(record)
        if record["event_type"] in OWN:
            self.all.take(record, self)

    def _check(self) -> None:
        super()._check()
        told = {c.mark_delete for c in self.cursors.values() if c.first is not None}
        for at in {c.mark_delete for c in self.cursors.values()} - told:
            first, found = self.ledgers.first_after(at), self._time_after(at)
            if first is None or found is None or found[1] == "ledger_close":
                continue
            crowded = self.all.per_second[self.all.arrival(first) // 1000] > SAMPLES_PER_SECOND
            assert crowded or abs(self.all.of(first) - found[0]) < 1000
            Watched.compared += not crowded

    def _pass(self) -> None:
        super()._pass()
        marks = [c.mark_delete for c in self.cursors.values()]
        first = self.ledgers.first_after(min(marks)) if marks else None
        samples = self.times.samples
        for a, b in itertools.pairwise(samples):
            assert a.position < b.position and abs(a.time - b.time) >= 1000
        if not samples or self._topic.startswith("non-persistent"):
            return
        if first is None:
            assert len(samples) == 1
            return
        if first < samples[0].position:
            return
        # at most four of every second since the oldest entry came that is still needed
        since = self.all.arrival(samples[0].position)
        seconds = {t // 1000 for t in self.all.arrivals.values() if t >= since}
        assert len(samples) <= SAMPLES_PER_SECOND * len(seconds)


def test_ages_are_those_of_the_entries_to_a_second() -> None:
    @drawn(240, LOOKED_FOR)
    @given(traces())
    def compare(trace: Trace) -> None:
        params = {**trace.params, **PRECISE, "check_rows": "all", "age_without_quota": "always"}
        for key in keys_of(trace.records):
            if type(topic_for(key, params)) is Topic:
                topic = Watched(*key, params, trace.configured)
                play(topic, records_of(trace.records, key), trace.end_ms)

    Watched.compared = 0
    compare()
    assert Watched.compared > 500


@random_traces
@given(traces())
def test_an_acknowledged_prefix_never_ages(trace: Trace) -> None:
    last = max(r["ts_wall_ms"] for r in trace.records)
    far = f"{2**40}:0"
    names = {
        (key_of(r), r["subscription"]) for r in trace.records if r["event_type"] == "cursor_state"
    }
    acked = [
        {**cursor(last - T0, name, far), "topic": key[1], "broker": "b1", "seq": 10**9 + i}
        for i, (key, name) in enumerate(sorted(names))
    ]
    rows = judge(
        [*trace.records, *acked],
        {**trace.params, "check_rows": "all"},
        trace.configured,
        last + 20_000,
    )
    for row in rows["backlog_checks"]:
        if row["pass_ms"] > last and not any(
            r["event_type"] == "policy" for r in trace.records if r["ts_wall_ms"] >= last
        ):
            assert row["oldest_timestamp_ms"] is None and not row["exceeded_time"]
            assert row["backlog_bytes"] == 0
            assert row["age_state"] in ("no_backlog", "no_durable_cursor")
    for row in rows["backlog_subscriptions"]:
        assert row["pass_ms"] <= last or (row["age_s"], row["backlog_entries"]) == (None, 0)


@random_traces
@given(traces())
def test_timestamps_come_from_records(trace: Trace) -> None:
    params = {**trace.params, **PRECISE, "check_rows": "all", "apply_evictions": False}
    told = {t for r in trace.records if (t := (time_in(r) or (None,))[0]) is not None}
    seen = {r["ts_wall_ms"] for r in trace.records}
    closed = {r.get("ledger_close_ms") for r in trace.records}
    for row in rows_of(trace, **params)["backlog_checks"]:
        stamp = row["oldest_timestamp_ms"]
        assert stamp is None or stamp in told or stamp in seen or stamp in closed


@random_traces
@given(traces())
def test_columns_of_checks(trace: Trace) -> None:
    rows = rows_of(trace)
    for row in rows["backlog_checks"]:
        assert row["ts_wall_ms"] == row["pass_ms"] and row["pass_ms"] % 1000 == 0
        limit, limit_s = row["limit_bytes"], row["limit_s"]
        assert row["exceeded_size"] == (limit is not None and row["backlog_bytes"] >= limit)
        stamp = row["oldest_timestamp_ms"]
        assert row["exceeded_time"] == (
            bool(limit_s) and stamp is not None and row["pass_ms"] > stamp + limit_s * 1000
        )
        assert (row["size_usage"] is None) == (not limit)
        assert (row["time_usage"] is None) == (not limit_s or stamp is None)
        if stamp is None:
            empty = row["age_state"] in ("no_backlog", "no_durable_cursor")
            zero = empty and trace.params["age_when_empty"] == "zero"
            assert row["age_s"] == (0 if zero else -1)
            assert row["timestamp_source"] == "none"
        else:
            assert row["age_state"] == "known" or trace.params["age_reset"] == "keep"
            assert row["age_s"] == int((row["pass_ms"] - stamp) / 1000)
        acts = row["exceeded_size"] or row["exceeded_time"]
        assert (row["action"] != "none") == acts == (row["retention_policy"] is not None)
        assert (row["rule"] == "within_limits") == (not acts)
        if row["action"] in ("disconnect_producers", "deduplication_snapshot"):
            assert row["retention_policy"] in HOLDS
        assert "non-persistent" not in row["topic"]
    calls = {(row_key(r), r["pass_ms"]): r for r in rows["backlog_checks"]}
    counted: Counter[tuple[Any, ...]] = Counter()
    for row in rows["backlog_evictions"]:
        check = calls[row_key(row), row["ts_wall_ms"]]
        assert check["action"] == f"evict_{row['quota_type']}"
        assert row["backlog_before"] == check["backlog_bytes"] >= row["backlog_after"]
        counted[row_key(row), row["ts_wall_ms"]] += row["count_delta"]
        assert row["entries_skipped"] >= 0
        if row["quota_type"] == "size":
            assert row["target_bytes"] == int(0.9 * check["limit_bytes"])
        assert row["phantom"] <= (row["entries_skipped"] == 0)
    always = trace.params["eviction_count_rule"] == "every_call"
    for row in rows["backlog_evictions"]:
        expected = always or not row["phantom"]
        assert counted[row_key(row), row["ts_wall_ms"]] == expected
    evicted = {k for k, r in calls.items() if r["action"].startswith("evict")}
    assert evicted == set(counted)


@random_traces
@given(traces())
def test_subscriptions_agree_with_their_topic(trace: Trace) -> None:
    rows = rows_of(trace, check_rows="all")
    found = defaultdict(list)
    for row in rows["backlog_subscriptions"]:
        found[row_key(row), row["pass_ms"]].append(row)
    checked = {(row_key(r), r["pass_ms"]): r for r in rows["backlog_checks"]}
    assert set(found) <= set(checked)
    for key, check in checked.items():
        subscriptions = found[key]
        assert [r["subscription"].encode() for r in subscriptions] == sorted(
            r["subscription"].encode() for r in subscriptions
        )
        assert {r["rule"] for r in subscriptions} <= {check["rule"]}
        durable = {r["subscription"]: r for r in subscriptions if r["durable"]}
        oldest = slowest({n: position_of(r["mark_delete"]) for n, r in durable.items()})
        if oldest is None:
            assert check["age_state"] == "no_durable_cursor" and check["backlog_bytes"] == 0
            continue
        assert check["backlog_bytes"] == durable[oldest]["backlog_bytes"]
        behind = [
            r
            for r in durable.values()
            if r["kind"] in ("subscription", "compaction") and r["backlog_entries"]
        ]
        assert (check["age_state"] == "no_backlog") == (not behind)
        if check["age_state"] == "known":
            assert check["oldest_subscription"] == oldest
            assert check["oldest_position"] == durable[oldest]["mark_delete"]
            if durable[oldest]["kind"] != "replicator":
                assert check["age_s"] == durable[oldest]["age_s"]


@random_traces
@given(traces())
def test_rows_left_out_are_those_without_a_backlog(trace: Trace) -> None:
    every = rows_of(trace, check_rows="all")
    some = rows_of(trace, check_rows="backlogged")
    without = {"row_no"}

    def plain(row: Row) -> Row:
        return {k: v for k, v in row.items() if k not in without}

    for table in ("backlog_checks", "backlog_subscriptions"):
        kept = [plain(r) for r in some[table]]
        assert all(plain(r) in kept for r in every[table] if r["backlog_bytes"] > 0)
        left = [r for r in every[table] if plain(r) not in kept]
        assert len(left) + len(kept) == len(every[table])
        assert all(r["backlog_bytes"] == 0 and not r.get("backlog_entries") for r in left)
        assert all(r.get("action", "none") == "none" for r in left)
    for table in ("backlog_evictions", "producer_refusals"):
        assert every[table] == some[table]


@random_traces
@given(traces())
def test_applied_evictions_stay(trace: Trace) -> None:
    rows = rows_of(trace, apply_evictions=True, check_rows="all")
    gone = defaultdict(list)
    for r in trace.records:
        if r["event_type"] == "cursor_deleted":
            gone[key_of(r), r["subscription"]].append(r["ts_wall_ms"])
    moved = [r for r in rows["backlog_evictions"] if r["from_position"] != r["to_position"]]
    for row in moved:
        key, at = (row_key(row), row["subscription"]), row["ts_wall_ms"]
        for r in rows["backlog_subscriptions"]:
            later = r["pass_ms"] > at and not any(at < t <= r["pass_ms"] for t in gone[key])
            if later and (row_key(r), r["subscription"]) == key:
                assert position_of(r["mark_delete"]) >= position_of(row["to_position"])


@random_traces
@given(traces())
def test_order_of_rows(trace: Trace) -> None:
    rows = rows_of(trace)
    for table in TABLES:
        for found in by_key(rows[table]).values():
            places = [(r["ts_wall_ms"], r["row_no"]) for r in found]
            assert places == sorted(set(places))
            for (before, _), (at, number) in zip([(None, 0), *places], places, strict=False):
                assert number == 0 or at == before


@random_traces
@given(traces())
def test_time_of_rows(trace: Trace) -> None:
    rows = rows_of(trace)
    for key in keys_of(trace.records):
        own = [r for r in records_of(trace.records, key) if r["event_type"] in OWN]
        for row in (r for t in TABLES for r in rows[t] if row_key(r) == key):
            at = row["ts_wall_ms"]
            last = [r for r in own if r["ts_wall_ms"] <= at][-1]
            if row in rows["producer_refusals"]:
                continue
            assert row["broker"] == last["broker"]
            if last["ts_mono_ns"] is None:
                assert row["ts_mono_ns"] is None
            else:
                ahead = (at - last["ts_wall_ms"]) * 1_000_000
                assert row["ts_mono_ns"] == last["ts_mono_ns"] + ahead


@random_traces
@given(traces())
def test_a_later_end_only_adds_rows(trace: Trace) -> None:
    rows = rows_of(trace)
    longer = judge(trace.records, trace.params, trace.configured, trace.end_ms + 30_000)
    for table in TABLES:
        late = [
            r
            for r in longer[table]
            if r["ts_wall_ms"] < trace.end_ms or (table == "producer_refusals")
        ]
        early = [
            r
            for r in rows[table]
            if r["ts_wall_ms"] < trace.end_ms or (table == "producer_refusals")
        ]
        assert late == early


@random_traces
@given(traces())
def test_view(trace: Trace) -> None:
    rows = rows_of(trace)["backlog_checks"]
    for reading in ("live", "last_check"):
        found = {(r["cluster"], r["topic"]): r for r in topic_stats(rows, reading)}
        assert {row_key(r) for r in rows} <= set(found)
        for key, kept in by_key(rows).items():
            stats, last = found[key], kept[-1]
            assert stats["backlogQuotaLimitSize"] == (
                -1 if last["limit_bytes"] is None else last["limit_bytes"]
            )
            assert stats["oldestBacklogMessageSubscriptionName"] == last["oldest_subscription"]
            if reading == "last_check" or last["oldest_timestamp_ms"] is None:
                assert stats["oldestBacklogMessageAgeSeconds"] == last["age_s"]
            else:
                newest = max(r["pass_ms"] for r in rows)
                assert stats["oldestBacklogMessageAgeSeconds"] == int(
                    (newest - last["oldest_timestamp_ms"]) / 1000
                )


def test_samples_of_skewed_clocks_are_bounded() -> None:
    times = AgeCache()
    for i in range(1000):
        times.added(entry(i, 1, i, publish_time_ms=T0 + 5000 * (i % 2)))
    assert len(times.samples) == SAMPLES_PER_SECOND
    times.added(entry(1000, 1, 1000, publish_time_ms=T0))
    assert len(times.samples) == SAMPLES_PER_SECOND + 1
    times.trim((1, 1001))
    assert [s.position for s in times.samples] == [(1, 1000)]
