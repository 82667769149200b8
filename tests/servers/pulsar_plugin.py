"""The broker plug-in of `feeds/pulsar`: built once for its sources, and how a broker loads it."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.servers.process import ServerFailed, cache_dir

MODULE = Path(__file__).resolve().parents[2] / "feeds" / "pulsar"
PARTS = ("pom.xml", "src/main")


def nar() -> Path:
    """The plug-in as brokers load it; Maven builds it where its sources are new."""
    if shutil.which("mvn") is None:
        raise ServerFailed("no mvn to build the plug-in with")
    home = cache_dir(f"pulsar-plugin-{_digest()}")
    with (home / "lock").open("w") as lock:  # two test runs may ask at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built := list(home.glob("target/*.nar"))):
            done = subprocess.run(
                ["mvn", "-q", "-B", "-f", str(MODULE / "pom.xml"), f"-Dweir.target={home}/target",
                 "-Dmaven.test.skip=true", "package"],
                capture_output=True, text=True, timeout=900, check=False,
            )
            if done.returncode:
                raise ServerFailed(f"Maven cannot build the plug-in\n{done.stdout[-3000:]}")
            built = list(home.glob("target/*.nar"))
    (found,) = built
    return found


def settings(records: Path, **more: str) -> dict[str, str]:
    """Settings of a broker that loads the plug-in, which writes files to a folder."""
    where = nar()
    return {
        "brokerInterceptorsDirectory": str(where.parent), "brokerInterceptors": "weir",
        "narExtractionDirectory": str(where.parent / "extracted"),
        "weirDirectory": str(records), "weirFileMillis": "500", "weirWatchMillis": "200", **more,
    }


def _digest() -> str:
    files = sorted(f for part in PARTS for f in _files(MODULE / part))
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(MODULE)).encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
