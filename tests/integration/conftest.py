"""Fixtures of the tests with real servers."""

from tests.integration.live import lines, reference, reference_warehouse
from tests.servers.fixtures import kafka, pulsar

__all__ = ["kafka", "lines", "pulsar", "reference", "reference_warehouse"]
