"""A Spark standalone cluster on loopback, as docs/operations.md has it: a master and two workers.

Its processes start in an empty environment, so that nothing of this checkout reaches an executor in
another way than the documented ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import OF_JAVA, ROOT
from tests.support.readme import commands
from tests.support.servers.process import Server, ServerFailed, free_ports
from tests.support.waiting import PATIENCE_S

JAVA_OPTIONS = f"-Xss4m {OF_JAVA}"
WORKERS = 2


class Standalone:
    """A master that two workers of one core each register with."""

    def __init__(self, folder: Path) -> None:
        port, *ports = free_ports(2 * WORKERS + 2)
        self.master = f"spark://127.0.0.1:{port}"
        command = documented("Master", folder, {"head": "127.0.0.1", "7077": str(port)})
        command += ["--webui-port", str(ports.pop())]
        self._master = Server(command, folder / "master.log")
        self.workers = []
        for number in range(WORKERS):
            values = {"4": "1", "8g": "1g", "spark://head:7077": self.master}
            command = documented("Worker", folder, values)
            command += ["--host", "127.0.0.1", "--port", str(ports.pop())]
            command += ["--webui-port", str(ports.pop()), "--work-dir", str(folder / f"{number}")]
            self.workers.append(Server(command, folder / f"worker{number}.log"))

    def start(self) -> None:
        """Start all of it, and wait until the workers have registered."""
        try:
            self._master.start(lambda log: "New state: ALIVE" in log, timeout_s=PATIENCE_S)
            for worker in self.workers:
                self.join(worker)
        except ServerFailed:
            self.stop()
            raise

    def join(self, worker: Server) -> None:
        """Start a worker, and wait until it has registered."""
        worker.start(lambda log: "Successfully registered with master" in log, timeout_s=PATIENCE_S)

    def stop(self) -> None:
        """Stop what runs."""
        for server in (*self.workers, self._master):
            server.stop()


def documented(kind: str, folder: Path, values: dict[str, str]) -> list[str]:
    """The command of docs/operations.md that starts a master or a worker, in an empty environment;
    `values` replace its words."""
    (words,) = (w for w in commands(ROOT / "docs" / "operations.md") if w[1].endswith(f".{kind}"))
    assert set(values) <= set(words)
    program, *rest = (values.get(word, word) for word in words)
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    variables = {
        **kept,
        "HOME": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": OF_JAVA,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOG_DIR": str(folder),
    }
    given = [f"{name}={value}" for name, value in variables.items()]
    return ["env", "-i", *given, program.replace(".venv", sys.prefix, 1), *rest]


def on(master: str) -> Sequence[str]:
    """The options that a small cluster on loopback wants."""
    return (
        "--master",
        master,
        "--executor-memory",
        "640m",
        "--conf",
        "spark.driver.host=127.0.0.1",
        "--conf",
        f"spark.driver.extraJavaOptions={JAVA_OPTIONS}",
        "--conf",
        f"spark.executor.extraJavaOptions={JAVA_OPTIONS}",
    )
