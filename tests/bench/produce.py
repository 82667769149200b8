"""Produces records of the synthetic trace to Kafka at a constant rate, stamped with the present.

    python -m tests.bench.produce SERVERS TOPIC RATE SECONDS

The key is the broker, so one broker's records stay in one partition and in order.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer

from tests.bench.trace import START_MS, START_NS, Traffic

STEP_S = 0.005
TIMES = (b'"ts_mono_ns":', b'"ts_wall_ms":', b'"publish_time_ms":')


def main() -> None:
    """Send until the time is over; print how many were sent."""
    servers, topic = sys.argv[1:3]
    rate, seconds = int(sys.argv[3]), float(sys.argv[4])
    traffic = Traffic(topics=5_000, late=0.0, rate=rate)
    (part,) = traffic.parts(1, min(int(rate * seconds), 200_000))
    lines, keys = part["value"].to_pylist(), [b.encode() for b in part["broker"].to_pylist()]
    producer = Producer({
        "bootstrap.servers": servers, "linger.ms": 5, "batch.size": 500_000,
        "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000,
    })
    began, sent = time.time(), 0
    while time.time() - began < seconds:
        due = int((time.time() - began) * rate)
        while sent < due:
            at = sent % len(lines)
            producer.produce(topic, _stamped(lines[at], sent), keys[at])
            sent += 1
        producer.poll(0)
        time.sleep(STEP_S)
    producer.flush(30)
    print(sent)


def _stamped(line: bytes, number: int) -> bytes:
    """The record as if it happened now; the clocks of a broker never stand still."""
    now_ns = time.time_ns()
    wall = now_ns // 1_000_000
    mono = START_NS + now_ns - START_MS * 1_000_000
    for key, value in zip(TIMES, (mono, wall, wall - 3), strict=True):
        begin = line.index(key) + len(key)
        end = begin
        while line[end] in b"0123456789":
            end += 1
        line = line[:begin] + str(value).encode() + line[end:]
    begin = line.index(b'"seq":') + 6
    end = line.index(b",", begin)
    return line[:begin] + str(number).encode() + line[end:]


if __name__ == "__main__":
    main()
