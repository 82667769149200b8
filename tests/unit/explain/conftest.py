"""One warehouse of what the cores decide, for all tests of explanations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.explain.rows import fill


@pytest.fixture(scope="session")
def decided(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The warehouse; nobody writes to it."""
    folder = Path(tmp_path_factory.mktemp("explain")) / "warehouse"
    fill(str(folder))
    return str(folder)
