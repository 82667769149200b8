"""The samples of some metrics in the text that an exporter for Prometheus answers with.

A page is read as it arrives, line by line: neither its size nor that of a line decides the memory, and
a line that is no sample costs itself. Format: the text format 0.0.4 of Prometheus.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from app.errors import reason

MOST_OF_LINE = 64 << 10
"""Bytes of a line."""
EACH, MOST_KEPT = 1 << 10, 256 << 20
"""Bytes that are kept of a sample beside its line, and of all samples of a page."""
SHOWN = 80
"""Characters that are shown of a line."""
# Possessive: no line makes them go back. A long number would be one of another size where it is cut.
_NAME = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*+)[ \t]*+(\{)?+")
_LABEL = re.compile(
    r'[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"[ \t]*+(?:,|(?=\}))',
    re.DOTALL,
)
_VALUE = re.compile(
    r"[ \t]*+([+-]?+(?:[0-9]{1,400}+(?:\.[0-9]{0,400}+)?+|\.[0-9]{1,400}+)(?:[eE][+-]?+[0-9]{1,9}+)?+"
    r"|(?i:nan|[+-]?+inf(?:inity)?+))"
    r"(?:[ \t]++[+-]?+[0-9.]++)?+[ \t\r]*+(?:#.*)?+",
    re.DOTALL,
)
_CLOSED = re.compile(r"[ \t]*+\}")
_ESCAPED = re.compile(r'\\([\\n"])')


class ExportedSample(NamedTuple):
    """One number of an answer."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass
class OmittedSamples:
    """Samples of an answer that are left out."""

    count: int = 0
    first: str = ""

    def add(self, why: object) -> None:
        """One more; `why` is told of the first one."""
        self.first = self.first or reason(why)
        self.count += 1

    def problems(self) -> list[str]:
        """In a line; none where nothing is left out."""
        many = f"{self.count} samples are left out, the first because" if self.count > 1 else ""
        return [f"{many or 'a sample is left out because'} {self.first}"] if self.count else []


def page_lines(parts: Iterable[bytes]) -> Iterator[str]:
    """The lines of an answer that comes in parts; of a longer one than MOST_OF_LINE the beginning."""
    rest = bytearray()
    for part in parts:
        first, *others = part.split(b"\n")
        rest += first[: MOST_OF_LINE + 1 - len(rest)]
        for line in others:
            yield rest.decode(errors="replace")
            rest = bytearray(line[: MOST_OF_LINE + 1])
    yield from [rest.decode(errors="replace")] if rest else []  # the last line needs no LF


def samples(
    lines: Iterable[str], names: Collection[str], left: OmittedSamples, most_kept: int = MOST_KEPT
) -> Iterator[ExportedSample]:
    """Those of metrics of these names that have a number. A server answers with many more: other lines
    are not parsed. Samples are taken until they need `most_kept` bytes.
    """
    wanted = tuple(f"{name}{end}" for name in names for end in ("{", " ", "\t"))
    kept = 0
    for line in lines:
        if not line.startswith(wanted):
            continue
        try:
            kept += EACH + len(line)
            if kept > most_kept:
                raise ValueError(f"all of them take more than {most_kept >> 20} MiB")
            sample = _parsed(line)
        except ValueError as error:
            left.add(error)
            continue
        if not math.isnan(sample.value):
            yield sample


def in_range(sample: ExportedSample, most: float) -> float:
    """The value of a sample; ValueError for one that is not finite, or beyond `most` on either side."""
    if not abs(sample.value) <= most:
        raise ValueError(f"{sample.value} of {sample.name} is out of range")
    return sample.value


def _parsed(line: str) -> ExportedSample:
    begin = _NAME.match(line)
    assert begin is not None  # its name is wanted
    labels: dict[str, str] = {}
    at = begin.end()
    while begin[2] and (found := _LABEL.match(line, at)):
        name, value = found.groups()
        if name in labels:
            raise ValueError(f"it has the label {name} twice: {line[:SHOWN]!r}")
        labels[name] = (
            _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
            if "\\" in value
            else value
        )
        at = found.end()
    closed = _CLOSED.match(line, at) if begin[2] else begin
    number = _VALUE.fullmatch(line, closed.end()) if closed else None
    if number is None or len(line) > MOST_OF_LINE:
        raise ValueError(
            f"it is no sample, or longer than {MOST_OF_LINE >> 10} KiB: {line[:SHOWN]!r}"
        )
    return ExportedSample(begin[1], labels, float(number[1]))
