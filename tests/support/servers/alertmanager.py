"""Debian's prometheus-alertmanager on loopback, with a webhook as its only receiver."""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.servers.process import Missing, Server, accepts, free_ports
from tests.support.waiting import PATIENCE_S

COMMAND = "prometheus-alertmanager"


class Alertmanager:
    """One Alertmanager that knows nothing of others; it tells `webhook` what it is told."""

    def __init__(self, folder: Path, webhook: str) -> None:
        if shutil.which(COMMAND) is None:
            raise Missing(f"{COMMAND} is not installed (Debian has it under this name)")
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        config = folder / "alertmanager.yml"
        # JSON is YAML.
        config.write_text(
            json.dumps(
                {
                    "route": {
                        "receiver": "test",
                        "group_by": ["..."],
                        "group_wait": "100ms",
                        "group_interval": "1s",
                        "repeat_interval": "1h",
                    },
                    "receivers": [{"name": "test", "webhook_configs": [{"url": webhook}]}],
                }
            )
        )
        self._server = Server(
            [
                COMMAND,
                f"--config.file={config}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--cluster.listen-address=",
            ],
            folder / "alertmanager.log",
        )

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._server.start(lambda _: accepts(self._port))

    def stop(self) -> None:
        """Stop it."""
        self._server.stop()

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that it holds and has not resolved."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=PATIENCE_S) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found
