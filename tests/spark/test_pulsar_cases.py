"""Recorded polls of real Pulsar clusters, run and asked as a user does."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from app.cli import main
from app.config.pulsar_admin import PulsarAdminSettings
from app.config.settings import load_settings
from app.run.service import run
from tests.support.recorded_polls import convert
from tests.unit.state.recorded_polls import CASES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = (
    "02-replicator-behind",
    "03-change-events",
    "04-compaction-set-back",
    "05-no-ledgers",
    "08-ack-holes",
    "17-ttl-before-quota",
    "21-bad-documents",
    "23-encoded-subscription",
)
SET_BACK = "persistent://public/__kafka/__consumer_offsets-partition-3"
ENCODED = "persistent://public/default/test-input"


@pytest.fixture(scope="module")
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(scope="module")
def warehouse(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, said: io.StringIO
) -> str:
    """The warehouse of one run over the polls of all cases."""
    folder = tmp_path_factory.mktemp("cases")
    (folder / "polls").mkdir()
    for name in NAMES:
        shutil.copy(CASES / f"pulsar-{name}" / "polls.ndjson", folder / "polls" / f"{name}.ndjson")
    done = convert(folder / "polls", folder / "in", PulsarAdminSettings(cluster="standalone"))
    said.write(done.text())
    settings = load_settings(
        None,
        {
            "warehouse": str(folder / "warehouse"),
            "queries": [["backlog"]],
            "partitions": 2,
            "alerts": None,
            "source": {"format": "files", "path": str(folder / "in" / "polls")},
        },
    )
    assert run(settings, available_now=True) == 0
    return settings.warehouse


def answered(capsys: Any, *words: str) -> Any:
    """The JSON that a command prints."""
    capsys.readouterr()
    code = main([*words, "--json"])
    out, err = capsys.readouterr()
    assert code in (0, 1), err
    return json.loads(out)


def test_every_problem_is_said_and_kept(warehouse: str, said: io.StringIO, capsys: Any) -> None:
    lines = said.getvalue().splitlines()
    first = next(i for i, line in enumerate(lines) if "recorded polls, 23 problems" in line)
    told = [line.strip() for line in lines[first + 1 : first + 24]]
    kept = answered(
        capsys, "query", "SELECT reason_code, detail FROM quarantine", "--warehouse", warehouse
    )
    assert {row["reason_code"] for row in kept} == {"BAD_DOCUMENT"}
    assert len(kept) == len(told) == 23
    assert sum("HTTP 404 Not Found" in line for line in told) == 1
    assert sum("internal.ledgers: is missing" in row["detail"] for row in kept) == 4


def test_what_is_over_a_quota_is_only_what_a_broker_finds(warehouse: str, capsys: Any) -> None:
    rows = answered(
        capsys,
        "query",
        "SELECT DISTINCT topic, rule FROM backlog_checks"
        " WHERE rule <> 'within_limits' ORDER BY topic",
        "--warehouse",
        warehouse,
    )
    assert rows == [
        {"topic": "persistent://public/default/plain-input", "rule": "time_exceeded"},
        {"topic": ENCODED, "rule": "time_exceeded"},
    ]
    near = answered(capsys, "query", "backlog-near-quota", "--warehouse", warehouse)
    assert not [row for row in near if "__change_events" in row["topic"]]
    predicted = answered(capsys, "query", "forecasts", "--warehouse", warehouse)
    # Its answer has a ledger without a number: that of its metadata has five unread messages.
    assert [(row["kind"], row["entity"]) for row in predicted if not row["breached"]] == [
        ("backlog_age", "persistent://sre1/badging/odd")
    ]
    expiring = answered(capsys, "query", "expiring-messages", "--warehouse", warehouse)
    assert [(row["topic"], row["time_to_expiry_s"]) for row in expiring] == [
        ("persistent://acme/ttl/t", 300.0)
    ]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            f"subscription {SET_BACK} __compaction --at 2026-11-25T10:03:00Z",
            "it was set back from 2306104:0 to 1877:52, so its rates begin anew.",
        ),
        (
            "subscription persistent://acme/ttl/t s",
            "no quota will be reached; its messages expire unread from 2026-11-25T10:10:00Z on.",
        ),
        (
            "subscription persistent://acme/events/in-partition-0 processor",
            "with 3 entries (11,689,393 bytes) in its backlog",
        ),
        (
            "subscription persistent://acme/events/in-partition-0 processor",
            "8 ranges beyond 1995117:1014 are acknowledged one by one, and the first entry that is not is"
            " 1995117:1015",
        ),
        (f"subscription {ENCODED} billing:eu@night", "The time quota is exceeded"),
        (
            "topic persistent://acme/geo/clicks",
            "Replicator pulsar.repl.jp-west of persistent://acme/geo/clicks is at 700:11",
        ),
        (
            "topic persistent://acme/orders/__change_events",
            "it is a system topic, for which no quota holds",
        ),
        ("topic persistent://acme/geo/clicks", "no age (no_backlog: no subscription has any)"),
    ],
)
def test_explain_says_it(warehouse: str, capsys: Any, asked: str, text: str) -> None:
    found = answered(capsys, "explain", *asked.split(), "--warehouse", warehouse)
    texts = [sentence["text"] for sentence in found["sentences"]]
    assert any(text in each for each in texts), texts


def test_alerts_name_what_is_wrong_and_nothing_else(warehouse: str, capsys: Any) -> None:
    found = answered(capsys, "alerts", "check", "--warehouse", warehouse)
    fired = {(row["alert"], row["labels"].get("topic")) for row in found["firing"]}
    assert fired >= {("backlog-messages-expire", "persistent://acme/ttl/t")}
    assert not {topic for _, topic in fired if topic is not None} & {
        "persistent://acme/geo/clicks",
        "persistent://acme/orders/__change_events",
        SET_BACK,
        "persistent://acme/events/in-partition-0",
        "persistent://sre1/badging/perform_badging-partition-3",
    }
