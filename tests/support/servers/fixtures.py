"""Brokers that the files of a process share: started by the first test that asks, stopped behind the
last file in a row that has them, since one that waits takes two percent of a core."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import TypeVar

import pytest

from tests.conftest import brokers
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import Missing
from tests.support.servers.pulsar import Pulsar

Broker = TypeVar("Broker", Kafka, Pulsar)
_made: dict[str, Kafka | Pulsar] = {}
_missing: dict[str, str] = {}
"""Why there is none."""


def _serving(kind: type[Broker]) -> Broker:
    name = kind.__name__.lower()
    if name not in _made and name not in _missing:
        folder = Path(tempfile.mkdtemp(prefix=f"weir-{name}-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        try:
            _made[name] = kind(folder)
            _made[name].start()
        except (Missing, OSError) as error:
            _missing[name] = str(error)
        else:
            atexit.register(_made[name].stop)
    if name in _missing:
        pytest.skip(f"no {kind.__name__} broker: {_missing[name]}")
    broker = _made[name]
    assert isinstance(broker, kind)
    if not broker.running:
        broker.start()
    return broker


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the brokers that the file of the next test does not have."""
    for name in _made.keys() - set(brokers(nextitem.location[0]) if nextitem else ()):
        _made[name].stop()


def shared_kafka() -> Kafka:
    """A Kafka broker that serves, for fixtures of a wider scope than `kafka`."""
    return _serving(Kafka)


@pytest.fixture
def kafka() -> Kafka:
    """A Kafka broker that serves; a test takes topics of its own. Skips where none can start."""
    return shared_kafka()


@pytest.fixture(scope="module")
def pulsar() -> Pulsar:
    """A Pulsar broker; a test takes namespaces of its own. Skips where none can start."""
    return _serving(Pulsar)
