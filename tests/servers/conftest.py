"""Fixtures of the tests with real servers."""

from tests.servers.live import lines, reference, reference_warehouse
from tests.support.report_page import page, warehouse
from tests.support.servers.fixtures import kafka, pulsar, pytest_runtest_teardown

__all__ = [
    "kafka",
    "lines",
    "page",
    "pulsar",
    "pytest_runtest_teardown",
    "reference",
    "reference_warehouse",
    "warehouse",
]
