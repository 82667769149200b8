"""What brokers load of the modules in `feeds`: built and tested by Maven once for their sources."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.support.servers.process import Missing, ServerFailed, cache_dir

FEEDS = Path(__file__).resolve().parents[3] / "feeds"
KAFKA_VERSION = "1.0"


def built(module: str, pattern: str, of_sources: str, version: str) -> Path:
    """The file that Maven makes of a module; of another version than its sources have, too."""
    if shutil.which("mvn") is None:
        raise Missing(f"no mvn to build feeds/{module} with")
    home = cache_dir(
        f"feed-{module}-{_digest(module)}" + ("" if version == of_sources else f"-{version}")
    )
    with (home / "lock").open("w") as lock:  # two test runs may ask at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (found := list(home.glob(f"target/{pattern}"))):
            pom = FEEDS / module / "pom.xml"
            if version != of_sources:
                pom = _of_version(home / "source", module, of_sources, version)
            done = subprocess.run(
                [
                    "mvn",
                    "-q",
                    "-B",
                    "-f",
                    str(pom),
                    f"-Dweir.target={home}/target",
                    "package",
                ],
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
            if done.returncode:
                raise ServerFailed(f"Maven refuses feeds/{module}\n{done.stdout[-3000:]}")
            found = list(home.glob(f"target/{pattern}"))
    (file,) = found
    return file


def _of_version(copy: Path, module: str, of_sources: str, version: str) -> Path:
    """The build file of a copy of the sources that differs in its version."""
    for name in (module, "common"):
        shutil.copytree(
            FEEDS / name / "src" / "main", copy / name / "src" / "main", dirs_exist_ok=True
        )
    text = (FEEDS / module / "pom.xml").read_text()
    pom = copy / module / "pom.xml"
    pom.write_text(
        text.replace(f"<version>{of_sources}</version>", f"<version>{version}</version>", 1)
    )
    return pom


def _digest(module: str) -> str:
    sources = [FEEDS / name / "src" for name in (module, "common")]
    files = [FEEDS / module / "pom.xml", *(f for folder in sources for f in folder.rglob("*"))]
    digest = hashlib.sha256()
    for file in sorted(f for f in files if f.is_file()):
        digest.update(str(file.relative_to(FEEDS)).encode() + file.read_bytes())
    return digest.hexdigest()[:16]
