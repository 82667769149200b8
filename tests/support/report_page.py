"""One page for the tests that only look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main
from tests.support.report_warehouse import fill


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse with rows in every table that a report shows."""
    folder = str(tmp_path_factory.mktemp("report") / "warehouse")
    fill(folder)
    return folder


@pytest.fixture(scope="session")
def page(warehouse: str) -> Path:
    """The report about it."""
    out = Path(warehouse).parent / "report.html"
    docs = Path(warehouse) / "_weir" / "quality" / "index.html"
    docs.parent.mkdir()
    docs.write_text("<title>Data Docs</title>")
    assert main(["report", "--warehouse", warehouse, "--out", str(out)]) == 0
    return out
