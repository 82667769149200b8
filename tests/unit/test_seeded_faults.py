"""What the nightly tier runs is there: the texts and tests of seeded faults, and all tests in its parts."""

from __future__ import annotations

import ast
from collections import Counter

from tests import faults, nightly


def test_the_text_of_each_fault_is_there_once() -> None:
    listed = faults.load()
    assert len({each.number for each in listed}) == len(listed) >= 60
    assert [each.number for each in listed if not each.is_current] == []
    assert [each.number for each in listed if each.text == each.replacement] == []


def test_the_tests_of_each_fault_are_there() -> None:
    named = {test for each in faults.load() for test in each.tests}
    there: set[str] = set()
    for file in {test.partition("::")[0] for test in named}:
        parsed = ast.parse((faults.ROOT / file).read_text("utf-8"))
        functions = {each.name for each in parsed.body if isinstance(each, ast.FunctionDef)}
        there |= {file, *(f"{file}::{name}" for name in functions if name.startswith("test_"))}
    assert sorted(named - there) == []


def test_every_test_is_of_one_part_of_a_night() -> None:
    folders = ("tests/crash", "tests/servers", "tests/spark", "tests/unit")
    every = {nightly.ROOT / folder / path for folder in folders for path in nightly.below(folder)}
    parts = [path for part in nightly.PARTS for path in nightly.ROOT.glob(part)]
    found = Counter(
        file for path in parts for file in (path.rglob("test_*.py") if path.is_dir() else [path])
    )
    assert {file: found[file] for file in every if found[file] != 1} == {}
