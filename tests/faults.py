"""Seeded faults: what the quick tier must find.

    python -m tests.faults            every fault of tests/faults.yaml
    python -m tests.faults 7 23       these alone

Each fault replaces a text of one file in a copy of the sources and runs the tests that find it
there. Exit code 1 if one is not found, is out of date, or if its tests fail without it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "faults.yaml"
COPIED = ("app", "state", "tests", "udfs")
PASSED, FAILED = 0, 1
"""Exit codes of pytest."""


@dataclass(frozen=True)
class Fault:
    """A line or two that a reviewer could overlook."""

    number: int
    file: str
    text: str
    """Occurs once in the file."""
    replacement: str
    fault: str
    """What is wrong, in words."""
    tests: tuple[str, ...]
    """Files or tests of the quick tier."""
    interpreted: bool = False
    """Compiled functions run as plain Python: faster than to compile them again."""

    @property
    def is_current(self) -> bool:
        """Whether the text is in the file, once."""
        return (ROOT / self.file).read_text("utf-8").count(self.text) == 1


def load() -> list[Fault]:
    """The faults of the list."""
    rows = yaml.safe_load(LIST.read_text("utf-8"))
    return [Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def copy_of_sources(folder: Path) -> Path:
    """A copy to change; what is not changed is linked."""
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name in COPIED:
            shutil.copytree(path, folder / path.name)
        elif not path.name.startswith("."):
            (folder / path.name).symlink_to(path)
    return folder


def run(tree: Path, tests: Iterable[str], interpreted: bool) -> tuple[int, str]:
    """Exit code and output of tests of a copy, up to the first that fails."""
    # a file that is changed twice within a second keeps its time: no byte code is written
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "WEIR_QUICK": "1"}
    env |= {"NUMBA_DISABLE_JIT": "1"} if interpreted else {}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, "-W", "ignore", *tests],
        cwd=tree,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def failing_without(tree: Path, faults: Sequence[Fault]) -> str:
    """Output of the tests of faults that fail on unchanged sources; empty if none does."""
    for interpreted in (False, True):
        tests = {name: None for f in faults if f.interpreted == interpreted for name in f.tests}
        if tests:
            code, output = run(tree, tests, interpreted)
            if code != PASSED:
                return output
    return ""


def outcome(tree: Path, fault: Fault) -> tuple[bool, str]:
    """Whether the tests find a fault, and by what."""
    changed = tree / fault.file
    changed.write_text(changed.read_text("utf-8").replace(fault.text, fault.replacement), "utf-8")
    try:
        code, output = run(tree, fault.tests, fault.interpreted)
    finally:
        shutil.copy2(ROOT / fault.file, changed)
    if code == PASSED:
        return False, "NOT FOUND"
    lines = [line for line in output.splitlines() if line.startswith("FAILED ")]
    failed = [line.removeprefix("FAILED ").partition(" - ")[0] for line in lines]
    if code != FAILED or not failed:
        return False, f"the tests did not run\n{output[-3000:]}"
    return True, f"found by {failed[0]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the faults of these numbers, or all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("numbers", metavar="NUMBER", type=int, nargs="*", help="default: all")
    numbers = set(parser.parse_args(arguments).numbers)
    faults = [fault for fault in load() if not numbers or fault.number in numbers]
    stale = [fault for fault in faults if not fault.is_current]
    for fault in stale:
        print(f"{fault.number:2} {fault.file}: out of date, its text does not occur once")
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_sources(Path(folder) / "sources")
        if output := failing_without(tree, faults):
            print(f"The tests fail without a fault:\n{output[-3000:]}")
            return 1
        for fault in (fault for fault in faults if fault.is_current):
            is_found, how = outcome(tree, fault)
            missed += not is_found
            print(f"{fault.number:2} {fault.file}: {fault.fault}\n   {how}", flush=True)
    print(f"{len(faults) - len(stale) - missed} of {len(faults)} faults are found.")
    return 1 if stale or missed else 0


if __name__ == "__main__":
    sys.exit(main())
