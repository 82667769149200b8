"""Reads and writes sizes in bytes with units."""

from __future__ import annotations

import re
from fractions import Fraction

UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) *([a-z]*)")


def size_text(n: float) -> str:
    """A size with its unit: 250 MB, 4.2 MB, 900 bytes; 1 MB = 1,000,000 bytes."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.0f} {unit}" if n >= 100 * size else f"{n / size:.1f} {unit}"
    return f"{n:.0f} byte{'' if round(n) == 1 else 's'}"


def read_size(text: str) -> int | None:
    """Bytes of a size such as 64MB, 1.5 GiB or 4096; None if it is none."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or found[2] not in UNITS:
        return None
    return round(Fraction(found[1]) * UNITS[found[2]])
