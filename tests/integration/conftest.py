"""Fixtures of the tests with real servers."""

from tests.servers.fixtures import kafka

__all__ = ["kafka"]
