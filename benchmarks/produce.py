"""Produces the demo's fleet to Kafka as if it ran now: each record at its time, moved to today.

    python -m benchmarks.produce SERVERS TOPIC RATE SECONDS

RATE is the mean of the trace, which swings as the demo does. The key is the broker, so one
broker's records stay in one partition and in order. Prints when it begins (ms since the epoch),
and at the end how many records were sent.
"""

from __future__ import annotations

import re
import sys
import time

import numpy as np
from confluent_kafka import Producer

from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import Trace, plan_trace

STEP_S = 0.005
MOMENT = re.compile(rb'(?<=_ms":)\d{13}(?!\d)')
"""A time since the epoch; monotonic times and durations stay as they are."""
WALL = re.compile(rb'"ts_wall_ms":(\d{13})(?!\d)')


def demo(rate: int) -> Trace:
    """The demo's fleet with a mean rate of records per second until its quiet end."""
    scenario = load_scenario("demo")
    return plan_trace(scenario, rate * scenario.active_s, 7)


def main() -> None:
    """Send until the time is over."""
    servers, topic = sys.argv[1:3]
    rate, seconds = int(sys.argv[3]), float(sys.argv[4])
    trace = demo(rate)
    keys = [key.encode() for key in trace.fleet.keys]
    lines, brokers, due = planned(trace, seconds)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 5,
            "batch.size": 500_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    began, sent = time.time(), 0
    moved = round(1000 * began) - trace.scenario.start_ms
    print(round(1000 * began), flush=True)
    while sent < len(lines) and time.time() - began < seconds:
        until = int(np.searchsorted(due, time.time() * 1000 - moved, "right"))
        for at in range(sent, until):
            producer.produce(topic, moved_by(lines[at], moved), keys[brokers[at]])
        sent = until
        producer.poll(0)
        time.sleep(STEP_S)
    producer.flush(30)
    print(sent)


def planned(trace: Trace, seconds: float) -> tuple[list[bytes], list[int], np.ndarray]:
    """Lines of the first seconds in order of arrival, their brokers, and when each is sent: at the
    latest wall time (ms) so far, since a late record arrives with newer ones."""
    lines: list[bytes] = []
    brokers: list[int] = []
    due: list[int] = []
    latest = trace.scenario.start_ms
    end = latest + 1000 * seconds
    for part in trace.slices():
        if latest >= end:
            break
        for line in part.lines():
            wall = WALL.search(line)
            latest = max(latest, int(wall[1]) if wall else 0)
            lines.append(line)
            due.append(latest)
        brokers += part.brokers.tolist()
        latest = max(latest, part.wall_ms)
    return lines, brokers, np.array(due)


def moved_by(line: bytes, ms: int) -> bytes:
    """The record with its wall times moved."""
    return MOMENT.sub(lambda found: b"%d" % (int(found[0]) + ms), line)


if __name__ == "__main__":
    main()
