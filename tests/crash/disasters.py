"""Every disaster."""

from __future__ import annotations

from tests.crash import broker, clock, damage, disk, kills, storm
from tests.crash.disaster import Disaster

DISASTERS: list[Disaster] = [
    *kills.DISASTERS,
    *disk.DISASTERS,
    *broker.DISASTERS,
    *damage.DISASTERS,
    *clock.DISASTERS,
    *storm.DISASTERS,
]
