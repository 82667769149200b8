"""Fixtures of the sources' tests."""

from tests.support.servers.fixtures import kafka, pytest_runtest_teardown

__all__ = ["kafka", "pytest_runtest_teardown"]
