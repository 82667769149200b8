"""A real Prometheus on loopback, Debian's or whichever is on the path."""

from __future__ import annotations

import json
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.servers.process import Server, free_ports
from tests.support.waiting import PATIENCE_S

RULES = Path(__file__).resolve().parents[3] / "conf" / "prometheus" / "weir.rules.yml"


class Prometheus:
    """Scrapes `target` every second, and evaluates the shipped rules as often."""

    def __init__(self, folder: Path, target: str) -> None:
        (self._port,) = free_ports(1)
        config = folder / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(RULES)],
                    "scrape_configs": [
                        {"job_name": "weir", "static_configs": [{"targets": [target]}]}
                    ],
                }
            )
        )
        self.server = Server(
            [
                shutil.which("prometheus") or "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.enable-lifecycle",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            folder / "prometheus.log",
        )

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.server.start(lambda log: "Server is ready to receive web requests" in log)

    def stop(self) -> None:
        """Stop it."""
        self.server.stop()

    def get(self, path: str, **params: Any) -> Any:
        """The `data` of an answer of its API."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(params)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The answer to a query, now."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def wait(self, holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, "Prometheus did not get there"
            time.sleep(0.2)
