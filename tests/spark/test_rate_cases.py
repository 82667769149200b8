"""Publish limits as real clusters have them: pairs of rates of 0, and the broker's own topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.config.settings import load_settings
from app.run.service import run
from tests.support.backlog_views import stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = Path(__file__).resolve().parents[1] / "data" / "cases"
ZERO = "pulsar-09-rates-of-zero"
EVENTS = "persistent://acme/zero/__change_events"
PAIRS: dict[str, tuple[dict[str, int], bool]] = {
    "case": ({}, True),
    "none": ({"publishRateInMsgs": -1, "publishRateInBytes": -1}, True),
    "mixed": ({"publishRateInMsgs": 0, "publishRateInBytes": -1}, True),
    "bytes": ({"publishRateInMsgs": 0, "publishRateInBytes": 1_000_000}, False),
    "messages": ({"publishRateInMsgs": 1000, "publishRateInBytes": 0}, False),
}
"""By cluster the pair of rates of the topic, above a namespace of 0 and 0, and whether the broker's
10 messages a second decide."""


def records() -> list[dict[str, Any]]:
    """The case, once for each pair, and once published by a system topic."""
    lines = (CASES / ZERO / "events.ndjson").read_text().splitlines()
    case = [json.loads(line) for line in lines]
    found: list[dict[str, Any]] = []
    for cluster, (limits, _) in PAIRS.items():
        found += [{**r, "cluster": cluster} for r in case]
        if limits:
            document = {"scope": "topic", "name": "acme/zero/t", "limits": limits}
            found.append(
                {
                    **case[1],
                    "cluster": cluster,
                    "broker": "*",
                    "seq": 4,
                    "policy_json": json.dumps(document),
                }
            )
    found += [
        {**r, "cluster": "system", **({"topic": EVENTS} if "topic" in r else {})} for r in case
    ]
    return found


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("rates")
    (folder / "in").mkdir()
    (folder / "in" / "events.ndjson").write_text("".join(json.dumps(r) + "\n" for r in records()))
    settings = load_settings(
        None,
        {
            "warehouse": str(folder / "wh"),
            "partitions": 2,
            "alerts": None,
            "max_future_ms": 2**45,
            "source": {"format": "files", "path": str(folder / "in")},
        },
    )
    assert run(settings, available_now=True) == 0
    return stored(settings, ["throttle_events", "topic_throttle_stats", "quarantine"])


def test_without_a_rate_above_zero_the_next_level_decides(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    marked = {
        r["cluster"]: r["ts_wall_ms"] % 1000
        for r in reversed(tables["throttle_events"])
        if r["action"] == "mark"
    }
    assert marked == {cluster: 65 for cluster, (_, limited) in PAIRS.items() if limited}


def test_a_system_topic_has_no_publish_limit(tables: dict[str, list[dict[str, Any]]]) -> None:
    found = [
        (r["messages"], r["limited_times"], r["limit_msgs"])
        for r in tables["topic_throttle_stats"]
        if r["cluster"] == "system"
    ]
    assert found == [(12, 0, None)]
    assert tables["quarantine"] == []
