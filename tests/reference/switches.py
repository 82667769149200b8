"""The version parameters of section 8: the first value of each is the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VALUES = {
    "tokenbucket": ("saturating", "wrapping", "per_tick"),
    "release_condition": ("target", "positive"),
    "throttle_tracker": ("per_type", "shared_counter"),
    "limit_change": ("immediate", "scheduled"),
    "protocol": ("none", "pip385"),
    "receipt_model": ("none", "supported", "observed", "all"),
    "broker_reason": ("inform", "wait"),
    "pause_rule": ("pip", "model"),
    "repeat_throttle": ("replace", "max"),
    "timeout_rule": ("active", "seen"),
    "observed_pauses": ("correct", "ignore"),
}


def switches(params: Mapping[str, Any]) -> dict[str, str]:
    """The value in force of every version parameter."""
    found = {}
    for name, values in VALUES.items():
        found[name] = params.get(name, values[0])
        if found[name] not in values:
            raise ValueError(f"{name} is {found[name]!r}")
    return found
