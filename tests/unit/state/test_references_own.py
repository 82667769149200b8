"""A reference decides by its own code: what it took from the product, it could not find wrong."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

REFERENCES = sorted((Path(__file__).parents[2] / "reference").glob("*.py"))


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_a_reference_imports_nothing_of_the_product(path: Path) -> None:
    imports = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    modules = {each.module or "" for each in imports if isinstance(each, ast.ImportFrom)}
    modules |= {a.name for each in imports if isinstance(each, ast.Import) for a in each.names}
    roots = {module.partition(".")[0] for module in modules}
    assert not roots & {"app", "state", "udfs", "feeds"}
    of_tests = {module for module in modules if module.startswith("tests.")}
    assert all(f"{module}.".startswith("tests.reference.") for module in of_tests)
