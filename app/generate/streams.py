"""Streams of records: what one feed reports about one broker, with its numbering and clocks."""

from __future__ import annotations

import numpy as np

from app.generate.fleet import Fleet
from app.generate.json_lines import running_number
from app.generate.plan import MS
from app.generate.rows import NULL, PLACE

FEEDS = ("pulsar_interceptor", "pulsar_admin", "contract")
INTERCEPTOR, ADMIN, CONTRACT = range(3)
FLEET_WIDE = -1
"""In place of a broker: the record holds for every broker, and only a poll can have seen it."""


def stream_of(fleet: Fleet, feed: int, broker: int | np.ndarray) -> int | np.ndarray:
    """The number of the stream of a feed and a broker (or an array of them)."""
    count = len(fleet.brokers)
    if isinstance(broker, int) and broker == FLEET_WIDE:
        return ADMIN * (count + 1) + count
    return feed * (count + 1) + broker


class Clocks:
    """Fills in feed, broker, number and both clocks of rows; numbering goes on between calls."""

    def __init__(self, fleet: Fleet) -> None:
        count = len(fleet.brokers)
        self._fleet = fleet
        self._next = np.zeros(len(FEEDS) * (count + 1), dtype=np.int64)
        self._feed = np.repeat(fleet.texts.add_all(list(FEEDS)), count + 1)
        brokers = np.append(fleet.broker_text, fleet.texts.add("*"))
        self._broker = np.tile(brokers, len(FEEDS))
        self._cluster = fleet.texts.add(fleet.scenario.cluster)

    def stamp(self, rows: np.ndarray) -> None:
        """Stamps rows in place: wall = floor of the true time, mono = origin of the run + exact.

        A poll has no monotonic clock.
        """
        fleet, count = self._fleet, len(self._fleet.brokers)
        stream, at = rows[:, PLACE["stream"]], rows[:, PLACE["at_ns"]]
        broker = np.minimum(stream % (count + 1), count - 1)
        rows[:, PLACE["source_feed"]] = self._feed[stream]
        rows[:, PLACE["cluster"]] = self._cluster
        rows[:, PLACE["broker"]] = self._broker[stream]
        order = np.argsort(at, kind="stable")
        rows[:, PLACE["seq"]] = running_number(stream, self._next, order)
        rows[:, PLACE["ts_wall_ms"]] = fleet.scenario.start_ms + at // MS
        restarts = fleet.restarts_ns[broker]
        later = at >= restarts
        since = np.where(later, at - np.where(later, restarts, 0), at)
        mono = fleet.origins[broker, later.astype(np.int64)] + since
        polled = stream // (count + 1) == ADMIN
        rows[:, PLACE["ts_mono_ns"]] = np.where(polled, NULL, mono)
