"""The command `policy suggest producer-ids` over an archive."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from app.cli import main
from app.config.settings import Settings, load_settings
from app.jobs.producer_ids.whatif.suggest import advice, advise
from app.tables.definitions import TABLES
from app.tables.small_files import path_in
from tests.support.producer_quota import SCHEMA, START_MS, archive, batch, trace
from tests.unit.state.producer_id_trace import play

WINDOW_MS = 60_000
NUM = 3
"""Samples: a bound of 1 is a burst of 3."""
WEIR_KEYS = {
    "membership": "exact",
    "producer.id.quota.window.num": NUM,
    "producer.id.quota.window.size.seconds": 600,
}


@pytest.fixture
def configured(make_settings: Callable[..., Settings], tmp_path: Any) -> Settings:
    return make_settings(
        producer_ids=WEIR_KEYS,
        stats_window_ms=WINDOW_MS,
        policies=[
            {"scope": "user", "name": "<default>", "limits": {"producer_ids_rate": 7}},
            {"scope": "user", "name": "busy", "limits": {"producer_ids_rate": 30}},
        ],
    )


def advised(settings: Settings, share: float = 0.01) -> dict[str, dict[str, Any]]:
    return {row["user"]: row for row in advice(settings, share)}


def slowed_windows(records: list[dict[str, Any]], user: str, bound: float) -> tuple[int, int]:
    """Windows of a user, and those with a throttled or rejected id, under one bound."""
    policy = {"scope": "user", "name": user, "limits": {"producer_ids_rate": bound}}
    numbered = [{**r, "source_offset": i} for i, r in enumerate(records)]
    rows = play(
        [numbered],
        {**WEIR_KEYS, "stats_window_ms": WINDOW_MS},
        [json.dumps(policy)],
        records[-1]["ts_wall_ms"] + WINDOW_MS,
    )["producer_id_stats"]
    mine = [r for r in rows if r["user"] == user]
    return len(mine), sum(r["throttle_time_avg_ms"] is not None for r in mine)


def test_each_user_is_told_the_smallest_rate_that_is_enough(configured: Settings) -> None:
    records = trace()
    archive(configured, records)
    rows = advised(configured)
    assert {u: (r["new_ids"], r["rate_in_force"]) for u, r in rows.items()} == {
        "few": (2, 7.0),
        "busy": (60, 30.0),
        "storm": (600, 7.0),
    }
    for user, row in rows.items():
        windows, bad = slowed_windows(records, user, row["rate_advised"])
        assert windows == row["windows"]
        assert bad <= 0.01 * windows
        if row["rate_advised"]:
            _, bad = slowed_windows(records, user, row["rate_advised"] - 1)
            assert bad > 0.01 * windows, user
    assert rows["few"]["rate_advised"] == 1
    assert 100 < rows["storm"]["rate_advised"] <= 200  # its burst has to hold 600 ids


def test_the_printed_table_explains_what_is_counted(
    configured: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(configured, trace())
    assert advise(configured) == 0
    assert "an id that several brokers see counts once for each of them" in capsys.readouterr().out
    assert advise(configured, as_json=True) == 0
    change = {row["user"]: row["change"] for row in json.loads(capsys.readouterr().out)}
    assert (change["storm"], change["few"]) == ("raise", "cut")  # 7 are in force


def test_the_rates_become_policies_with_headroom(
    configured: Settings, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    hostile = ["a*[b]: - #", "<default>", "\u202e\x1b[31m"]
    records = trace()
    records += [
        batch(5000 + i, 1000 * i, user, 90_000 + 10 * j + i)
        for j, user in enumerate(hostile)
        for i in range(2)
    ]
    archive(configured, records)
    out = tmp_path / "users.yaml"
    words = ["policy", "suggest", "producer-ids", "--headroom", "0.5", "--out", str(out)]
    config = tmp_path / "weir.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "warehouse": configured.warehouse,
                "producer_ids": WEIR_KEYS,
                "stats_window_ms": WINDOW_MS,
                "source": {"format": "files", "path": "in"},
            }
        ),
        encoding="utf-8",
    )
    assert main([*words, "--config", str(config)]) == 0
    assert "1 without a limit" in capsys.readouterr().out
    rates = {user: row["rate_advised"] for user, row in advised(configured).items()}
    assert main(["policy", "check", str(out)]) == 0
    config.write_text(config.read_text() + "policies: users.yaml\n", encoding="utf-8")
    kept = {
        d["name"]: d["limits"]["producer_ids_rate"] for d in load_settings(config).policy_dicts()
    }
    assert kept == {
        user: rate + math.ceil(0.5 * rate) for user, rate in rates.items() if user != "<default>"
    }
    assert set(kept) == {"few", "busy", "storm", "a*[b]: - #", "\u202e\x1b[31m"}


def test_a_share_of_windows_may_be_slowed(configured: Settings) -> None:
    archive(configured, trace())
    # one window in ten is the storm's: with that much patience any rate does
    rows = advised(configured, share=0.2)
    assert rows["storm"]["rate_advised"] < advised(configured)["storm"]["rate_advised"]


def test_policies_of_users_in_the_archive_do_not_count_but_say_what_is_in_force(
    configured: Settings,
) -> None:
    own = {"scope": "user", "name": "busy", "limits": {"producer_ids_rate": 1}}
    records = trace()
    records.append(
        {
            **batch(len(records), 0, "", 0),
            "event_type": "policy",
            "principal": None,
            "producer_id": None,
            "topic": None,
            "policy_json": json.dumps(own),
        }
    )
    archive(configured, trace())
    before = advised(configured)["busy"]
    write_deltalake(
        path_in(configured.location, "events"), pa.Table.from_pylist([], SCHEMA), mode="overwrite"
    )
    rows = [
        {
            **dict.fromkeys(SCHEMA.names),
            **r,
            "source_partition": "0",
            "source_offset": i,
            "ingest_ms": START_MS + 86_400_000,
            "event_date": datetime.fromtimestamp(START_MS / 1000, UTC).date(),
        }
        for i, r in enumerate(records)
    ]
    write_deltalake(
        path_in(configured.location, "events"), pa.Table.from_pylist(rows, SCHEMA), mode="append"
    )
    after = advised(configured)["busy"]
    assert after["rate_in_force"] == 1.0
    assert after["rate_advised"] == before["rate_advised"]


def test_users_of_two_clusters_are_kept_apart(configured: Settings) -> None:
    records = trace()
    other = [
        {**r, "cluster": "d", "principal": "User:storm"}
        for r in records
        if r["principal"] == "User:busy"
    ]
    archive(configured, records + other)
    rows = {(r["cluster"], r["user"]): r for r in advice(configured, 0.01)}
    assert rows["d", "storm"]["rate_advised"] == rows["c", "busy"]["rate_advised"]
    assert rows["c", "storm"]["rate_advised"] > rows["d", "storm"]["rate_advised"]


def test_an_empty_archive_is_said(
    make_settings: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings()
    write_deltalake(path_in(settings.location, "alerts"), TABLES["alerts"].schema.empty_table())
    assert main(["policy", "suggest", "producer-ids", "--warehouse", settings.warehouse]) == 2
    assert "the archive is empty" in capsys.readouterr().err
