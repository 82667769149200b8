"""The source adapter: which folder is read, and when polls are made; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import sources
from app.config.pulsar_admin import PulsarAdminSettings
from app.errors import UserError
from tests.support.servers.admin import AdminServer
from tests.unit.sources import source_adapter
from tests.unit.sources.pulsar.conftest import MakeAdmin
from tests.unit.sources.pulsar.documents import info, internal, stats

ADMIN = PulsarAdminSettings(cluster="c")


def settings(admin: PulsarAdminSettings, tmp_path: Path, **keys: Any) -> Any:
    return source_adapter.settings(tmp_path, "pulsar_admin", admin=admin, **keys)


@pytest.fixture
def polled(server: AdminServer, make_admin: MakeAdmin) -> PulsarAdminSettings:
    """Settings for a server with one topic."""
    server.answers["persistent/public/n1"] = ["persistent://public/n1/t"]
    server.topic("public/n1/t", internal=internal(), info=info(), stats=stats())
    return make_admin(interval_ms=50)


def test_polls_go_to_the_folder_that_is_read(polled: PulsarAdminSettings, tmp_path: Path) -> None:
    folder = tmp_path / "w" / "_weir" / "polls" / f"pulsar_admin.{polled.cluster}" / "polls"
    source_adapter.assert_polled(settings(polled, tmp_path), folder)


@pytest.mark.parametrize(
    ("admin", "keys", "said"),
    [
        (ADMIN, {"warehouse": "s3://bucket/w"}, "source.admin.spool: is missing"),
        (
            ADMIN,
            {"path": "/no/such"},
            "source.path: format pulsar_admin polls a cluster and reads no",
        ),
        (ADMIN, {}, "source.admin.url: is missing"),
    ],
)
def test_what_cannot_be_read_is_refused(
    admin: PulsarAdminSettings, keys: dict[str, Any], said: str, tmp_path: Path
) -> None:
    given = settings(admin, tmp_path, **keys)
    with pytest.raises(UserError, match=said):
        sources.check(given.feed, given.location)


def test_another_source_polls_nothing(tmp_path: Path) -> None:
    source_adapter.assert_polls_nothing(tmp_path, "admin")
