"""The source adapter: which folder is read, and when polls are made; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.config.kafka_groups import KafkaGroupsSettings
from app.errors import UserError
from app.ingest.pollers.kafka import poll
from app.ingest.sources import kafka_groups
from tests.unit.ingest.pollers import source_adapter
from tests.unit.ingest.pollers.kafka.test_poll import Scripted

QUOTA = {"backlog_quota": {"message_age": {"limitTime": 60, "policy": "producer_exception"}}}
POLICIES = [
    {"scope": "topic", "name": "orders", "limits": QUOTA},
    {"scope": "topic", "name": "other", "limits": {"publishRateInMsgs": 5}},
    {"scope": "broker", "name": "*", "limits": {}},
]


def settings(tmp_path: Path, spool: str | None = None, **keys: Any) -> Any:
    groups = KafkaGroupsSettings(
        cluster="east",
        options={"bootstrap.servers": "h:1"},
        interval_ms=50,
        spool=spool,
    )
    given = source_adapter.settings(tmp_path, "kafka_groups", **{"groups": groups, **keys})
    given.policy_dicts = lambda: POLICIES
    return given


def test_polls_go_to_the_folder_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll, "ClientProcess", lambda *_: Scripted())
    folder = tmp_path / "w" / "_weir" / "kafka_groups" / "polls"
    source_adapter.assert_polled(kafka_groups, settings(tmp_path), folder)
    elsewhere = settings(tmp_path, spool=str(tmp_path / "s"))
    assert source_adapter.folder_read(kafka_groups, elsewhere) == tmp_path / "s" / "polls"


def test_configured_quotas_stay(tmp_path: Path) -> None:
    assert kafka_groups.own_quotas(settings(tmp_path)) == {"orders"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"groups": None}, "source.groups: is missing"),
        ({"warehouse": "s3://bucket/w"}, "source.groups.spool: is missing"),
        ({"path": "polls"}, "source.path: format kafka_groups polls"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        kafka_groups.check(settings(tmp_path, **keys))


def test_another_source_polls_nothing(tmp_path: Path) -> None:
    source_adapter.assert_polls_nothing(kafka_groups, tmp_path, "groups")
