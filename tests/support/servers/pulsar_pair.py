"""Two Pulsar brokers of one cluster: topics move from one to the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.servers.process import free_ports
from tests.support.servers.pulsar import Pulsar


class First(Pulsar):
    """Broker, bookie and a ZooKeeper, in which others find them, in one process."""

    def __init__(self, folder: Path) -> None:
        (self._zookeeper,) = free_ports(1)
        super().__init__(folder, environment={"PULSAR_STANDALONE_USE_ZOOKEEPER": "1"})

    @property
    def metadata(self) -> str:
        """The address of the cluster's metadata."""
        return f"zk:127.0.0.1:{self._zookeeper}"

    def _program(self, bookie: int) -> list[str]:
        return [
            *super()._program(bookie),
            "--zookeeper-port",
            str(self._zookeeper),
            "--zookeeper-dir",
            str(self._folder / "zookeeper"),
        ]


class Second(Pulsar):
    """A broker that joins the first one's cluster."""

    def __init__(
        self, folder: Path, first: First, environment: Mapping[str, str] | None = None
    ) -> None:
        self._metadata = first.metadata
        super().__init__(folder, environment=environment)

    def _program(self, bookie: int) -> list[str]:
        return [
            "org.apache.pulsar.PulsarBrokerStarter",
            "-c",
            str(self._folder / "standalone.conf"),
        ]

    def _place(self) -> dict[str, str]:
        return {"metadataStoreUrl": self._metadata, "configurationMetadataStoreUrl": self._metadata}
