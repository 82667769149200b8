"""Fixtures of the tests with real servers."""

from tests.servers.fixtures import kafka, pulsar

__all__ = ["kafka", "pulsar"]
