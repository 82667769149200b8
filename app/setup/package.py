"""Packages for a cluster: the sources, environment, compiled cores and configuration."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import yaml

from app import folders
from app.config.settings import load_settings
from app.show.alerts.rule_files import rules_of
from udfs.compiled_cache import is_current

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("app", "state", "udfs", "configs")
OF_SPARK = ("jars", "examples", "work", "logs")
"""Folders of pyspark that stay here: the first two are on every worker, the others are what
clusters that were started here have left."""
OF_DEVELOPERS = (
    "*/babel/*",
    "*/kubernetes_validate/*",
    "*/material/*",
    "*/mypy/*",
    "*__mypyc.*.so",
    "bin/hadolint",
    "bin/ruff",
)
"""Packages of a test environment with large or many files, which no command uses."""
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
    """The sources as a zip for --py-files, with fixed times: equal sources, equal bytes."""
    partial = target.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for room in ROOMS:
            for path in sorted(file.path for file in folders.files_below(ROOT / room)):
                if "__pycache__" not in path.parts:
                    info = zipfile.ZipInfo(path.relative_to(ROOT).as_posix())
                    info.external_attr = 0o644 << 16
                    archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    partial.replace(target)


def pack_environment(target: Path) -> None:
    """The running environment as an archive for --archives, without what no worker reads."""
    import venv_pack

    launcher = Path(sys.prefix) / "bin" / "weir-python"
    folders.put(launcher, LAUNCHER)
    launcher.chmod(0o755)
    left_out = (
        *(f"*/pyspark/{folder}/*" for folder in OF_SPARK),
        "share/weir/*",
        "*/__pycache__/*",
        *OF_DEVELOPERS,
    )
    partial = target.with_name(f"partial-{target.name}")
    venv_pack.pack(
        sys.prefix,
        output=str(partial),
        format="tar.gz",
        compress_level=1,
        force=True,
        filters=[("exclude", pattern) for pattern in left_out],
    )
    partial.replace(target)


def pack_cores(folder: Path, target: Path) -> None:
    """What is compiled of these sources, for --archives: workers like this machine find it."""
    partial = target.with_suffix(".partial")
    with tarfile.open(partial, "w:gz", compresslevel=1) as archive:
        for place in folders.matching(folder, "*"):
            if place.is_dir() and is_current(place.name):
                archive.add(place, place.name)
    partial.replace(target)


def pack_config(config: Path, target: Path) -> None:
    """The configuration as one file: policies and alert rules of other files written into it.

    `${env:NAME}` stays as it is: the driver's own environment must have the variable.
    """
    settings = load_settings(config)
    document = settings.model_dump(exclude={"policy_files"})
    rules = [rule.model_dump() for rule in rules_of(settings.alerts)]
    document["alerts"] |= {"rules": rules, "rule_files": []}
    folders.put(target, yaml.safe_dump(document, sort_keys=False))
    target.chmod(0o600)
