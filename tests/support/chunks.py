"""What tests share of chunks."""

from __future__ import annotations

CHUNK = {
    "event_type": "dispatch",
    "source_feed": "contract",
    "cluster": "c",
    "broker": "b",
    "ts_mono_ns": None,
    "topic": "persistent://t/ns/a",
    "subscription": "s",
    "consumer": "c1",
}
START_MS = 1_767_621_600_000
