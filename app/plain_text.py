"""Text of files and protocols: LF alone ends a line, and digits are those of ASCII.

`str.splitlines` also ends a line at VT, FF, FS, GS, RS, NEL, U+2028, U+2029 and a lone CR, which
names of clients and topics may have, and `str.isdigit` takes characters that `int` refuses.
"""

from __future__ import annotations

from typing import AnyStr


def lines_of(text: AnyStr) -> list[AnyStr]:
    """The lines of a text, or of bytes, without their LF; the last one needs none."""
    found = text.split("\n" if isinstance(text, str) else b"\n")
    return found if found[-1] else found[:-1]


def is_digits(text: str) -> bool:
    """Whether a text is a number in ASCII digits, without a sign."""
    return text.isascii() and text.isdigit()
