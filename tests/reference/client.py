"""What a client knows of its throttles: the second half of section 6."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A throttle command as it arrives: on the client's clock, and as the rows show it."""

    request_id: int
    reason: str
    at_ms: int
    lasts_ms: int
    has_wall: bool

    @property
    def end_ms(self) -> int:
        return self.at_ms + self.lasts_ms

    def shown(self) -> dict[str, int | None]:
        """Columns of the interval; without a wall time there are none."""
        if not self.has_wall:
            return {"start_ms": None, "pause_ms": None, "end_ms": None}
        return {"start_ms": self.at_ms, "pause_ms": self.lasts_ms, "end_ms": self.end_ms}


@dataclass
class Client:
    """The client's side of one open producer."""

    opened: int
    """Order of opening among all producers of the key."""
    kept: Command | None = None
    """The command whose interval counts."""
    arrived_ms: int | None = None
    """When the last command came."""

    def take(self, command: Command, repeat_throttle: str) -> None:
        """A further command replaces the kept one; with `max` not by an earlier end."""
        self.arrived_ms = command.at_ms
        shorter = self.kept is not None and command.end_ms < self.kept.end_ms
        if repeat_throttle == "replace" or not shorter:
            self.kept = command

    def is_throttled(self, at_ms: int) -> bool:
        """The end is open."""
        return self.kept is not None and at_ms < self.kept.end_ms

    def explains(self, timeout_ms: int, sent_ms: int | None, timeout_rule: str) -> Command | None:
        """The command that makes a timeout a `ProducerThrottledException`."""
        if timeout_rule == "active":
            return self.kept if self.is_throttled(timeout_ms) else None
        if self.arrived_ms is None or (sent_ms is not None and self.arrived_ms < sent_ms):
            return None
        return self.kept
