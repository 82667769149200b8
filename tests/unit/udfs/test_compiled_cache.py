"""What is compiled is found by its sources: in another folder too, not after any change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OUTER = """
from app.nothing import unused
from state.inner import (
    STEP,  # a constant that the compiler copies
    grow,
)
from udfs.compiled_cache import stamp
import numba

@numba.njit(cache=True)
def outer(x):
    return grow(x) + STEP
"""
INNER = """
import numba

STEP = {step}

@numba.njit(cache=True)
def grow(x):
    return x * 10
"""
RUN = """
import udfs
from state.outer import outer
print(outer(1), sum(outer.stats.cache_hits.values()))
"""


class Sources:
    """A tree with two compiled modules, one of which imports the other."""

    def __init__(self, folder: Path) -> None:
        self.root, self.cache = folder, folder.parent / "cache"
        for name in ("app", "state", "udfs"):
            (folder / name).mkdir(parents=True)
            (folder / name / "__init__.py").touch()
        for name in ("__init__.py", "compiled_cache.py", "worlds.py"):
            shutil.copy(ROOT / "udfs" / name, folder / "udfs" / name)
        (folder / "app" / "nothing.py").write_text("unused = 0\n", encoding="utf-8")
        self.write()

    def write(self, step: int = 1) -> None:
        (self.root / "state" / "outer.py").write_text(OUTER, encoding="utf-8")
        (self.root / "state" / "inner.py").write_text(INNER.format(step=step), encoding="utf-8")

    def run(self, path: Path | None = None, program: str = RUN) -> str:
        environment = {key: value for key, value in os.environ.items() if "NUMBA" not in key}
        return subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            cwd=self.root.parent,
            env={
                **environment,
                "PYTHONPATH": str(path or self.root),
                "NUMBA_CACHE_DIR": str(self.cache),
            },
        ).stdout.strip()


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources(tmp_path / "here")


def test_equal_sources_in_another_folder_or_in_a_zip_find_it(
    sources: Sources, tmp_path: Path
) -> None:
    assert sources.run() == "11 0"
    assert sources.run() == "11 1"
    moved = Path(shutil.copytree(sources.root, tmp_path / "there"))
    assert sources.run(moved) == "11 1"
    zipped = Path(shutil.make_archive(str(tmp_path / "weir"), "zip", sources.root))
    assert sources.run(zipped) == "11 1"


def test_a_change_of_what_is_imported_compiles_again_and_the_rest_can_be_removed(
    sources: Sources,
) -> None:
    assert sources.run() == "11 0"
    sources.write(step=2)
    assert sources.run() == "12 0"
    (sources.root / "app" / "nothing.py").write_text("unused = 1\n", encoding="utf-8")
    assert sources.run() == "12 0"
    (sources.root / "app" / "other.py").touch()
    assert sources.run() == "12 1"
    assert len(list(sources.cache.glob("state.outer-*"))) == 3
    sources.run(
        program="import udfs.compiled_cache as c, pathlib, os; "
        "c.remove_stale(pathlib.Path(os.environ['NUMBA_CACHE_DIR']))"
    )
    assert len(list(sources.cache.glob("state.outer-*"))) == 1
    assert sources.run() == "12 1"


def test_code_of_the_cache_is_run_and_linked_into_what_is_compiled(sources: Sources) -> None:
    assert sources.run() == "11 0"
    assert sources.run() == "11 1"
    for folder in sources.cache.glob("state.outer-*"):
        shutil.rmtree(folder)
    assert sources.run() == "11 0"
    assert sources.run() == "11 1"


def test_another_way_of_compiling_compiles_again(sources: Sources) -> None:
    """Code that was made in another way expects other arguments."""
    assert sources.run() == "11 0"
    with (sources.root / "udfs" / "worlds.py").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert sources.run() == "11 0"
    assert sources.run() == "11 1"
