"""The job `backlog` beside a real Pulsar broker: both judge the same topics, check by check.

The broker's checks come at a phase of their own, which its histogram of checks gives away. Polls
lie between them, and all times are moved by the phase: so both judge the same at the same time.
"""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.config.pulsar_admin import PulsarAdminSettings
from app.run.service import run
from app.sources.pulsar.admin_poll import AdminPoller
from tests.support.backlog_views import READS, asked, stored
from tests.support.servers.pulsar import Pulsar, Sample
from tests.unit.sources.pulsar.documents import valid
from tests.unit.state.backlog_trace import EVICTION, numbered, play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

Json = dict[str, Any]
Step = Callable[[], None]
CHECK_S = 2
LIMIT_S = 4
AFTER_S = 0.2
"""How long after a check of the broker it is over, and what happens next may begin."""
TIMES = ("ts_wall_ms", "publish_time_ms", "ledger_close_ms")
EVICTED = "pulsar_storage_backlog_quota_exceeded_evictions_total"
BROKER_EVICTED = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"
CHECKED = "pulsar_storage_backlog_quota_check_duration_seconds_count"
ATTEMPTS = 5
AS_RELEASED = {"check_rows": "all", "eviction_count_rule": "every_call"}
STATS = "stats?getPreciseBacklog=false&subscriptionBacklogSize=true"


class Late(Exception):
    """A machine under load: something did not come between the two checks where it belongs."""


@dataclass(frozen=True)
class Seen:
    """A poll: its records, and what the broker said of itself right after it."""

    records: list[Json]
    stats: dict[str, Json]
    metrics: dict[Sample, float]
    from_ms: int
    to_ms: int
    """Between these times the stats were answered."""
    phase_ms: int
    """How long after multiples of their interval the broker's checks come."""

    @property
    def at_ms(self) -> int:
        """The time of the records, moved by the phase."""
        return max(int(record["ts_wall_ms"]) for record in self.records) - self.phase_ms

    def moved(self) -> list[Json]:
        """The records with all times moved by the phase."""
        return [
            {k: v - self.phase_ms if k in TIMES and v is not None else v for k, v in r.items()}
            for r in self.records
        ]


class Scene:
    """Topics under quotas, and what happens to them after each of the broker's checks."""

    def __init__(self, pulsar: Pulsar, name: str) -> None:
        self.pulsar = pulsar
        self.evict, self.hold = f"public/{name}-evict", f"public/{name}-hold"
        for namespace in (self.evict, self.hold):
            pulsar.ask("PUT", f"namespaces/{namespace}", {})
        self.topics = [*(f"{self.evict}/{n}" for n in ("size", "age", "phantom")), f"{self.hold}/t"]
        held = self.topics[-1]
        for topic in self.topics:
            pulsar.ask("PUT", f"persistent/{topic}", {})
            for subscription in ("slow", "fast"):
                pulsar.ask("PUT", f"persistent/{topic}/subscription/{subscription}")
        self.steps: Sequence[Step] = (
            self._limit,
            lambda: self._skip(held, "slow", 7),
            self._exceed,
            lambda: self._skip(held, "slow", None),
            lambda: self._skip(held, "fast", None),
            self._begin_again,
        )

    def _publish(self) -> None:
        """Messages, of which the fast subscriptions have read some.

        They are moved once: of two moves in one breath the broker may take the first for the last,
        and then sees the wrong subscription as the slowest.
        """
        for topic, messages, size, fast in zip(
            self.topics, (36, 30, 5, 30), (530, 20, 200, 200), (None, 3, 3, 3), strict=True
        ):
            self.pulsar.publish(topic, ["x" * size] * messages)
            self._skip(topic, "fast", fast)

    def _skip(self, topic: str, subscription: str, entries: int | None) -> None:
        what = "skip_all" if entries is None else f"skip/{entries}"
        self.pulsar.ask("POST", f"persistent/{topic}/subscription/{subscription}/{what}")

    def _quota(self, place: str, kind: str, limit: Json, policy: str) -> None:
        self.pulsar.ask(
            "POST", f"{place}/backlogQuota?backlogQuotaType={kind}", {**limit, "policy": policy}
        )

    def _limit(self) -> None:
        """Quotas for all: by eviction, by refusal, and one byte too low for a single entry."""
        for namespace, size, policies in (
            (self.evict, 20_000, (EVICTION, EVICTION)),
            (self.hold, 10_000, ("producer_exception", "producer_request_hold")),
        ):
            place = f"namespaces/{namespace}"
            self._quota(place, "destination_storage", {"limitSize": size}, policies[0])
            self._quota(place, "message_age", {"limitTime": LIMIT_S}, policies[1])
        topic = f"persistent/{self.topics[2]}"
        backlog = self.pulsar.ask("GET", f"{topic}/{STATS}")["backlogSize"]
        self._quota(topic, "destination_storage", {"limitSize": backlog - 1}, EVICTION)
        self.pulsar.publish(self.topics[1], ["y" * 20] * 10)

    def _exceed(self) -> None:
        self.pulsar.publish(self.topics[3], ["z" * 800] * 12)
        self._skip(self.topics[3], "fast", 30)

    def _begin_again(self) -> None:
        self.pulsar.publish(self.topics[3], ["a", "b", "c"])
        self._skip(self.topics[3], "slow", 1)
        topic = f"persistent/{self.topics[2]}"
        self.pulsar.ask("DELETE", f"{topic}/backlogQuota?backlogQuotaType=destination_storage")

    def settings(self) -> PulsarAdminSettings:
        return PulsarAdminSettings(
            cluster="standalone",
            url=[self.pulsar.url],
            namespaces=[self.evict, self.hold],
            timeout_ms=5000,
            interval_ms=1000 * CHECK_S,
        )

    def watch(self, spool: Path) -> Iterator[Seen]:
        """Poll once before each of the broker's checks, and go on with the steps after it."""
        warm = AdminPoller(self.settings(), spool.parent.with_name(f"{spool.parent.name}-warm"))
        self._poll(warm, 0)
        warm.close()
        poller = AdminPoller(self.settings(), spool)
        check = self._last_check()
        phase_ms = int(1000 * check) % (1000 * CHECK_S)
        _sleep_until(check + 3 * AFTER_S)
        self._publish()
        while check + AFTER_S < time.time():
            check += CHECK_S
        count = self._checks()
        for step in (None, *self.steps):
            _sleep_until(check + AFTER_S)
            before, count = count, self._checks()
            if step is not None:
                step()
            seen = self._poll(poller, phase_ms)
            if count == before or count != self._checks():
                raise Late
            yield seen
            check += CHECK_S
        poller.close()

    def _poll(self, poller: AdminPoller, phase_ms: int) -> Seen:
        path = poller.poll_once(_now_ms())
        assert path is not None and poller.last.problems == []
        records = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        valid(records)
        began = _now_ms()
        stats = {t: self.pulsar.ask("GET", f"persistent/{t}/{STATS}") for t in self.topics}
        return Seen(records, stats, self.pulsar.metrics(), began, _now_ms(), phase_ms)

    def _checks(self) -> float:
        """A number that grows with each of the broker's checks."""
        return sum(v for (name, _), v in self.pulsar.metrics().items() if name == CHECKED)

    def _last_check(self) -> float:
        """The time of the broker's last check, by the best view of some: they come evenly."""
        deadline = time.time() + 8 * CHECK_S
        asked, count = time.time(), self._checks()
        seen: list[tuple[float, float]] = []
        while time.time() < deadline and not (seen and min(seen)[0] < 0.1):
            earlier, before = asked, count
            asked, count = time.time(), self._checks()
            if count != before:
                seen.append((time.time() - earlier, (time.time() + earlier) / 2))
        if not seen:
            pytest.fail("the broker does not check its topics")
        width, at = min(seen)
        if width > 3 * AFTER_S:
            raise Late
        return at + (time.time() - at) // CHECK_S * CHECK_S


def _now_ms() -> int:
    return int(time.time() * 1000)


def _sleep_until(at_s: float) -> None:
    time.sleep(max(at_s - time.time(), 0))


def watched(pulsar: Pulsar, name: str, folder: Path) -> tuple[Scene, Path, list[Seen]]:
    """A scene, the spool of its polls and what was seen at each; again if the machine was late."""
    for attempt in range(ATTEMPTS):
        scene, spool = (
            Scene(pulsar, f"{name}{attempt}"),
            folder / f"polls-{attempt}" / "pulsar_admin.standalone",
        )
        try:
            return scene, spool, list(scene.watch(spool))
        except Late:
            continue
    pytest.fail(f"not once in {ATTEMPTS} times did everything come between the checks")


def evictions(seen: Seen, topic: str) -> Counter[str]:
    """How often the broker has evicted in a topic, by type of quota."""
    found: Counter[str] = Counter()
    for (name, labels), value in seen.metrics.items():
        of = dict(labels)
        if name == EVICTED and of.get("topic") == f"persistent://{topic}":
            found[of["quota_type"]] += int(value)
    return found


def judged(seen: list[Seen]) -> dict[str, list[Json]]:
    """The job's rows of all polls, those of the check after the last one included."""
    records = [record for each in seen for record in each.moved()]
    return play([numbered(records)], AS_RELEASED, until_ms=seen[-1].at_ms + 1000 * CHECK_S)


def between(rows: list[Json], first: Seen, last: Seen | None, topic: str) -> list[Json]:
    """A topic's rows of the check that came after one poll and before another."""
    end = first.at_ms + 1000 * CHECK_S if last is None else last.at_ms
    return [
        r
        for r in rows
        if r["topic"] == f"persistent://{topic}" and first.at_ms <= r["ts_wall_ms"] < end
    ]


def compare(topic: str, seen: list[Seen], rows: dict[str, list[Json]]) -> None:
    """Hold a topic's rows against all that the broker said of it."""
    for i, (poll, after) in enumerate(zip(seen, [*seen[1:], None], strict=True)):
        stats = poll.stats[topic]
        # Size and limits are those of the moment, so the next check has them.
        (row,) = between(rows["backlog_checks"], poll, after, topic)
        assert row["backlog_bytes"] == stats["backlogSize"], (topic, i)
        limits = [-1 if row[k] is None else row[k] for k in ("limit_bytes", "limit_s")]
        assert limits == [stats["backlogQuotaLimitSize"], stats["backlogQuotaLimitTime"]]
        behind = {
            r["subscription"]: (r["backlog_entries"], r["backlog_bytes"])
            for r in between(rows["backlog_subscriptions"], poll, after, topic)
        }
        assert behind == {
            name: (s["msgBacklog"], s["backlogSize"]) for name, s in stats["subscriptions"].items()
        }
        # The oldest message is what the check before the poll found, evictions what it did.
        evicted = [
            r
            for p, a in pairwise(seen[: i + 1])
            for r in between(rows["backlog_evictions"], p, a, topic)
        ]
        counted = Counter({"size": 0, "time": 0})
        for r in evicted:
            counted[r["quota_type"]] += r["count_delta"]
        assert evictions(poll, topic) == counted, (topic, i)
        if i == 0:
            continue
        (row,) = between(rows["backlog_checks"], seen[i - 1], poll, topic)
        at_ms, age_s = row["oldest_timestamp_ms"], stats["oldestBacklogMessageAgeSeconds"]
        name = stats.get("oldestBacklogMessageSubscriptionName")
        assert name == row["oldest_subscription"] or name in {
            r["subscription"]  # of several at one place the broker names any
            for r in between(rows["backlog_subscriptions"], seen[i - 1], poll, topic)
            if r["mark_delete"] == row["oldest_position"]
        }
        if at_ms is None:
            assert (row["age_s"], age_s) == (-1, -1)
        else:
            at_ms += poll.phase_ms
            assert (poll.from_ms - at_ms) // 1000 <= age_s <= (poll.to_ms - at_ms) // 1000
        places = {
            r["subscription"]: r["mark_delete"]
            for r in poll.records
            if r["event_type"] == "cursor_state" and r["topic"] == f"persistent://{topic}"
        }
        for r in between(rows["backlog_evictions"], seen[i - 1], poll, topic):
            assert places[r["subscription"]] == r["to_position"], (topic, i)


def test_every_poll_with_estimated_ages(pulsar: Pulsar, tmp_path: Path) -> None:
    pulsar.run_with()
    scene, _, seen = watched(pulsar, "estimated", tmp_path)
    rows = judged(seen)
    for topic in scene.topics:
        compare(topic, seen, rows)
    assert story(rows, scene) == {
        "size": [("evict_size", "same_cursor"), ("evict_time", "ledger_jump")],
        "age": [("evict_time", "ledger_jump")],
        "phantom": [("evict_size", "skip_zero")],
    }
    held = of_topic(rows["backlog_checks"], scene.topics[3])
    assert {"known", "no_estimate", "no_backlog"} <= {r["age_state"] for r in held}


def test_every_poll_with_precise_ages_and_a_run_of_the_service(
    pulsar: Pulsar, spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    pulsar.run_with(preciseTimeBasedBacklogQuotaCheck="true")
    scene, spool, seen = watched(pulsar, "precise", tmp_path)
    rows = judged(seen)
    for topic in scene.topics:
        compare(topic, seen, rows)
    assert story(rows, scene) == {
        "size": [("evict_size", "same_cursor"), ("evict_time", "expired")],
        "age": [("evict_time", "expired")],
        "phantom": [("evict_size", "skip_zero"), ("evict_time", "expired")],
    }
    held = of_topic(rows["backlog_checks"], scene.topics[3])
    assert {r["oldest_subscription"] for r in held} == {"slow", "fast", None}
    assert {(r["rule"], r["action"]) for r in held} == {
        ("within_limits", "none"),
        ("time_exceeded", "disconnect_producers"),
        ("size_masks_time", "disconnect_producers"),
    }

    # The service reads the same polls, and makes one of its own: behind the check after the last.
    _sleep_until(seen[-1].to_ms / 1000 + 2 * CHECK_S)
    admin = {**scene.settings().model_dump(exclude_unset=True), "spool": str(spool.parent)}
    config = make_settings(
        source={"format": "pulsar_admin", "admin": admin}, backlog=AS_RELEASED, shards=2
    )
    assert run(config, available_now=True) == 0
    tables = stored(config)
    records = numbered([record for each in seen for record in each.records])
    last_ms = records[-1]["ts_wall_ms"]
    core = play([records], AS_RELEASED, until_ms=last_ms + 1)
    for name in READS:
        live = [{k: r[k] for k in core[name][0]} for r in tables[name]]
        live = [r for r in live if r["ts_wall_ms"] <= last_ms]
        assert sorted(live, key=str) == sorted(core[name], key=str)
    metrics(tables, scene)


def of_topic(rows: list[Json], topic: str) -> list[Json]:
    return [r for r in rows if r["topic"] == f"persistent://{topic}"]


def story(rows: dict[str, list[Json]], scene: Scene) -> dict[str, list[tuple[str, str]]]:
    """By topic the kinds of evictions, in the order in which they came first."""
    return {
        topic.rpartition("/")[2]: list(
            dict.fromkeys(
                (f"evict_{r['quota_type']}", r["rule"])
                for r in of_topic(rows["backlog_evictions"], topic)
            )
        )
        for topic in scene.topics[:3]
    }


def metrics(tables: dict[str, list[Json]], scene: Scene) -> None:
    """The view `backlog_metrics` has the broker's names and labels, and its limits."""
    ours = {
        (
            r["metric"],
            frozenset(
                (k, r[k])
                for k in ("cluster", "namespace", "topic", "quota_type")
                if r[k] is not None
            ),
        ): r["value"]
        for r in asked(tables, "backlog_metrics")
    }
    now = scene.pulsar.metrics()
    topics = {f"persistent://{t}" for t in scene.topics}
    of_topics = {
        (name, labels)
        for name, labels in now
        if name.startswith("pulsar_storage_backlog") and dict(labels).get("topic") in topics
    }
    assert {key for key in ours if "topic" in dict(key[1])} <= of_topics
    assert {name for name, _ in of_topics} == {
        name for name, labels in ours if "topic" in dict(labels)
    }
    limits = [key for key in of_topics if key[0].startswith("pulsar_storage_backlog_quota_limit")]
    assert {key: ours[key] for key in limits} == {key: now[key] for key in limits}
    totals = {key for key in ours if key[0] == BROKER_EVICTED}
    assert {dict(labels)["quota_type"] for _, labels in totals} == {"size", "time"}
    assert totals <= set(now)
