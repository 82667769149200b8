"""How long a client keeps the chunks of a message that is not complete."""

from __future__ import annotations

LONGEST_MS = 2**62


def longest_life_ms(expiry_ms: int, idle_state_ms: int) -> int:
    """Less than two expiry times pass until a pass drops it; with expiry off it is followed as long
    as state is kept here."""
    return min(2 * expiry_ms, LONGEST_MS) if expiry_ms > 0 else idle_state_ms
