"""A span of event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.terminal.moments import instant_of

FIRST_MS, LAST_MS = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class EventSpan:
    """Event times from `begin_ms` to before `end_ms` (ms since the epoch)."""

    begin_ms: int = FIRST_MS
    end_ms: int = LAST_MS

    def described(self, filters: Mapping[str, Sequence[str]] | None = None) -> str:
        """The span, and patterns by what they are about, in words."""
        parts = [] if self.begin_ms == FIRST_MS else [f"from {instant_of(self.begin_ms)}"]
        parts += [] if self.end_ms == LAST_MS else [f"before {instant_of(self.end_ms)}"]
        parts += [f"of {name} {', '.join(said)}" for name, said in (filters or {}).items()]
        return " ".join(parts) or "over the whole archive"


WHOLE = EventSpan()
