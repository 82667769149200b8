"""What is wrong with a policy document of the configuration.

`state.policies` says what a document may hold, on the stream and here. A configuration is written
by hand, so more is refused in it: a forgotten key, a rate below -1, a fraction of a message.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from app.errors import did_you_mean
from state.policies import LIMIT_TYPES as SCOPES
from state.policies import problem

__all__ = ["SCOPES", "problems"]

KEYS = ("scope", "name", "limits")
FRACTIONS = (
    "producer_ids_rate", "backlogQuotaDefaultLimitGB", "managedLedgerCacheSizeMB",
    "managedLedgerCacheEvictionWatermark",
)


def problems(document: Any) -> Iterator[tuple[str, str]]:
    """Every mistake of a policy document as (key, what is wrong with it)."""
    if not isinstance(document, dict):
        yield "", f"{document!r} is not an object with scope, name and limits"
        return
    for key in document:
        if key not in KEYS:
            yield str(key), f"unknown key ({did_you_mean(str(key), KEYS)})"
    missing = [key for key in KEYS if key not in document]
    yield from ((key, "is missing") for key in missing)
    if missing:
        return
    scope, name, limits = (document[key] for key in KEYS)
    if not isinstance(scope, str) or scope not in SCOPES:
        yield "scope", f"{scope!r} is not one of {', '.join(SCOPES)}"
        return
    if not isinstance(name, str) or not name:
        yield "name", f"{name!r} is not a name"
    if not isinstance(limits, dict):
        yield "limits", f"{limits!r} is not an object"
        return
    for key, value in limits.items():
        if key not in SCOPES[scope]:
            hint = did_you_mean(str(key), tuple(SCOPES[scope]))
            yield f"limits.{key}", f"no limit of scope {scope} ({hint})"
        elif wrong := problem({"scope": scope, "name": "any", "limits": {key: value}}):
            yield f"limits.{key}", wrong.removeprefix(f"{key} ")
        else:
            yield from ((f"limits.{at}", text) for at, text in _numbers(key, value))


def _numbers(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for inner, item in value.items():
            yield from ((f"{key}.{at}", text) for at, text in _numbers(inner, item))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < -1:
            yield key, f"{value} is below -1 (-1 and 0 are off)"
        elif value != math.floor(value) and key not in FRACTIONS:
            yield key, f"{value} is not a whole number"
