"""Values in the documents of a broker; None for one that is not what it should be."""

from __future__ import annotations

import re
from typing import Any, TypeGuard

_POSITION = re.compile(r"(0|[1-9][0-9]{0,18}):(-1|0|[1-9][0-9]{0,18})")
_MOST = 2**63 - 1


def whole(value: Any) -> int | None:
    """A whole number of 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or not -_MOST <= value <= _MOST:
        return None
    return value


def count(value: Any) -> int | None:
    """A whole number that is not negative."""
    number = whole(value)
    return None if number is None or number < 0 else number


def count_in(document: Any, key: str) -> int | None:
    """A count of a document."""
    return count(document.get(key)) if isinstance(document, dict) else None


def time_in(document: Any, key: str) -> int | None:
    """A time in ms; 0 and -1, which mean none, are None."""
    return count_in(document, key) or None


def is_position(value: Any) -> TypeGuard[str]:
    """Whether a value is ledger:entry."""
    found = _POSITION.fullmatch(value) if isinstance(value, str) else None
    return found is not None and int(found[1]) <= _MOST and int(found[2]) <= _MOST


def is_text(value: Any) -> TypeGuard[str]:
    """Whether a value is a text that can be written."""
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
