"""Warehouses of the tests that need neither Java nor a server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.read import table_relation


@pytest.fixture
def tmp_warehouse(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The path of a warehouse that does not exist yet.

    One test after the other has its own at the same place, since DuckDB takes 20 ms of CPU to make
    the database of a folder. Spark remembers the tables of a path, so that tests with a session get
    places of their own.
    """
    if "spark" in request.fixturenames:
        return str(tmp_path / "warehouse")
    place = tmp_path_factory.getbasetemp() / "warehouses"
    if place.exists():  # with what the test before has put beside its warehouse
        shutil.rmtree(place)
    place.mkdir()
    return str(place / "warehouse")


@pytest.fixture(params=[table_relation.SMALL_ROWS, -1], ids=["in memory", "in files"])
def both_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are read as small ones are, and as large ones are."""
    monkeypatch.setattr(table_relation, "SMALL_ROWS", request.param)
