"""The source adapter: which folder is read, and when polls are made; without Spark."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from app.config.kafka_groups import KafkaGroupsSettings
from app.config.source import SourceSettings
from app.errors import UserError
from app.ingest.pollers.kafka import poll
from app.ingest.sources import kafka_groups
from tests.ingest.pollers.kafka.test_poll import Scripted

QUOTA = {"backlog_quota": {"message_age": {"limitTime": 60, "policy": "producer_exception"}}}
POLICIES = [
    {"scope": "topic", "name": "orders", "limits": QUOTA},
    {"scope": "topic", "name": "other", "limits": {"publishRateInMsgs": 5}},
    {"scope": "broker", "name": "*", "limits": {}},
]


def settings(tmp_path: Path, **keys: Any) -> Any:
    groups = KafkaGroupsSettings(
        cluster="east", options={"bootstrap.servers": "h:1"}, interval_ms=50,
        spool=keys.pop("spool", None),
    )
    source = SourceSettings.model_construct(
        format=keys.pop("format", "kafka_groups"), path=keys.pop("path", None),
        groups=keys.pop("groups", groups),
    )
    return SimpleNamespace(
        source=source, feed=source, warehouse=keys.pop("warehouse", str(tmp_path / "w")),
        policy_dicts=lambda: POLICIES,
    )


def read(given: Any) -> Path:
    """The folder that Spark would be asked for."""
    reader = MagicMock()
    kafka_groups.read(reader, given)
    (path,) = reader.format().schema().options().load.call_args.args
    return Path(path)


def test_polls_go_to_the_folder_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll, "ClientProcess", lambda *_: Scripted())
    given = settings(tmp_path)
    kafka_groups.check(given)
    folder = read(given)
    assert folder == tmp_path / "w" / "_weir" / "kafka_groups" / "polls"
    with kafka_groups.beside(given, endless=False):
        assert len(list(folder.iterdir())) == 1
    with kafka_groups.beside(given, endless=True, say=lambda _: None):
        time.sleep(0.4)
    count = len(list(folder.iterdir()))
    assert count > 2
    time.sleep(0.2)
    assert len(list(folder.iterdir())) == count
    assert read(settings(tmp_path, spool=str(tmp_path / "s"))) == tmp_path / "s" / "polls"


def test_configured_quotas_stay(tmp_path: Path) -> None:
    assert kafka_groups.own_quotas(settings(tmp_path)) == {"orders"}


@pytest.mark.parametrize(("keys", "said"), [
    ({"groups": None}, "source.groups: is missing"),
    ({"warehouse": "s3://bucket/w"}, "source.groups.spool: is missing"),
    ({"path": "polls"}, "source.path: format kafka_groups polls"),
])
def test_what_cannot_be_read_is_refused(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        kafka_groups.check(settings(tmp_path, **keys))


def test_another_source_polls_nothing(tmp_path: Path) -> None:
    with kafka_groups.beside(settings(tmp_path, format="files"), endless=True):
        assert not (tmp_path / "w").exists()
