"""Fixtures of the sources' tests."""

from tests.servers.fixtures import kafka

__all__ = ["kafka"]
