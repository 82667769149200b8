"""Packages for a cluster: the sources, environment, compiled cores and configuration."""

from __future__ import annotations

import hashlib
import io
import marshal
import sys
import sysconfig
import tarfile
import zipfile
from contextlib import suppress
from fnmatch import fnmatch
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import yaml

from app import folders
from app.config.settings import load_settings
from app.show.alerts.rule_files import rules_of
from app.tables import durable
from udfs.compiled_cache import is_current

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("app", "state", "udfs", "configs")
PACKAGES = "lib/python3.11/site-packages"
LEFT_OUT = (
    *(f"pyspark/{folder}/*" for folder in ("jars", "examples", "work", "logs")),
    *(f"{name}/*" for name in ("babel", "kubernetes_validate", "material", "mypy", "pip")),
    *("*/tests/*", "*__mypyc.*.so", "*.opt-[12].pyc", "*.pyc.*"),
)
"""What no command uses, most of it of a test environment, and folders of pyspark: the first two are
on every worker, the others are what clusters that were started here have left."""
UNCHECKED = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
"""Head of byte code that is not compared with its source (PEP 552)."""
LAUNCHER = """\
#!/bin/sh
# The interpreter of a packed environment: the one it was made with where the worker has it in the
# same place, else any Python 3.11 of the worker with the packages of this environment. Spark's daemon
# is the one that has loaded Weir's code.
env=$(cd "$(dirname "$0")/.." && pwd)
for python in "$env/bin/python" python3.11 /usr/bin/python3.11 /usr/local/bin/python3.11 python3; do
  if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
    PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$env/lib/python3.11/site-packages"
    if [ "$1 $2" = "-m pyspark.daemon" ] && [ -f weir.zip ]; then
      # Spark has brought the code to the folder of the executor.
      PYTHONPATH="weir.zip:$PYTHONPATH"
      shift 2
      set -- -m app.setup.daemon "$@"
    fi
    export PYTHONPATH
    exec "$python" "$@"
  fi
done
echo "weir: this worker has no Python 3.11; install it, or set WEIR_WORKER_PYTHON" >&2
exit 127
"""


def pack_code(target: Path) -> None:
    """The sources and their byte code as a zip for --py-files, unless that of these sources is there."""
    sources = {
        file.path.relative_to(ROOT).as_posix(): file.path.read_bytes()
        for room in ROOMS
        for file in folders.files_below(ROOT / room)
        if "__pycache__" not in file.path.parts
    }
    mark = hashlib.sha256(repr(sources).encode()).hexdigest().encode()
    with suppress(FileNotFoundError, zipfile.BadZipFile), zipfile.ZipFile(target) as there:
        if there.comment == mark:
            return
    with (
        durable.replacing(target) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        archive.comment = mark
        for name, content in sources.items():
            archive.writestr(name, content)
            if name.endswith(".py"):
                code = compile(content, name, "exec", dont_inherit=True)
                archive.writestr(f"{name}c", UNCHECKED + marshal.dumps(code))


def pack_environment(target: Path) -> None:
    """The packages of this environment as an archive for --archives, without what no worker reads.
    Byte code in it holds where it is unpacked, since tar keeps the times of the sources."""
    launcher, python = tarfile.TarInfo("bin/weir-python"), tarfile.TarInfo("bin/python")
    launcher.mode, launcher.size = 0o755, len(LAUNCHER)
    python.type, python.linkname = tarfile.SYMTYPE, str(Path(sys.executable).resolve())
    with (
        durable.replacing(target) as partial,
        tarfile.open(partial, "w:gz", format=tarfile.GNU_FORMAT, compresslevel=1) as archive,
    ):
        archive.addfile(launcher, io.BytesIO(LAUNCHER.encode()))
        archive.addfile(python)
        for root in {Path(sysconfig.get_path(of)).resolve() for of in ("purelib", "platlib")}:
            for file in folders.files_below(root):
                name = file.path.relative_to(root).as_posix()
                if not any(fnmatch(name, pattern) for pattern in LEFT_OUT):
                    archive.add(file.path, f"{PACKAGES}/{name}")


def pack_cores(folder: Path, target: Path) -> None:
    """What is compiled of these sources, for --archives: workers like this machine find it."""
    with (
        durable.replacing(target) as partial,
        tarfile.open(partial, "w:gz", compresslevel=1) as archive,
    ):
        for place in folders.matching(folder, "*"):
            if place.is_dir() and is_current(place.name):
                archive.add(place, place.name)


def pack_config(config: Path, target: Path) -> None:
    """The configuration as one file: policies and alert rules of other files written into it.

    `${env:NAME}` stays as it is: the driver's own environment must have the variable.
    """
    settings = load_settings(config)
    document = settings.model_dump(exclude={"policy_files"})
    document["alerts"] |= {
        "rules": [rule.model_dump() for rule in rules_of(settings.alerts)],
        "rule_files": [],
    }
    folders.put(target, yaml.safe_dump(document, sort_keys=False))
    target.chmod(0o600)
