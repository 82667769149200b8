"""What travels to a cluster is enough there: rules, recordings, pages are in the zip."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from app.config.alerts import AlertSettings
from app.demo.recording import Recording, names
from app.setup import package
from app.setup.package import LAUNCHER, pack_code, pack_cores
from app.show.alerts.rule_files import rules_of

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import app.config.reading
from app.show.alerts.rule_files import rules_of
from app.config.alerts import AlertSettings
from app.show.report.model import Page
from jinja2 import Environment, PackageLoader
from importlib.resources import files
from app.demo.recording import Recording, names
assert ".zip" in app.config.reading.__file__
print(*[rule.name for rule in rules_of(AlertSettings())])
print(*names())
print(*[next(Recording(name).files())[0] for name in names()])
print("<html" in PackageLoader("app.show.report", "").get_source(Environment(), "page.html.j2")[0])
print(bool(files("app.show.report").joinpath("style.css").read_text("utf-8")))
"""
PACK = """
import sys
from pathlib import Path
from app.setup.package import pack_environment
pack_environment(Path(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "weir.zip"
    pack_code(path)
    return path


@pytest.mark.parametrize("sources", ["as they are", "unreadable"])
def test_what_is_shipped_beside_the_code_is_found_in_the_zip(
    code: Path, tmp_path: Path, sources: str
) -> None:
    """Workers run the byte code in it, and do not compile the sources."""
    if sources == "unreadable":
        with zipfile.ZipFile(code) as whole, zipfile.ZipFile(tmp_path / code.name, "w") as found:
            for name in whole.namelist():
                found.writestr(name, "1 / 0" if name.endswith(".py") else whole.read(name))
        code = tmp_path / code.name
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(code)},
        cwd=code.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rules, recordings, first, *others = done.stdout.splitlines()
    assert rules.split() == [rule.name for rule in rules_of(AlertSettings())]
    assert recordings.split() == names()
    assert first.split() == [next(Recording(name).files())[0] for name in names()]
    assert others == ["True", "True"]


def test_the_zip_is_made_again_when_sources_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "ROOMS", ("udfs",))  # all take some seconds each time
    code, other = tmp_path / "weir.zip", tmp_path / "other.zip"
    pack_code(code)
    shutil.copy2(code, other)
    made = other.stat()
    pack_code(other)
    assert (other.stat().st_ino, other.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    for damage in (partial(other.write_bytes, b"no zip"), other.unlink, partial(comment, other)):
        damage()
        pack_code(other)
        assert contents(other) == contents(code)


def comment(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"of other sources"


def contents(path: Path) -> tuple[bytes, list[tuple[str, int]]]:
    with zipfile.ZipFile(path) as archive:
        return archive.comment, [(info.filename, info.CRC) for info in archive.infolist()]


def test_an_environment_is_packed_without_what_no_worker_reads(tmp_path: Path) -> None:
    """A small one: its packages are those of this environment, and the files that are made here."""
    folder, there = tmp_path / "env", "lib/python3.11/site-packages"
    venv.create(folder)
    kept = [f"{there}/{name}" for name in ("pyspark/sql/types.py", "some/module.py")]
    left = [
        *(f"{there}/pyspark/{name}" for name in ("jars/spark-core.jar", "work/app-1/0/delta.jar")),
        *(f"{there}/{name}" for name in ("kubernetes_validate/schema.json", "some/tests/a.py")),
        *("share/weir/jars/delta.jar", "bin/ruff", "bin/activate"),
    ]
    for name in (*kept, *left):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    compiled = cache_from_source(kept[1])
    py_compile.compile(str(folder / kept[1]), str(folder / compiled))
    target = tmp_path / "env.tar.gz"
    subprocess.run(
        [folder / "bin/python", "-c", PACK, target],
        check=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"},
    )
    with tarfile.open(target) as archive:
        found = set(archive.getnames())
    assert found == {*kept, compiled, "bin/weir-python", "bin/python"}
    (tmp_path / "worker").mkdir()
    subprocess.run(["tar", "-xf", target], check=True, cwd=tmp_path / "worker")  # as Spark does
    # What is out of date is written again when it is imported.
    times = (tmp_path / "worker" / compiled).stat().st_mtime_ns
    done = subprocess.run(
        [tmp_path / "worker/bin/weir-python", "-c", "import some.module as a; print(a.__cached__)"],
        env={"PATH": os.environ["PATH"]},
        text=True,
        capture_output=True,
        check=True,
    )
    assert done.stdout.strip() == str(tmp_path / "worker" / compiled)
    assert (tmp_path / "worker" / compiled).stat().st_mtime_ns == times


@pytest.mark.parametrize("has_code", [True, False])
def test_the_daemon_of_a_packed_environment_has_the_code_that_spark_has_brought(
    tmp_path: Path, has_code: bool
) -> None:
    python = tmp_path / "env/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$PYTHONPATH" "$@"\n', encoding="utf-8")
    launcher = python.with_name("weir-python")
    launcher.write_text(LAUNCHER, encoding="utf-8")
    for path in (python, launcher):
        path.chmod(0o755)
    if has_code:
        (tmp_path / "weir.zip").touch()
    packages = f"{tmp_path}/env/lib/python3.11/site-packages"

    def started(*words: str) -> str:
        done = subprocess.run(
            ["env/bin/weir-python", *words],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": "spark"},
            text=True,
            capture_output=True,
            check=True,
        )
        return done.stdout.strip()

    daemon = started("-m", "pyspark.daemon", "pyspark.worker")
    given = f"spark:{packages}"
    assert daemon == (
        f"weir.zip:{given} -m app.setup.daemon pyspark.worker"
        if has_code
        else f"{given} -m pyspark.daemon pyspark.worker"
    )
    assert started("-m", "pyspark.worker") == f"{given} -m pyspark.worker"


def test_of_several_starts_at_once_each_has_whole_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "ROOMS", ("state",))  # each of them packs: some seconds with all
    code, cores = tmp_path / "weir.zip", tmp_path / "cores.tar.gz"
    (tmp_path / "numba").mkdir()

    def start(_: int) -> None:
        pack_code(code)
        pack_cores(tmp_path / "numba", cores)
        with zipfile.ZipFile(code) as packed:
            assert packed.testzip() is None
        tarfile.open(cores).close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cores.tar.gz", "numba", "weir.zip"]
