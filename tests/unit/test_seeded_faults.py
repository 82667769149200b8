"""The list of seeded faults, as the nightly tier reads it: a text or a test that it names is there."""

from __future__ import annotations

import ast

from tests import faults


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
