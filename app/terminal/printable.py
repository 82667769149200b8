"""Text of others on a terminal and in pages."""

from __future__ import annotations

import json
from typing import Any, TextIO


def printable(text: str) -> str:
    """The text on one line, with escapes such as `\\x1b` in place of characters that would move the
    cursor, change colours or turn the direction of reading."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def lines(text: str) -> str:
    """The text with each of its lines printable."""
    return "\n".join(map(printable, text.split("\n")))


def in_page(value: Any) -> Any:
    """A value of a template: text is printable, spaces that do not break stay; markup is as it is."""
    return "\xa0".join(map(lines, value.split("\xa0"))) if type(value) is str else value


def say(*parts: object, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print for people, as `print` does, with each line printable."""
    print(lines(" ".join(map(str, parts))), end=end, file=file, flush=flush)


def say_json(document: Any, indent: int | None = None, flush: bool = False) -> None:
    """Print JSON; a reader of it finds each text as it is."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    print("\n".join(map(in_json, text.split("\n"))), flush=flush)


def in_json(text: str) -> str:
    """JSON on one line, with escapes of JSON for such characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
