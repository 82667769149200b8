"""The broker plug-in of `feeds/pulsar`: how a broker loads it, and what it writes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar as client
import pytest

from tests.support.servers import feeds
from tests.support.servers.process import Missing
from tests.support.servers.pulsar import Pulsar

VERSION = "1.0"
MODULE = feeds.FEEDS / "pulsar"


def nar(version: str = VERSION) -> Path:
    """The plug-in as brokers load it."""
    return feeds.built("pulsar", "*.nar", VERSION, version)


def settings(folder: Path, version: str = VERSION, **more: str) -> dict[str, str]:
    """Settings of a broker with the plug-in, which writes files to a folder."""
    where = nar(version).parent
    return {
        "brokerInterceptorsDirectory": str(where),
        "brokerInterceptors": "weir",
        "narExtractionDirectory": str(where / "extracted"),
        "weirDirectory": str(folder),
        "weirFileMillis": "500",
        "weirWatchMillis": "200",
        "allowAutoTopicCreation": "true",
        "managedLedgerMaxEntriesPerLedger": "50000",
        **more,
    }


def start(broker: Pulsar, folder: Path, version: str = VERSION, **more: str) -> None:
    """Have a broker run with the plug-in, which writes files to a folder; `more` are settings."""
    try:
        broker.run_with(**settings(folder, version, **more))
    except Missing as error:
        pytest.skip(f"no Pulsar broker with the plug-in: {error}")


def lines(folder: Path) -> Iterator[str]:
    """The lines of all files that are shown, in the order of their names; without room for a packed
    one a file is shown as text."""
    for file in sorted(folder.glob("*.ndjson*")):
        content = file.read_bytes()
        packed = file.suffix == ".gz"
        yield from (gzip.decompress(content) if packed else content).decode().splitlines()


def records(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    """Their records; all kinds if none."""
    found = map(json.loads, lines(folder))
    return [record for record in found if not kinds or record["event_type"] in kinds]


@contextmanager
def connected(broker: Pulsar) -> Iterator[client.Client]:
    """A client, which has one connection for all that it opens."""
    opened = client.Client(
        broker.service_url, logger=client.ConsoleLogger(client.LoggerLevel.Error)
    )
    try:
        yield opened
    finally:
        opened.close()
