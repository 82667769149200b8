"""Problems that polls meet again and again: reported when they begin, at most once an hour while
they last, and when they end."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

SHOWN = 3
"""Problems that a line names, at most."""
AGAIN_S = 3600
"""Time from one line on problems that last to the next."""
ENDED = 2
"""A problem has ended after so many polls in a row without it."""


@dataclass
class _Lasting:
    texts: list[str]
    began_s: float
    said_s: float
    last_s: float
    polls: int = 1
    absent: int = 0

    def __str__(self) -> str:
        return "; ".join(self.texts[:SHOWN])

    def so_far(self) -> str:
        """It in one line, without the advice that some errors have."""
        text = str(self).partition("\n")[0]
        return f"{text} ({self.polls} polls, {self.last_s - self.began_s:,.0f} s)"


@dataclass
class Problems:
    """What has been reported of the problems of one feed."""

    _known: dict[str, _Lasting] = field(default_factory=dict)

    def lines(self, problems: Iterable[str], now_s: float, whole: bool = True) -> list[str]:
        """What is new after a poll, a line each: problems that have begun, that last, and that have
        ended. `whole` is false for a poll that could not find out which still exist.

        What a problem is about is its text up to the first colon: `partition dark/0: has no leader`
        and `partition dark/0: timed out` are one problem.
        """
        found: dict[str, list[str]] = {}
        for text in problems:
            texts = found.setdefault(text.partition(": ")[0], [])
            texts += [] if text in texts else [text]
        begun = []
        for about, texts in found.items():
            lasting = self._known.get(about)
            if lasting is None:
                begun.append(_Lasting(texts, now_s, now_s, now_s))
                self._known[about] = begun[-1]
            else:
                lasting.texts, lasting.last_s, lasting.absent = texts, now_s, 0
                lasting.polls += 1
        ended = self._ended(found, whole)
        lines = _line("", [str(each) for each in begun])
        if any(now_s >= each.said_s + AGAIN_S for each in self._known.values()):
            lasting_ones = [each for each in self._known.values() if each not in begun]
            lines += _line("still ", [each.so_far() for each in lasting_ones])
            for each in lasting_ones:
                each.said_s = now_s
        return lines + _line("ended: ", [each.so_far() for each in ended])

    def _ended(self, found: Container[str], whole: bool) -> list[_Lasting]:
        if not whole:
            return []
        ended = []
        for about in [known for known in self._known if known not in found]:
            lasting = self._known[about]
            lasting.absent += 1
            if lasting.absent >= ENDED:
                ended.append(self._known.pop(about))
        return ended


def _line(what: str, texts: list[str]) -> list[str]:
    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return [what + "; ".join(texts[:SHOWN]) + more] if texts else []
