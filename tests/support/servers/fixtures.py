"""Servers that the whole suite shares: started by the first test that asks, stopped at the end."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.kafka import Kafka
from tests.support.servers.process import Missing, serving
from tests.support.servers.pulsar import Pulsar


@functools.cache
def _shared_kafka() -> Kafka | str:
    """The one broker of this run of the suite, or why there is none."""
    folder = Path(tempfile.mkdtemp(prefix="weir-kafka-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        broker = Kafka(folder)
        broker.start()
    except (Missing, OSError) as error:
        return str(error)
    atexit.register(broker.stop)
    return broker


def shared_kafka() -> Kafka:
    """A Kafka broker that serves, for fixtures of a wider scope than `kafka`."""
    broker = _shared_kafka()
    if isinstance(broker, str):
        pytest.skip(f"no Kafka broker: {broker}")
    if not broker.running:
        broker.start()
    return broker


@pytest.fixture
def kafka() -> Kafka:
    """A Kafka broker that serves; a test takes topics of its own. Skips where none can start."""
    return shared_kafka()


@pytest.fixture(scope="package")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pulsar]:
    """A Pulsar broker; a test takes namespaces of its own. Skips where none can start."""
    with serving(lambda: Pulsar(tmp_path_factory.mktemp("pulsar")), "Pulsar broker") as broker:
        yield broker
