"""One page for the tests that only look at it."""

from tests.support.report_page import page, warehouse

__all__ = ["page", "warehouse"]
