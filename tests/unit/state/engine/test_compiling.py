"""Functions of a core: called from Python, from one another, and in the next process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from state.engine.compiling import compiled, inlined

ROOT = Path(__file__).resolve().parents[4]
IN_A_PROCESS = """
import json
from state.rate_limits.bucket import muldiv
result = int(muldiv(7, 6, 5))
inner, outer = muldiv, muldiv._for_python
print(json.dumps([
    result, sum(outer.stats.cache_hits.values()), len(inner.signatures), len(outer.signatures)
]))
"""


def functions() -> tuple[Any, Any]:
    """A function, and one that calls it and is called by none."""

    @inlined
    def add(values: np.ndarray, i: int, amount: int) -> None:
        values[i] += amount

    @compiled
    def add_to_all(values: np.ndarray, amount: int = 1) -> int:
        for i in range(len(values)):
            add(values, i, amount)
        return len(values)

    return add, add_to_all


def test_python_and_compiled_functions_call_the_same_function() -> None:
    add, add_to_all = functions()
    values = np.zeros(3, np.int64)
    assert add_to_all(values, 5) == 3
    assert add_to_all(values) == 3
    add(values, 1, 10)
    assert values.tolist() == [6, 16, 6]


def test_only_what_python_calls_can_be_called_from_python() -> None:
    add, add_to_all = functions()
    add_to_all(np.zeros(3, np.int64), 5)
    assert (len(add.signatures), add._for_python) == (1, None)
    assert (len(add_to_all.signatures), len(add_to_all._for_python.signatures)) == (0, 1)


def test_the_next_process_takes_the_compiled_code(tmp_path: Path) -> None:
    def answer() -> list[int]:
        done = subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS],
            cwd=ROOT,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        found: list[int] = json.loads(done.stdout)
        return found

    assert answer() == [8, 0, 0, 1]
    (kept,) = tmp_path.rglob("*muldiv_for_python*.nbc")
    assert b"muldiv" not in kept.read_bytes(), "its symbols are not compressed"
    assert answer() == [8, 1, 0, 1]
