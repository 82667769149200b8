"""The command `policy suggest dispatch` over an archive."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from app.cli import main
from app.config.settings import Settings
from app.warehouse.tables import TABLES

START_MS, START_NS = 1_767_621_600_000, 100_000_000_000
LATER_MS = START_MS + 86_400_000
"""When the records were archived."""
SCHEMA = TABLES["events"].schema


def event(at_ms: int, seq: int, **columns: Any) -> dict[str, Any]:
    filled = {
        "event_type": "dispatch",
        "source_feed": "f",
        "cluster": "c",
        "broker": "b",
        "seq": seq,
        "ts_mono_ns": START_NS + at_ms * 1_000_000,
        "ts_wall_ms": START_MS + at_ms,
        "topic": "persistent://t/ns/a",
        "subscription": "s1",
        "consumer": "x",
        "ledger_id": 1,
        "entry_id": seq,
        "num_messages": 4,
        "entry_bytes": 100,
        "source_partition": "0",
        "source_offset": seq,
        "ingest_ms": LATER_MS,
        "event_date": None,
        **columns,
    }
    return {name: filled.get(name) for name in SCHEMA.names}


@pytest.fixture
def warehouse(make_settings: Callable[..., Settings]) -> str:
    """Two subscriptions of a topic, each sent 4 messages every 100 ms for a second."""
    rows = [
        event(100 * i, 2 * i + j, subscription=f"s{j + 1}") for i in range(10) for j in range(2)
    ]
    rows.append(event(900, 18, subscription="s1"))  # the same record once more
    rows.append(event(0, 100, topic="persistent://t/ns/quiet", num_messages=None))
    path = make_settings().warehouse
    write_deltalake(f"{path}/events", pa.Table.from_pylist(rows, SCHEMA))
    return path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    done = main(["policy", "suggest", "dispatch", *arguments, "--json"])
    assert done == 0
    return json.loads(capsys.readouterr().out)


def test_by_topic_and_by_subscription(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    topics = answer(capsys, "--msgs", "20", "--warehouse", warehouse)
    assert [(r["topic"], r["dispatches"], r["messages"], r["held"]) for r in topics] == [
        ("persistent://t/ns/a", 20, 80, 15),
        ("persistent://t/ns/quiet", 1, 1, 0),
    ]
    each = answer(capsys, "--msgs", "20", "--by", "subscription", "--warehouse", warehouse)
    assert [(r["subscription"], r["dispatches"], r["held"]) for r in each] == [
        ("s1", 10, 5),
        ("s2", 10, 5),
        ("s1", 1, 0),
    ]


def test_a_longer_period_and_bytes(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    (first, _) = answer(capsys, "--bytes", "1000", "--period-s", "10", "--warehouse", warehouse)
    assert (first["bytes"], first["held"], first["held_share"]) == (2000, 10, 0.5)


def test_a_limit_is_needed(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "suggest", "dispatch", "--warehouse", warehouse]) == 2
    assert "give a limit: --msgs N, --bytes N" in capsys.readouterr().err
    assert main(["policy", "suggest", "dispatch", "--by", "broker", "--warehouse", warehouse]) == 2
    assert "allowed: topic, subscription" in capsys.readouterr().err
