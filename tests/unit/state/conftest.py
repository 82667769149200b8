"""What is written by hand is judged twice: by the core and by the reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.state import both


@pytest.fixture(params=["core", "core in pieces", "reference"])
def runner(request: pytest.FixtureRequest) -> Iterator[str]:
    """Who judges the records that a test gives to `both.judge`."""
    both.RUNNER[0] = request.param
    yield request.param
