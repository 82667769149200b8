"""Where Weir's Python and Spark are, and what is prepared once: jars, compiled cores, packages."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from app import folders
from app.errors import UserError
from app.jars import IN_SPARK, KAFKA_CLIENT, coordinates
from app.plain_text import lines_of

ROOT = Path(__file__).resolve().parents[3]
EVERYWHERE = {"TZ": "UTC", "OMP_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "true"}
"""Variables of every process of Weir, on every machine. pydantic would look for plug-ins among all
packages at each start."""
COMPILED = ("app/contract", "app/contract/parsing", "state", "state/*", "udfs")
"""Folders whose sources decide what the cores are compiled of."""
FETCHES = 2
"""Times that the jars are fetched: of a dozen downloads one fails now and then, and what has come
stays."""


def say(text: str) -> None:
    """A line of progress on standard error."""
    print(f"weir: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Home:
    """An environment: its folder, its Python, its Spark, and the folder for what is prepared."""

    folder: Path
    python: str
    pyspark: Path
    data: Path

    @classmethod
    def of_environment(cls, folder: Path) -> Home:
        """The environment that spark-submit.sh has built, or is going to build."""
        pyspark = folder / "lib/python3.11/site-packages/pyspark"
        return cls(folder, str(folder / "bin/python"), pyspark, folder / "share/weir")

    @classmethod
    def of_this_python(cls) -> Home:
        """The environment that Weir is installed in.

        Where its folder cannot be written, jars and compiled cores are kept in the user's cache.
        """
        spec = find_spec("pyspark")
        if spec is None or spec.origin is None:
            sys.exit(
                "weir: pyspark is not installed\n"
                f"      {sys.executable} -m pip check lists what an installation lacks"
            )
        data = Path(sys.prefix, "share/weir")
        nearest = next(path for path in (data, *data.parents) if path.exists())
        if not os.access(nearest, os.W_OK):
            data = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "weir")
        return cls(Path(sys.prefix), sys.executable, Path(spec.origin).parent, data)

    @property
    def cores(self) -> Path:
        """The folder of the compiled cores."""
        return Path(os.environ.get("NUMBA_CACHE_DIR") or self.data / "numba")

    def jars(self) -> list[Path]:
        """The jars of Delta and Kafka; empty before they are fetched."""
        given = os.environ.get("WEIR_JARS")
        if given:
            return folders.matching(Path(given), "*.jar")
        there = self._jars_mark.exists()
        return folders.matching(self.data / "jars", "*.jar") if there else []

    @property
    def _jars_mark(self) -> Path:
        return self.data / "jars.of"

    def prepare_jars(self, options: Sequence[str]) -> None:
        """Fetch the jars unless those of this release are there; `options` are spark-submit's.

        Nothing is fetched where WEIR_JARS names a folder that has them.
        """
        wanted = _digest("\n".join([*coordinates(), KAFKA_CLIENT, *IN_SPARK]).encode())
        if os.environ.get("WEIR_JARS") or folders.text(self._jars_mark).strip() == wanted:
            return
        self.data.mkdir(parents=True, exist_ok=True)
        folder, log = self.data / "jars", self.data / "jars.log"
        say(f"fetching the Delta and Kafka jars of Spark into {folder} (about 35 MB, once)")
        kept = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        for _ in range(FETCHES):
            with log.open("w", encoding="utf-8") as out:
                code = subprocess.run(
                    [self.python, "-m", "app.jars", str(folder), *options],
                    check=False,
                    stdout=out,
                    stderr=out,
                    cwd=ROOT,
                    env={**kept, "SPARK_CONF_DIR": f"{ROOT}/conf"},
                ).returncode
            if not code:
                break
        if code:
            told = r"unresolved dependency|not found|Error|Exception"
            lines = [line for line in lines_of(folders.text(log)) if re.search(told, line)]
            print(*lines[:3], sep="\n", file=sys.stderr)
            raise UserError(
                f"the jars could not be fetched; the whole log is {log}\n"
                "behind a mirror: --repositories URL, or --conf spark.jars.ivySettings=FILE"
            )
        folders.put(self._jars_mark, f"{wanted}\n")

    @property
    def cores_mark(self) -> Path:
        """There once the cores of these sources are compiled."""
        sources = (path for folder in COMPILED for path in folders.matching(ROOT, f"{folder}/*.py"))
        return self.cores / f"complete-{_digest(b''.join(path.read_bytes() for path in sources))}"

    def prepare_cores(self) -> None:
        """Compile the cores unless those of these sources are there, or are being compiled."""
        mark = self.cores_mark
        if mark.exists():
            return
        self.cores.mkdir(parents=True, exist_ok=True)
        with (self.cores / "compiling").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if mark.exists():
                return
            say(f"compiling the cores into {self.cores} (one to five minutes, once)")
            began_s = time.monotonic()
            variables = with_path(os.environ) | EVERYWHERE | {"NUMBA_CACHE_DIR": str(self.cores)}
            words = [self.python, "-m", "app.setup.warm"]
            if subprocess.run(words, check=False, env=variables).returncode:
                raise UserError("the cores could not be compiled (see above)")
            for old in folders.matching(self.cores, "complete-*"):
                folders.remove(old)
            mark.touch()
            say(f"the cores are compiled ({time.monotonic() - began_s:.0f} s)")

    def packed_environment(self) -> Path:
        """The archive of this environment for the workers of a cluster."""
        found = sorted(f"{each.name}=={each.version}" for each in metadata.distributions())
        return self.data / f"env-{_digest(chr(10).join(found).encode())}.tar.gz"


def with_path(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python finds Weir's code."""
    others = environment.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join([str(ROOT), *(each for each in others if each not in ("", str(ROOT)))])
    return {**environment, "PYTHONPATH": path}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
