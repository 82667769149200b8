"""The environment of a checkout: a Python with the packages of a lock, built on first use."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from app import folders
from app.errors import UserError
from app.setup.launch.home import ROOT, Home, say

TO_COMPILE = (
    "annotated-types",
    "llvmlite",
    "mmh3",
    "msgspec",
    "numba",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "pydantic-core",
    "python-dateutil",
    "pytz",
    "pyyaml",
    "typing-extensions",
    "typing-inspection",
    "tzdata",
)
"""The packages that compiling needs; they are installed first."""


def is_ready(home: Home, lock: Path) -> bool:
    """Whether the environment is complete, and of this lock."""
    built = os.access(home.python, os.X_OK) and _of_venv(home).exists()
    return built and folders.text(home.data / "lock").strip() == _digest(lock)


def prepare(home: Home, lock: Path, *, compiles: bool) -> None:
    """Build the environment unless it is ready; of several starts at once the first one does.
    `compiles`: the command needs the cores, so they are compiled while the rest is fetched.
    """
    home.folder.parent.mkdir(parents=True, exist_ok=True)
    with home.folder.with_name(f"{home.folder.name}.lock").open("a+", encoding="utf-8") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another start that prepares {home.folder}")
            fcntl.flock(turn, fcntl.LOCK_EX)
        if not is_ready(home, lock):
            if home.folder.is_dir() and folders.names(home.folder):
                _begin_again(home, lock, turn)
            turn.truncate(0)
            print(lock.name, file=turn, flush=True)
            _build(home, lock, turn, compiles)


def _begin_again(home: Home, lock: Path, turn: TextIO) -> None:
    """UserError for a folder that Weir has not built, or from the lock of another name."""
    turn.seek(0)
    built_from = turn.read().strip()
    if not (built_from or _of_venv(home).exists()):
        raise UserError(
            f"{home.folder} is not an environment of Weir and is not empty\n"
            "WEIR_HOME names another folder"
        )
    if built_from not in ("", lock.name):
        raise UserError(
            f"{home.folder} was built from {built_from}, not from {lock.name}\n"
            "WEIR_LOCK names the lock, or WEIR_HOME another folder"
        )
    say(f"the environment in {home.folder} is unfinished or of another lock: building it again")


def _build(home: Home, lock: Path, turn: TextIO, compiles: bool) -> None:
    began_s = time.monotonic()
    if shutil.which("uv") is None and find_spec("ensurepip") is None:
        raise UserError(
            f"the venv module of {sys.executable} is incomplete\n"
            "install it with: sudo apt-get install -y python3.11-venv"
        )
    say(
        f"building the Python environment in {home.folder} (two to three minutes, once; 1.5 GB with"
        " jars and compiled cores)"
    )
    venv.create(home.folder, clear=True, symlinks=True, with_pip=shutil.which("uv") is None)
    home.data.mkdir(parents=True)
    with ThreadPoolExecutor(1) as beside:
        compiled = None
        every = re.split(r"^(?=\S)", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
        first = [one for one in every if compiles and re.split("[=; ]", one)[0] in TO_COMPILE]
        if first:
            _install(home, lock.name, first, turn)
            compiled = beside.submit(home.prepare_cores)
        _install(home, lock.name, [one for one in every if one not in first], turn)
        if sys.dont_write_bytecode:
            _compile_bytecode(home)
        say(f"the packages are installed ({time.monotonic() - began_s:.0f} s)")
        if compiled:
            compiled.result()
    # Last: an environment without it is unfinished.
    folders.put(home.data / "lock", f"{_digest(lock)}\n")


def _install(home: Home, lock: str, packages: Sequence[str], turn: TextIO) -> None:
    file = home.data / lock
    folders.put(file, "".join(packages))
    install = [home.python, "-m", "pip", "install", "--no-compile", "--disable-pip-version-check"]
    if uv := shutil.which("uv"):
        install = [uv, "pip", "install", "--python", home.python]
    install.append("--quiet")
    # Another start waits until the installer has ended, too.
    done = subprocess.run(
        [*install, "--no-deps", "--require-hashes", "-r", str(file)],
        check=False,
        stdout=sys.stderr,
        pass_fds=(turn.fileno(),),
    )
    if done.returncode:
        raise UserError(f"the packages of {lock} could not be installed (see above)")


def _compile_bytecode(home: Home) -> None:
    """Write what every process would compile again that may not keep it (PYTHONDONTWRITEBYTECODE,
    as many images set it): a second and a half of the start of each.
    """
    folders = [home.pyspark.parent, *(ROOT / name for name in ("app", "state", "udfs"))]
    words = ["-m", "compileall", "-qq", "-x", "/tests?/", *map(str, folders)]
    subprocess.run([home.python, *words], check=False)  # some packages ship files of Python 2


def _of_venv(home: Home) -> Path:
    return home.folder / "pyvenv.cfg"


def _digest(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
