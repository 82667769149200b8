"""A Kafka broker with users of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.servers.kafka import VERSION, Kafka
from tests.support.servers.process import accepts, free_ports

LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl}{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,\
CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required {users};
"""


class SaslKafka(Kafka):
    """The broker of `Kafka` with a second listener, SASL/PLAIN."""

    def __init__(
        self,
        folder: Path,
        users: Sequence[str],
        properties: Mapping[str, object] | None = None,
        version: str = VERSION,
        plugins: Sequence[Path] = (),
        joins: Kafka | None = None,
    ) -> None:
        super().__init__(folder, properties, version, joins, plugins)
        (self._sasl_port,) = free_ports(1)
        self._users = users
        self._listen("" if joins else f",CONTROLLER://127.0.0.1:{self._controller}")

    def start(self) -> None:
        """Start the broker and wait until both listeners serve."""
        self._server.start(
            lambda log: (
                "Kafka Server started" in log and accepts(self._port) and accepts(self._sasl_port)
            )
        )

    def client(self, user: str) -> dict[str, str]:
        """Options with which a client is this user."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self._sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": _password(user),
        }

    def _listen(self, controller: str) -> None:
        """Put the second listener into the properties: the last value of a key holds."""
        users = " ".join(f'user_{user}="{_password(user)}"' for user in self._users)
        listeners = LISTENERS.format(
            port=self._port, sasl=self._sasl_port, controller=controller, users=users
        )
        self._properties.write_text(self._properties.read_text() + listeners)


def _password(user: str) -> str:
    return f"{user}-of-the-test"
