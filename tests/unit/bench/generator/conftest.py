"""One small trace, read once, for the tests of this folder."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import ArrivalSlice, Trace, plan_trace
from tests.unit.bench.generator.model import applied_records, parsed_lines


@pytest.fixture(scope="package")
def small() -> Trace:
    """Every incident on a small fleet."""
    return plan_trace(load_scenario("small"), 20_000, 7)


@pytest.fixture(scope="package")
def slices(small: Trace) -> list[ArrivalSlice]:
    """Its slices."""
    return list(small.slices())


@pytest.fixture(scope="package")
def arrived(slices: list[ArrivalSlice]) -> list[dict[str, Any]]:
    """Its well-formed records as they arrive."""
    return parsed_lines(slices)


@pytest.fixture(scope="package")
def applied(arrived: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Its well-formed records in order of true time, each once."""
    return applied_records(arrived)
