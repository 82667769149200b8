"""How long a client keeps the chunks of an incomplete message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST_MS = 2**62


def longest_life_ms(expiry_ms: int, idle_state_ms: int) -> int:
    """A pass drops it within two expiry times; with expiry off it is followed for as long as state
    is kept.
    """
    return min(2 * expiry_ms, LONGEST_MS) if expiry_ms > 0 else idle_state_ms


def wait_ms(params: Mapping[str, Any]) -> int:
    """How long a stored message may wait for a shared subscription: an expiry, or a window if that
    is off."""
    expiry = int(params["expireTimeOfIncompleteChunkedMessageMillis"])
    return min(expiry, LONGEST_MS) if expiry > 0 else int(params["stats_window_ms"])
