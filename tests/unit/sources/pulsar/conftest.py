"""Fixtures of the tests of the polled feed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.config.pulsar_admin import PulsarAdminSettings
from app.sources.pulsar import admin_client
from tests.support.servers.admin import AdminServer

MakeAdmin = Callable[..., PulsarAdminSettings]


@pytest.fixture
def server() -> Iterator[AdminServer]:
    """A server that a test teaches its answers."""
    with AdminServer() as running:
        yield running


@pytest.fixture
def make_admin(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> MakeAdmin:
    """Settings for the server; keywords are keys. Pauses between attempts are short."""
    monkeypatch.setattr(admin_client, "FIRST_PAUSE_S", 0.01)

    def make(**keys: Any) -> PulsarAdminSettings:
        return PulsarAdminSettings.model_validate(
            {
                "cluster": "standalone",
                "url": server.url,
                "namespaces": ["public/n1"],
                "timeout_ms": 500,
                "retries": 1,
                "policies": [],
                **keys,
            }
        )

    return make
