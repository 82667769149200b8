"""Waiting for what another process or thread makes true."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(what: Callable[[], object], seconds: float = 120) -> None:
    """Wait until something holds; it fails where that takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
