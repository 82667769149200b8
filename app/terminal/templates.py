"""Sentences with values: templates in which braces name columns, as in Python's format strings, and
brackets have what is left out where a column in them is null."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from app.terminal.amounts import duration, number_text
from app.terminal.phrases import about, clock, named, number_of, percent, short
from app.terminal.sizes import size_text

FORMATS: Mapping[str, Callable[[Any], str]] = {
    "about": about,
    "capital": lambda text: f"{text[:1].upper()}{text[1:]}",
    "clock": clock,
    "duration": lambda ms: duration(int(ms * 1_000_000)),
    "number": number_text,
    "percent": percent,
    "short": short,
    "size": size_text,
}
"""Formats by name: lengths of time and times of day from ms, a number with the digits that matter, a
share, a topic without its scheme, a size from bytes."""
COUNTED: Mapping[str, Callable[[Any, str], str]] = {"n": number_of, "names": named}
"""Formats with a noun: a number of things, and the names of a list."""
ALLOWED = f"{', '.join(FORMATS)}, {', '.join(f'{name} NOUN' for name in COUNTED)}, or Python's"
_PART = re.compile(r"\[([^][]*)\]")


class _Words(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        kind, _, noun = format_spec.partition(" ")
        if value is None or not format_spec:
            return text_of(value)
        if noun and kind in COUNTED:
            return COUNTED[kind](value, noun)
        return FORMATS.get(format_spec, lambda each: format(each, format_spec))(value)


_WORDS = _Words()


def written(template: str, values: Mapping[str, Any]) -> str:
    """A template with its values."""
    return _WORDS.vformat(template, (), values)


def sentence(template: str, row: Mapping[str, Any]) -> str:
    """A template with the values of a row; a part in brackets only where it has all of its own."""

    def part(found: re.Match[str]) -> str:
        return found[1] if all(row[name] is not None for name in columns(found[1])) else ""

    return written(_PART.sub(part, template), row)


def columns(template: str) -> list[str]:
    """The columns that a template names."""
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


def checked(template: str) -> str:
    """A template as it is; ValueError for one that cannot be written, whatever a row has."""
    for _, name, spec, conversion in Formatter().parse(template):
        if name is None:
            continue
        if not name.isidentifier() or conversion:
            raise ValueError(f"{{{name}}} is not a column (allowed: its name in braces)")
        if not _is_format(spec or ""):
            raise ValueError(f"{{{name}:{spec}}} has no such format (allowed: {ALLOWED})")
    return template


def _is_format(spec: str) -> bool:
    kind, _, noun = spec.partition(" ")
    if spec in FORMATS or (noun and kind in COUNTED):
        return True
    for value in (1, 1.0, ""):
        try:
            format(value, spec)
        except ValueError:
            continue
        return True
    return False


def text_of(value: Any) -> str:
    """A value of a column as text."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.15g}"  # 2000000.0 is 2000000
    return "" if value is None else str(value)
