"""Cases of real clusters in which large messages get stuck, run and asked about as a user does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.read.query import query
from app.run.service import run
from app.show import alerts
from app.show.explain.ask import Ask
from app.show.explain.explain_command import explain
from app.show.report.build import build
from app.show.report.model import Grid
from app.show.report.report_reader import ReportSpan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

CASES = Path(__file__).resolve().parents[1] / "data" / "cases"
BEHIND_TWO = "13 large messages stalled behind 5:102, whose chunks 0 and 1 are gone"
BEHIND_ONE = "1 large message stalled behind 5:0, whose chunk 0 is gone"
HANDED_BACK = "11 large messages stalled behind 5:2, whose chunks 0 and 1 are gone"
NAMES = {
    "as-seen": "pulsar-24-stalled-as-seen",
    "orphan": "pulsar-13-shared-without-chunk-0",
    "nacked": "pulsar-34-nacked-chunk",
}
"""Cluster of each case here."""


@pytest.fixture(scope="module")
def settings(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The warehouse of one run over the cases, a cluster each."""
    from app.config.settings import load_settings

    folder = tmp_path_factory.mktemp("cases")
    (folder / "in").mkdir()
    for cluster, case in NAMES.items():
        lines = (CASES / case / "in" / "events.ndjson").read_text().splitlines()
        rows = [{**json.loads(line), "cluster": cluster, "broker": cluster} for line in lines]
        (folder / "in" / f"{cluster}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    made = load_settings(
        None,
        {
            "warehouse": str(folder / "warehouse"),
            "partitions": 2,
            "queries": [["chunks"]],
            "source": {"format": "files", "path": str(folder / "in")},
        },
    )
    assert run(made, available_now=True, drain=True) == 0
    return made


@pytest.fixture
def answer(settings: Settings, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Any]:
    """The rows of a question or a query."""

    def asked(sql: str) -> Any:
        capsys.readouterr()
        assert query(settings, sql, "json") == 0
        return json.loads(capsys.readouterr().out)

    return asked


def test_a_subscription_that_is_sent_nothing_is_stalled_with_all_that_waits(
    answer: Callable[[str], Any],
) -> None:
    found = {row["cluster"]: row["stalled"] for row in answer("stalled-subscriptions")}
    assert found == {"as-seen": BEHIND_TWO, "orphan": BEHIND_ONE, "nacked": HANDED_BACK}
    rows = answer("""
        SELECT uuid, missing_chunks, first_position, next_chunk_id, consumer, stalled_at
        FROM incomplete_messages WHERE cluster = 'as-seen' AND window_start_ms =
          (SELECT max(window_start_ms) FROM incomplete_messages) ORDER BY row_no""")
    assert [row["uuid"] for row in rows] == [f"p-{i}" for i in range(13)]
    assert rows[0] == {
        "uuid": "p-0",
        "missing_chunks": [0, 1],
        "first_position": "5:102",
        "next_chunk_id": 0,
        "consumer": None,
        "stalled_at": "5:102",
    }
    assert rows[1]["missing_chunks"] == [] and rows[1]["first_position"] == "5:103"


def test_an_orphan_is_not_acknowledged_and_nothing_is_complete_behind_it(
    answer: Callable[[str], Any],
) -> None:
    assert answer("SELECT cluster, uuid FROM chunk_messages") == [
        {"cluster": "nacked", "uuid": "p-0"}
    ]
    decisions = answer("SELECT DISTINCT outcome, acks FROM chunk_events WHERE cluster <> 'nacked'")
    assert decisions == [{"outcome": "SHARED_ORPHAN", "acks": []}]
    assert answer("lost-messages") == []


def test_alert_report_and_explanation_say_the_same(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    alerts.check(settings, as_json=True)
    found = json.loads(capsys.readouterr().out)["firing"]
    firing = {row["labels"]["cluster"]: row for row in found}
    assert {name: row["alert"] for name, row in firing.items()} == dict.fromkeys(
        NAMES, "chunk-message-stuck"
    )
    assert BEHIND_TWO.removeprefix("13 large messages") in firing["as-seen"]["summary"]
    page = build(settings, ReportSpan())
    large = next(s for s in page.sections if s.key == "large-messages")
    assert {
        row["stalled"]
        for part in large.parts
        if isinstance(part, Grid)
        for row in part.rows
        if "stalled" in row
    } == {BEHIND_TWO, BEHIND_ONE, HANDED_BACK}
    sentence = " ".join(str(text) for s in page.sections for text in s.sentences)
    assert (
        "13 are stalled behind 5:102, whose chunks 0 and 1 are gone (subscription work)" in sentence
    )
    topic = "persistent://public/default/shared-chunks"
    ask = Ask.about("subscription", topic, "work", cluster="as-seen")
    assert explain(settings, ask) == 0
    assert BEHIND_TWO in " ".join(capsys.readouterr().out.split())
