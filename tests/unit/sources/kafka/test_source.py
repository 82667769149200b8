"""The source adapter: which folder is read, and when polls are made; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import sources
from app.config.kafka_groups import KafkaGroupsSettings
from app.errors import UserError
from app.sources.kafka import groups_poll
from tests.unit.sources import source_adapter
from tests.unit.sources.kafka.poll import Scripted

QUOTA = {"backlog_quota": {"message_age": {"limitTime": 60, "policy": "producer_exception"}}}
POLICIES = [
    {"scope": "topic", "name": "orders", "limits": QUOTA},
    {"scope": "topic", "name": "other", "limits": {"publishRateInMsgs": 5}},
    {"scope": "broker", "name": "*", "limits": {}},
]


def settings(tmp_path: Path, spool: str | None = None, **keys: Any) -> Any:
    groups = KafkaGroupsSettings(
        cluster="east", options={"bootstrap.servers": "h:1"}, interval_ms=50, spool=spool
    )
    given = source_adapter.settings(tmp_path, "kafka_groups", **{"groups": groups, **keys})
    given.policy_dicts = lambda: POLICIES
    return given


def test_polls_go_to_the_folder_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_poll, "GroupsClient", lambda *_: Scripted())
    monkeypatch.setattr(groups_poll, "answering", lambda options: None)
    folder = tmp_path / "w" / "_weir" / "polls" / "kafka_groups.east" / "polls"
    source_adapter.assert_polled(settings(tmp_path), folder)
    elsewhere = settings(tmp_path, spool=str(tmp_path / "s"))
    folder = tmp_path / "s" / "kafka_groups.east" / "polls"
    source_adapter.assert_polled(elsewhere, folder)


def test_configured_quotas_stay(tmp_path: Path) -> None:
    pattern = {"scope": "topics", "name": "pay-*", "limits": QUOTA}
    has_quota = groups_poll.own_quotas([*POLICIES, pattern])
    topics = ["orders", "other", "*", "pay-in", "repay-in"]
    assert [name for name in topics if has_quota(name)] == ["orders", "pay-in"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"warehouse": "s3://bucket/w"}, "source.groups.spool: is missing"),
        ({"path": "polls"}, "source.path: format kafka_groups polls"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    given = settings(tmp_path, **keys)
    with pytest.raises(UserError, match=said):
        sources.check(given.feed, given.location)


def test_another_source_polls_nothing(tmp_path: Path) -> None:
    source_adapter.assert_polls_nothing(tmp_path, "groups")
