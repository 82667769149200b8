"""Polls of Kafka clusters as people have posted them, in columns that feeds have had before."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.state.backlog_trace import numbered, play
from tests.unit.state.shipping import Row

CASES = Path(__file__).resolve().parents[2] / "data" / "cases"


def judged(case: str, seconds: int, **params: object) -> dict[str, list[Row]]:
    """Rows of a case, up to some seconds after its last record; what the contract refuses is left
    out, as the router does."""
    lines = (CASES / case / "in" / "events.ndjson").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    valid = [
        r
        for r in records
        if r["event_type"] != "cursor_state" or (r.get("mark_delete") or "0:-2") != "0:-2"
    ]
    end = max(r["ts_wall_ms"] for r in records) + 1000 * seconds
    return play([numbered(valid)], params, [], end)


def test_groups_ahead_of_their_log() -> None:
    """confluentinc/kafka#101, redpanda-data/redpanda#4589: a lag of Kafka's own number, no rate."""
    found = judged("kafka-03-negative-lag", 1, check_rows="all")
    assert set(found) == {"group_lag", "group_states"}
    ahead = [r for r in found["group_lag"] if r["group"] == "etl-photos"]
    assert {r["state"] for r in ahead} == {"ahead"}
    first = {r["partition"]: (r["committed"], r["log_end"], r["lag"]) for r in ahead[::-1]}
    assert first == {
        0: (2020, 1611, -409),
        1: (2128, 1667, -461),
        2: (2239, 1653, -586),
        3: (3787, 1678, -2109),
    }
    assert all(
        r[c] is None
        for r in ahead
        for c in ("lag_growth", "commit_rate", "time_to_drain_s", "time_to_loss_s", "age_s")
    )
    assert [(r["partition"], r["state"], r["before"]) for r in found["group_states"]] == [
        (i, "ahead", None) for i in range(4)
    ]
    last = [r for r in found["group_lag"] if r["group"] == "g"][-1]
    assert (last["topic"], last["partition"], last["lag"], last["commit_rate"]) == ("a", 2, 40, 0.0)


def test_a_topic_and_a_group_that_are_gone() -> None:
    """seglo/kafka-lag-exporter#478: they have a last row, and no later one."""
    found = judged("kafka-07-recreated", 61)
    assert set(found) == {"group_lag", "group_states"}
    begin = 1_795_620_000_000
    last = {(r["topic"], r["group"]): r for r in found["group_lag"]}
    assert {of: (r["state"], (r["pass_ms"] - begin) // 60_000) for of, r in last.items()} == {
        ("rebuilt", "rb"): ("gone", 5),
        ("expired-offsets", "weekly"): ("offsets_expired", 5),
        ("steady", "s"): ("committed", 20),
    }
    assert [
        (r["topic"], r["group"], r["state"], r["before"], r["unread"])
        for r in found["group_states"]
    ] == [
        ("expired-offsets", "weekly", "offsets_expired", "committed", 30),
        ("rebuilt", "rb", "gone", "committed", None),
    ]
    steady = [r for r in found["group_lag"] if r["group"] == "s"]
    assert [(r["age_s"], r["time_to_loss_s"]) for r in steady[:2]] == [(1, 599.0), (61, 539.0)]
    assert steady[-1]["time_to_loss_s"] == 0.0, "its record is older than the retention"
