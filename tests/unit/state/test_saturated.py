"""A recorded broker whose producers never stop: Weir has the broker's own numbers."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from state.events import COLUMNS
from tests.support.recording.saturated import (
    CROWD,
    HOT,
    OF_GROUP,
    OF_NAMESPACE,
    OUT,
    OUT_OF_BROKER,
    SHARED,
    VICTIMS,
    pauses,
    reported,
)
from tests.unit.state.contract.jobs import JOBS, Rows, Sample
from tests.unit.state.shipping import Row, params_of

BATCH = 5000


@cache
def records_of(folder: Path) -> list[Row]:
    lines = gzip.decompress((folder / "events.ndjson.gz").read_bytes()).splitlines()
    nothing = {column.name: None for column in COLUMNS}
    return sorted(
        ({**nothing, **json.loads(line)} for line in lines),
        key=lambda r: (r["ts_mono_ns"], r["seq"]),
    )


@pytest.fixture
def records() -> list[Row]:
    return records_of(OUT)


def judged(records: list[Row], **params: Any) -> Rows:
    job = JOBS["rate_limits"]
    read = job.read(records)
    by = Sample(
        (), params_of("rate_limits", **params), (), max(r["ts_wall_ms"] for r in records) + 120_000
    )
    return job.play([read[i : i + BATCH] for i in range(0, len(read), BATCH)], by)


@cache
def rows_of(folder: Path) -> Rows:
    return judged(records_of(folder))


@pytest.fixture
def rows() -> Rows:
    return rows_of(OUT)


def sums(rows: Rows, *names: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, Counter[str]] = {}
    for r in rows["topic_throttle_stats"]:
        found.setdefault(r["topic"], Counter()).update({name: r[name] for name in names})
    return {topic: tuple(counts[name] for name in names) for topic, counts in found.items()}


def computed(rows: Rows) -> dict[str, tuple[int, int]]:
    return pauses(
        (r["cnx_id"], r["ts_mono_ns"], r["reads_paused"]) for r in rows["throttle_events"]
    )


@pytest.mark.parametrize("folder", [OUT, OUT_OF_BROKER], ids=lambda folder: folder.name)
def test_every_topic_is_limited_as_often_as_the_broker_counted(folder: Path) -> None:
    topics = json.loads((folder / "numbers.json").read_text())["topics"]
    found = sums(rows_of(folder), "limited_times", "messages")
    assert {topic: found[topic] for topic in topics} == {
        topic: (counted["limited_times"], counted["messages"]) for topic, counted in topics.items()
    }


@pytest.mark.parametrize(("folder", "least"), [(OUT, 1500), (OUT_OF_BROKER, 300)])
def test_every_reported_pause_is_there_with_its_length(folder: Path, least: int) -> None:
    found = computed(rows_of(folder))
    assert found == reported(records_of(folder))
    assert sum(count for count, _ in found.values()) > least


def test_the_limit_of_the_broker_is_everybodys() -> None:
    found = sums(rows_of(OUT_OF_BROKER), "culprit_times", "shared_times", "collateral_times")
    for topic in CROWD:
        assert (found[topic][0], found[topic][2]) == (0, 0) and found[topic][1] > 0


def test_culprits_and_victims_are_those_of_the_scenario(rows: Rows) -> None:
    found = sums(rows, "culprit_times", "shared_times", "collateral_times")
    assert found[HOT][1:] == (0, 0) and found[HOT][0] > 0
    assert found[SHARED][1:] == (0, 0) and found[SHARED][0] > 0
    for victim in VICTIMS:
        assert found[victim][:2] == (0, 0) and found[victim][2] > 0
    for topic in OF_GROUP:
        assert (found[topic][0], found[topic][2]) == (0, 0) and found[topic][1] > 0
    a, b = (found[topic] for topic in OF_NAMESPACE)
    assert (a[0], a[2]) == (b[2], b[0]) and a[0] > 0 and b[0] > 0


def test_the_model_predicts_most_of_the_pauses_of_a_connection_alone(rows: Rows) -> None:
    """Nine of ten and more where one connection uses the limit; others charge it unseen ms apart."""
    counts: dict[str, tuple[int, int]] = {}
    for r in rows["limiter_stats"]:
        observed, predicted = counts.get(r["limiter_name"], (0, 0))
        counts[r["limiter_name"]] = (
            observed + r["observed_pauses"],
            predicted + r["predicted_pauses"],
        )
    for name, least in (
        (HOT, 0.95),
        (OF_NAMESPACE[0], 0.9),
        (OF_NAMESPACE[1], 0.9),
        (SHARED, 0.7),
        ("sat", 0.7),
    ):
        observed, predicted = counts[name]
        assert least <= predicted / observed <= 1, name


def test_the_model_alone_loses_count(records: list[Row], rows: Rows) -> None:
    """Why reports correct it: a connection that publishes would still be paused."""
    alone = computed(judged(records, observed_pauses="ignore"))
    happened = reported(records)
    pause_count = sum(count for count, _ in alone.values())
    assert pause_count < 0.9 * sum(count for count, _ in happened.values())
