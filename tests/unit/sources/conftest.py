"""Fixtures of the sources' tests."""

from tests.support.servers.fixtures import kafka

__all__ = ["kafka"]
