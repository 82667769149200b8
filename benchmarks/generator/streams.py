"""Streams of records: what one feed reports about one broker, with its numbering and clocks."""

from __future__ import annotations

import numpy as np

from benchmarks.generator.fleet import Fleet
from benchmarks.generator.json_lines import running_number
from benchmarks.generator.plan import MS
from benchmarks.generator.trace_rows import NULL, PLACE

FEEDS = ("pulsar_interceptor", "pulsar_admin", "contract", "kafka_request_log", "kafka_dump_log")
INTERCEPTOR, ADMIN, CONTRACT, REQUEST_LOG, DUMP_LOG = range(len(FEEDS))
WALL_ONLY = (ADMIN, REQUEST_LOG, DUMP_LOG)
"""Feeds without a monotonic clock."""
FLEET_WIDE = -1
"""In place of a broker: the record holds for every broker, and only a poll can have seen it."""


def stream_of(fleet: Fleet, feed: int, broker: int | np.ndarray) -> int | np.ndarray:
    """The number of the stream of a feed and a broker (or an array of them)."""
    keys = len(fleet.keys)
    if isinstance(broker, int) and broker == FLEET_WIDE:
        return ADMIN * keys + len(fleet.brokers)
    return feed * keys + broker


def kafka_stream_of(fleet: Fleet, feed: int, broker: np.ndarray) -> np.ndarray:
    """The numbers of the streams of a feed and brokers of the Kafka cluster."""
    return feed * len(fleet.keys) + len(fleet.brokers) + 1 + broker


class Clocks:
    """Fills in feed, broker, number and both clocks of rows; numbering goes on between calls."""

    def __init__(self, fleet: Fleet) -> None:
        texts, keys = fleet.texts, fleet.keys
        self._fleet = fleet
        self._next = np.zeros(len(FEEDS) * len(keys), dtype=np.int64)
        self._feed = np.repeat(texts.add_all(list(FEEDS)), len(keys))
        self._broker = np.tile(texts.add_all(keys), len(FEEDS))
        kafka = fleet.scenario.kafka
        others = [] if kafka is None else [kafka.cluster] * kafka.brokers
        clusters = [fleet.scenario.cluster] * (len(keys) - len(others)) + others
        self._cluster = np.tile(texts.add_all(clusters), len(FEEDS))

    def stamp(self, rows: np.ndarray) -> None:
        """Stamps rows in place: wall = floor of the true time, mono = origin of the run + exact.

        A poll has no monotonic clock, and neither have the logs of Kafka.
        """
        fleet, keys = self._fleet, len(self._fleet.keys)
        stream, at = rows[:, PLACE["stream"]], rows[:, PLACE["at_ns"]]
        broker = np.minimum(stream % keys, len(fleet.brokers) - 1)
        rows[:, PLACE["source_feed"]] = self._feed[stream]
        rows[:, PLACE["cluster"]] = self._cluster[stream]
        rows[:, PLACE["broker"]] = self._broker[stream]
        order = np.argsort(at, kind="stable")
        rows[:, PLACE["seq"]] = running_number(stream, self._next, order)
        rows[:, PLACE["ts_wall_ms"]] = fleet.scenario.start_ms + at // MS
        restarts = fleet.restarts_ns[broker]
        later = at >= restarts
        since = np.where(later, at - np.where(later, restarts, 0), at)
        mono = fleet.origins[broker, later.astype(np.int64)] + since
        without = np.isin(stream // keys, WALL_ONLY)
        rows[:, PLACE["ts_mono_ns"]] = np.where(without, NULL, mono)
