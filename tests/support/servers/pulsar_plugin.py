"""The broker plug-in of `feeds/pulsar`: built once for its sources, and how a broker loads it."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar as client
import pytest

from tests.support.servers.process import Missing, ServerFailed, cache_dir
from tests.support.servers.pulsar import Pulsar

VERSION = "1.0"
MODULE = Path(__file__).resolve().parents[3] / "feeds" / "pulsar"
PARTS = ("pom.xml", "src/main")


def nar(version: str = VERSION) -> Path:
    """The plug-in as brokers load it; Maven builds it where its sources are new."""
    if shutil.which("mvn") is None:
        raise Missing("no mvn to build the plug-in with")
    home = cache_dir(f"pulsar-plugin-{_digest()}" + ("" if version == VERSION else f"-{version}"))
    with (home / "lock").open("w") as lock:  # two test runs may ask at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built := list(home.glob("target/*.nar"))):
            done = subprocess.run(
                [
                    "mvn",
                    "-q",
                    "-B",
                    "-f",
                    str(_module(home, version) / "pom.xml"),
                    f"-Dweir.target={home}/target",
                    "-Dmaven.test.skip=true",
                    "package",
                ],
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
            if done.returncode:
                raise ServerFailed(f"Maven cannot build the plug-in\n{done.stdout[-3000:]}")
            built = list(home.glob("target/*.nar"))
    (found,) = built
    return found


def _module(home: Path, version: str) -> Path:
    """The folder of the sources; for another version than theirs a copy that differs in it."""
    if version == VERSION:
        return MODULE
    copy = home / "source"
    shutil.copytree(MODULE / "src" / "main", copy / "src" / "main", dirs_exist_ok=True)
    pom = (MODULE / "pom.xml").read_text()
    changed = pom.replace(f"<version>{VERSION}</version>", f"<version>{version}</version>", 1)
    (copy / "pom.xml").write_text(changed)
    return copy


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
    """The lines of all files that are shown, in the order of their names."""
    for file in sorted(folder.glob("*.ndjson.gz")):
        yield from gzip.decompress(file.read_bytes()).decode().splitlines()


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


def until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.1)


def _digest() -> str:
    files = sorted(f for part in PARTS for f in _files(MODULE / part))
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(MODULE)).encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
