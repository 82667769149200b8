"""What tests share of charges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from tests.support.throttle_rows import COMMON, OTHER, START_MS, TOPIC, event, window, write

Json = dict[str, Any]
Ask = Callable[..., list[Json]]
BILLS = "persistent://corp/bills/sent"
OWNERS = [
    {"topic": "acme/orders/paid", "team": "payments", "contact": "#pay", "cost_centre": "4711"},
    {"tenant": "acme", "team": "shop", "contact": "#shop"},
    {"namespace": "corp/*", "cluster": "e?st", "team": "books"},
    {"principal": "etl*", "team": "data", "cost_centre": "1"},
]
MINUTE = 60_000


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """The rows of a question over tables of rows."""

    def answer(question: str, *params: str, **tables: list[Json]) -> list[Json]:
        warehouse, config = tmp_path / "warehouse", tmp_path / "weir.yaml"
        (tmp_path / "owners.yaml").write_text(json.dumps(OWNERS))
        config.write_text(f"warehouse: {warehouse}\nowner_files: [owners.yaml]\n")
        for name, rows in tables.items():
            write(str(warehouse), name, rows)
        words = [word for param in params for word in ("--param", param)]
        assert main(["query", question, "--config", str(config), "--json", *words]) == 0
        found: list[Json] = json.loads(capsys.readouterr().out)
        return found

    return answer


PAUSES = [
    # The culprit's own limit pauses it and two others for 2 s, then one of them for 1 s.
    event(1000, "mark", collateral_topics=[OTHER, BILLS]),
    event(3000, "unmark"),
    event(5000, "mark", collateral_topics=[OTHER]),
    event(6000, "unmark"),
    # Another culprit pauses one of them for 1 s on a connection of its own.
    event(7000, "mark", cnx_id="c2", topic=BILLS, culprit_topic=BILLS, collateral_topics=[OTHER]),
    event(8000, "unmark", cnx_id="c2", topic=BILLS, culprit_topic=BILLS),
    # A limit that is shared has no culprit.
    event(9000, "mark", limiter="broker", collateral_topics=[OTHER]),
    event(10_000, "unmark", limiter="broker"),
]
STATS = [
    window(0, topic=OTHER, messages=1200, bytes=60, limit_msgs=100.0, limit_bytes=10.0),
    window(0, topic=BILLS, messages=4800, bytes=0, limit_msgs=100.0, limit_bytes=None),
]
PAIR = {
    "cluster": "east",
    "reason": "TopicProduceQuotaExceeded",
    "first_pause": "2023-11-14T22:14:01Z",
    "last_pause": "2023-11-14T22:14:05Z",
}
BLAMED: list[Json] = [
    {
        **PAIR,
        "culprit": TOPIC,
        "victim": OTHER,
        "pauses": 2,
        "paused_s": 3.0,
        "share_of_victims_pauses": 0.6,
        "victim_use": 0.2,
        "victim_below_half": True,
        "culprit_team": "shop",
        "culprit_contact": "#shop",
        "victim_team": "payments",
    },
    {
        **PAIR,
        "culprit": TOPIC,
        "victim": BILLS,
        "pauses": 1,
        "paused_s": 2.0,
        "share_of_victims_pauses": 2 / 3,
        "victim_use": 0.8,
        "victim_below_half": False,
        "culprit_team": "shop",
        "culprit_contact": "#shop",
        "victim_team": "books",
        "last_pause": "2023-11-14T22:14:01Z",
    },
    {
        **PAIR,
        "culprit": BILLS,
        "victim": OTHER,
        "pauses": 1,
        "paused_s": 1.0,
        "share_of_victims_pauses": 0.2,
        "victim_use": 0.2,
        "victim_below_half": True,
        "culprit_team": "books",
        "culprit_contact": None,
        "victim_team": "payments",
        "first_pause": "2023-11-14T22:14:07Z",
        "last_pause": "2023-11-14T22:14:07Z",
    },
]


def check(at_ms: int, size: int, topic: str = TOPIC) -> Json:
    return {
        **COMMON,
        "job": "backlog",
        "topic": topic,
        "pass_ms": START_MS + at_ms,
        "backlog_bytes": size,
    }


def cached(used: int, **changes: Any) -> Json:
    return {
        **COMMON,
        "job": "entry_cache",
        "policy": "expected_reads",
        "topic": TOPIC,
        "window_start_ms": START_MS,
        "window_ms": MINUTE,
        "used_bytes": used,
        **changes,
    }


def ids(user: str, new: int) -> Json:
    return {
        **COMMON,
        "job": "producer_ids",
        "user": user,
        "new_ids": new,
        "window_start_ms": START_MS,
        "window_ms": MINUTE,
    }


DECEMBER = 31 * 24 * 60
USED: dict[str, list[Json]] = {
    "topic_throttle_stats": [
        window(0, messages=10, bytes=100, culprit_ns=2_000_000_000),
        window(
            1, topic=OTHER, messages=1, bytes=5, collateral_ns=500_000_000, shared_ns=250_000_000
        ),
        window(0, topic=BILLS, messages=3, bytes=30),
        window(DECEMBER, messages=7, bytes=70),
    ],
    # 100 bytes for 60 s, 40 for 30 s; the last check ends nothing.
    "backlog_checks": [check(0, 100), check(60_000, 40), check(90_000, 9)],
    "cache_stats": [cached(50), cached(20, policy="lru"), cached(7, topic=None)],
    "producer_id_stats": [ids("etl-1", 4), ids("etl-2", 2), ids("bob", 1)],
}
NONE = {
    "cluster": "east",
    "month": "2023-11",
    "messages": 0,
    "bytes": 0,
    "paused_s": 0.0,
    "new_ids": 0,
    "backlog_byte_s": 0.0,
    "cache_byte_s": 0.0,
    "teams": None,
    "contacts": None,
    "cost_centres": None,
}
