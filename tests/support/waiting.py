"""Waiting for what another process or thread makes true."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120
"""How long a server on this machine may take for one answer, be it as loaded as it may: a bound on a
hang, not an expectation."""


def wait_for(what: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until something holds; it fails where that takes longer than `seconds`. A look that takes
    long comes less often: what is waited for needs the processor."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if what():
            return
        now = time.monotonic()
        assert now < deadline, "it did not happen in time"
        time.sleep(min(max(0.1, 3 * (now - began)), 2.0))
