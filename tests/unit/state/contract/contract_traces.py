"""What tests share of contract traces."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from tests.support.effort import drawn

SEEDS = st.integers(0, 2**32 - 1)


def checked(whole: int, kind: str) -> settings:
    """Fewer examples of traces that are long."""
    return drawn(whole // 5 if kind == "long" else whole)
