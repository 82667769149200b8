"""Tuples of arrays reach compiled functions as they are, however deep their members lie."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RULES = """
from typing import NamedTuple

import numpy as np

from state.engine.compiling import compiled, inlined
from udfs.worlds import made_by_rules

ROW = np.dtype([("a", "i8"), ("b", "f8")], align=True)


class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray


class Mixed(NamedTuple):
    flag: bool
    small: np.int32
    rows: np.ndarray
    pair: Pair
    half: float
    table: np.ndarray


class World(NamedTuple):
    mixed: Mixed
    count: np.int64
    ids: np.ndarray
    pairs: Pair
    nothing: np.ndarray


class Amounts(NamedTuple):
    messages: np.int64
    bytes: np.int64


@made_by_rules
class Made(NamedTuple):
    values: np.ndarray
    at: np.int64


@compiled
def second(pair, i):
    return pair.second[i]


@compiled
def put(w, i, value):
    w.mixed.pair.first[i] = value
    w.mixed.rows[i].a += value
    w.mixed.rows[i]["b"] = w.mixed.half


@inlined
def of(w, i):
    return Made(w.ids, i)


@compiled
def amounts(w, i):
    return Amounts(second(w.pairs, i), second(w.mixed.pair, i))


@compiled
def longer(w):
    w = w  # a variable of two values
    for i in range(len(w.ids)):
        put(w, i, w.ids[i] * w.count)
    return len(w.nothing)


@compiled
def run(w, flip):
    n = longer(w)
    made = of(w, 1)
    a = amounts(w, 2)
    if flip:
        w.mixed.table[1, 2] = made.values[made.at]
    e = w.mixed
    numbers, others = w.mixed.pair
    w.mixed.table[0, 0] = numbers[0] + others[0]
    return n, a.messages + a.bytes, e.flag, e.small, e.half, made.at
"""
PROGRAM = """
import numpy as np
from state.of_test import *

i = np.arange(3)
w = World(
    Mixed(True, np.int32(-7), np.zeros(3, ROW).view(np.recarray), Pair(i * 0, i + 10), 0.5, np.zeros((2, 3))),
    np.int64(100), i + 1, Pair(i.astype(np.int32), (i + 20).astype(np.int32)), np.zeros(0),
)
print([*map(float, run(w, True))], w.mixed.pair.first, w.mixed.rows.a, w.mixed.rows.b, w.mixed.table.tolist())
print(second(w.pairs, 1), sum(getattr(run, "_for_python", run).stats.cache_hits.values()))
try:
    run(w._replace(ids=None), True)
except Exception as error:
    print(type(error).__name__)
try:
    run((1, 2), True)
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("times", [1, 2], ids=["compiled", "from-the-cache"])
def test_members_are_read_and_written_as_python_does(tmp_path: Path, times: int) -> None:
    for name in ("state", "udfs"):
        (tmp_path / name).mkdir()
        for source in (ROOT / name).rglob("*.py"):
            place = tmp_path / source.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(source)
    (tmp_path / "state" / "of_test.py").write_text(RULES, encoding="utf-8")
    for _ in range(times):
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            check=True,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path)},
        ).stdout.splitlines()
    assert found[0] == (
        "[0.0, 34.0, 1.0, -7.0, 0.5, 1.0] [100 200 300] [100 200 300] [0.5 0.5 0.5]"
        " [[110.0, 0.0, 0.0], [0.0, 0.0, 2.0]]"
    )
    assert found[1] == f"21 {times - 1}"
    assert found[2:] == ["TypingError", "TypingError"]
