"""How long `./test.sh` takes from a prepared environment, and which files take it; the floor is its CPU
time by cores."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.result import Result
from benchmarks.stream import Bench

ROOT = Path(__file__).resolve().parents[1]
LISTED = 30
"""Of the files, those that take most."""


def run(bench: Bench) -> Result:
    """The default suite once; of a small run one file."""
    files = ["tests/unit/test_architecture.py"] if bench.small else []
    used_s: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="weir-cpu-") as folder:
        environ = {**os.environ, "WEIR_CPU": folder, "PYTEST_ADDOPTS": "-p tests.support.cpu"}
        lines: list[str] = []
        with subprocess.Popen(
            [str(ROOT / "test.sh"), *files],
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        ) as suite:
            assert suite.stdout is not None
            for line in suite.stdout:
                print(line, end="", file=sys.stderr, flush=True)
                lines.append(line)
        for each in Path(folder).iterdir():
            used_s.update(
                {file: cpu_s for file, (_, cpu_s) in json.loads(each.read_text()).items()}
            )
    found = re.search(r"(\d+) passed.* in ([0-9.]+)s", "".join(lines[-50:]))
    assert found and not suite.returncode, suite.returncode
    result = Result("suite", int(found[1]), bench.small)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cores = os.cpu_count() or 1
    result.add("floor: CPU time by cores", (used.ru_utime + used.ru_stime) / cores, "s")
    result.add("tests", float(found[2]), "s", note=f"{found[1]} passed")
    result.ratio("tests", "floor: CPU time by cores")
    for file, cpu_s in used_s.most_common(LISTED):
        result.add(f"CPU of {file}", cpu_s, "s")
    return result
