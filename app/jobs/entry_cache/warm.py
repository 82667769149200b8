"""Compiles what the job's core does not call itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from state.entry_cache.belady import compare


def warm(blob: bytes, params: Mapping[str, Any]) -> None:
    """Evict with foresight."""
    compare([blob], {**params, "variants": [{"policy": "belady"}]})
