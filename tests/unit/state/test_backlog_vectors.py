"""The job backlog on the vectors of the specification: core and reference alike."""

from __future__ import annotations

import pytest

from tests.unit.state import both
from tests.unit.state.backlog_trace import (
    EVICTION,
    T0,
    TOPIC,
    Row,
    created,
    cursor,
    entry,
    ledger,
    policy,
    quota,
)
from tests.unit.state.recorded import vectors

pytestmark = pytest.mark.usefixtures("runner")
VECTORS = "backlog.json"
PRECISE = {"preciseTimeBasedBacklogQuotaCheck": True, "backlogQuotaCheckIntervalInSeconds": 1}
BY_LEDGER = {"backlogQuotaCheckIntervalInSeconds": 1}


def by_id(target: str) -> dict[str, Row]:
    return {v["id"]: v for v in vectors(VECTORS, target)}


def rows_of(
    records: list[Row], until_ms: int, params: Row | None = None, table: str = "backlog_checks"
) -> list[Row]:
    """Rows of one table, `until_ms` counted from the start."""
    chosen = {**PRECISE, "check_rows": "all", **(params or {})}
    return both.judge("backlog", records, chosen, until_ms=T0 + until_ms)[table]


def ledgers(vector: Row, at_ms: int = 0) -> list[Row]:
    close = vector["params"].get("close_ms", {})
    return [
        ledger(
            at_ms,
            x["ledger"],
            x["entries"],
            x["bytes"],
            close.get(str(x["ledger"]), T0 - 1000) if x["closed"] else None,
        )
        for x in vector["params"]["ledgers"]
    ]


@pytest.mark.parametrize("vector", vectors(VECTORS, "backlog_size"), ids=lambda v: v["id"])
def test_size(vector: Row) -> None:
    records = [*ledgers(vector), cursor(0, "s", vector["given"]["mark_delete"])]
    for estimate, expected in vector["expect"].items():
        params = {"size_estimate": estimate}
        assert rows_of(records, 1, params)[0]["backlog_bytes"] == expected
        (sub,) = rows_of(records, 1, params, "backlog_subscriptions")
        assert sub["backlog_bytes"] == expected


@pytest.mark.parametrize("name", ("BL3", "BL4"))
def test_entries_to_skip(name: str) -> None:
    v = by_id("eviction_skip")[name]
    given, expect = v["given"], v["expect"]
    records = [
        policy(0, "topic", TOPIC, **quota(given["limit_bytes"], retention=EVICTION)),
        ledger(0, 1, given["entries"], given["backlog_bytes"]),
        cursor(0, "s", "1:-1"),
    ]
    for rule in ("every_call", "evicted_only"):
        (row,) = rows_of(records, 1, {"eviction_count_rule": rule}, "backlog_evictions")
        assert row["factor"] == pytest.approx(expect["factor"], abs=1e-12)
        assert (row["entries_skipped"], row["phantom"]) == (expect["skip"], expect["skip"] == 0)
        assert row["count_delta"] == int(rule == "every_call" or expect["skip"] > 0)
        assert row["target_bytes"] == int(0.9 * given["limit_bytes"])
        assert row["rule"] == ("target_reached" if expect["skip"] else "skip_zero")


@pytest.mark.parametrize("vector", vectors(VECTORS, "exceeded_size"), ids=lambda v: v["id"])
def test_exceeded_size(vector: Row) -> None:
    limit, size = (vector["given"][k] for k in ("limit_bytes", "backlog_bytes"))
    records = [
        policy(0, "topic", TOPIC, **quota(limit)),
        ledger(0, 1, 1, size),
        cursor(0, "s", "1:-1"),
    ]
    (row,) = rows_of(records, 1)
    assert row["limit_bytes"] == (limit if limit >= 0 else None)
    assert row["exceeded_size"] == (vector["expect"]["result"] == "exceeded")


@pytest.mark.parametrize("vector", vectors(VECTORS, "exceeded_time"), ids=lambda v: v["id"])
def test_exceeded_time(vector: Row) -> None:
    limit, timestamp, now = (vector["given"][k] for k in ("limit_s", "timestamp_ms", "now_ms"))
    at = now - timestamp
    records = [
        policy(0, "topic", TOPIC, **quota(seconds=limit)),
        ledger(0, 1, 1, 10),
        cursor(0, "s", "1:-1", publish_time_ms=T0),
        created(at, 1),
    ]
    refusals = rows_of(records, at + 1, table="producer_refusals")
    assert bool(refusals) == vector["expect"]["exceeded"]
    checks = rows_of([{**r, "publish_time_ms": T0 + 20_000 - at} for r in records], 20_001)
    assert checks[-1]["exceeded_time"] == vector["expect"]["exceeded"]


def test_estimated_age() -> None:
    v = by_id("age")["BL7"]
    records = [*ledgers(v), cursor(0, "s", v["given"]["mark_delete"])]
    (row,) = rows_of(
        records,
        1,
        {
            **BY_LEDGER,
            "preciseTimeBasedBacklogQuotaCheck": False,
            "backlogQuotaDefaultLimitSecond": 1,
        },
    )
    assert {k: row[k] for k in v["expect"]} == v["expect"]
    assert (row["age_state"], row["timestamp_source"]) == ("no_estimate", "none")
    v = by_id("age")["BL8"]
    records = [*ledgers(v), cursor(0, "s", v["given"]["mark_delete"])]
    (row,) = rows_of(records, 1, {"preciseTimeBasedBacklogQuotaCheck": False})
    assert row["oldest_timestamp_ms"] == v["expect"]["timestamp_ms"]
    assert row["timestamp_source"] == "ledger_close"


def test_the_mark_delete_enters_the_open_ledger() -> None:
    v = by_id("age")["BL15"]
    v["params"]["close_ms"] = {"2": T0 - 1000}
    for reset, expect in v["expect"].items():
        records = [*ledgers(v), cursor(0, "s", "2:98"), cursor(59_500, "s", "3:4")]
        row = rows_of(
            records, 59_001 + 1000, {"preciseTimeBasedBacklogQuotaCheck": False, "age_reset": reset}
        )[-1]
        assert row["age_state"] == expect["age_state"]
        assert row["age_s"] == (-1 if reset == "reset" else 61)
        assert row["oldest_timestamp_ms"] == (None if reset == "reset" else T0 - 1000)


def test_both_limits_exceeded() -> None:
    v = by_id("check")["BL9"]
    records = [
        policy(0, "topic", TOPIC, **quota(100, 1, v["params"]["policy"])),
        ledger(0, 1, 10, 1000),
        cursor(0, "s", "1:-1", publish_time_ms=T0 - 60_000),
    ]
    (row,) = rows_of(records, 1)
    assert (row["rule"], row["action"]) == ("size_masks_time", "evict_size")
    evictions = rows_of(records, 1, table="backlog_evictions")
    assert [(r["quota_type"], r["count_delta"]) for r in evictions] == [("size", 1)]
    assert v["expect"]["eviction_count_delta"] == {"size": 1, "time": 0}
    assert row["exceeded_size"] and row["exceeded_time"]


def test_oldest_subscription() -> None:
    now, marks, published = 0, {"c1": -1, "c2": -1}, 0
    records = [ledger(0, 1, 0, 0), cursor(0, "c1", "1:-1"), cursor(0, "c2", "1:-1")]
    expected = []
    for step in by_id("age")["BL10"]["steps"]:
        now += 10
        if step["op"] == "publish":
            records += [entry(now + i, 1, i) for i in range(step["count"])]
            published = T0 + now
        elif step["op"] == "check":
            now += 1000
            expected.append((T0 + now // 1000 * 1000, step["expect"]["subscription"]))
        else:
            name = step["subscription"]
            marks[name] = -1 if step["op"] == "seek" else marks[name] + step["entries"]
            records.append(cursor(now, name, f"1:{marks[name]}"))
    rows = {r["pass_ms"]: r for r in rows_of(records, now + 1000)}
    for at, name in expected:
        assert rows[at]["oldest_subscription"] == name
        assert rows[at]["oldest_timestamp_ms"] == published
    assert rows[expected[-1][0]]["timestamp_source"] == "kept"


def test_everything_acknowledged() -> None:
    records = [
        ledger(0, 1, 5, 500),
        cursor(0, "s", "1:-1", publish_time_ms=T0 - 5000),
        cursor(500, "s", "1:4"),
    ]
    for empty, expect in by_id("age")["BL11"]["expect"].items():
        first, second = rows_of(records, 1001, {"age_when_empty": empty})
        assert (first["age_s"], first["age_state"]) == (5, "known")
        assert (second["age_s"], second["age_state"]) == (expect["age_s"], "no_backlog")
        assert second["oldest_timestamp_ms"] is None


@pytest.mark.parametrize("vector", vectors(VECTORS, "time_eviction"), ids=lambda v: v["id"])
def test_time_eviction(vector: Row) -> None:
    limit, expect = vector["given"]["limit_s"], vector["expect"]
    records = [
        policy(0, "topic", TOPIC, **quota(seconds=limit, retention=EVICTION)),
        ledger(0, 1, 0, 0),
        cursor(0, "s", "1:-1"),
        entry(0, 1, 0),
    ]
    (row,) = rows_of(records, limit * 1000 + 1001, table="backlog_evictions")
    assert (row["rule"], row["expire_older_than_s"]) == ("expired", expect["expire_older_than_s"])
    assert (row["entries_skipped"] > 0) == expect["anything_expires"] == (not row["phantom"])


def test_slowest_cursor_is_that_of_deduplication() -> None:
    v = by_id("action")["BL13"]
    records = [
        policy(0, "topic", TOPIC, **quota(100, retention=v["params"]["policy"])),
        created(0, 1),
        ledger(0, 1, 10, 1000),
        cursor(0, "pulsar.dedup", "1:-1"),
        cursor(0, "s", "1:3"),
    ]
    (row,) = rows_of(records, 1)
    assert {k: row[k] for k in v["expect"]} == v["expect"]
    assert row["rule"] == "deduplication_cursor"


def test_only_readers() -> None:
    v = by_id("check")["BL14"]
    given, params = v["given"], v["params"]
    size = given["entries"] * given["entry_bytes"]
    records = [
        policy(0, "topic", TOPIC, **quota(params["limit_bytes"], retention=params["policy"])),
        ledger(0, 1, given["entries"], size),
        cursor(0, "r", "1:-1", durable=False),
        created(500, 1),
    ]
    (row,) = rows_of(records, 1)
    assert {k: row[k] for k in ("backlog_bytes", "exceeded_size")} == {
        k: v["expect"][k] for k in ("backlog_bytes", "exceeded_size")
    }
    assert row["age_state"] == "no_durable_cursor"
    assert rows_of(records, 1, table="producer_refusals") == []


def test_size_eviction() -> None:
    v = by_id("size_eviction")["BL16"]
    given, expect = v["given"], v["expect"]
    records = [policy(0, "topic", TOPIC, **quota(given["limit_bytes"], retention=EVICTION))]
    records += [
        ledger(0, x["ledger"], x["entries"], x["bytes"], T0 - 1 if x["closed"] else None)
        for x in given["ledgers"]
    ]
    records += [cursor(0, c["subscription"], c["mark_delete"]) for c in given["cursors"]]
    (row,) = rows_of(records, 1, {"eviction_count_rule": "every_call"}, "backlog_evictions")
    assert {k: row[k] for k in expect} == pytest.approx(expect, abs=v["params"]["tolerance"])
    assert {
        r["subscription"]: r["backlog_entries"]
        for r in rows_of(records, 1, table="backlog_subscriptions")
    } == {c["subscription"]: c["backlog_entries"] for c in given["cursors"]}
